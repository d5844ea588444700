#!/bin/sh
# Readiness: the server answers, and a replica is linked to its primary and in sync.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"

[ "$(ask -h 127.0.0.1 -p "$port" ping 2>/dev/null)" = PONG ] || exit 1
[ "$ordinal" = 0 ] && exit 0
case $(ask -h 127.0.0.1 -p "$port" info replication 2>/dev/null) in
*master_link_status:up*) exit 0 ;;
*) exit 1 ;;
esac
