#!/bin/sh
# Readiness: the server answers and takes writes, and a replica is linked to its primary and in sync.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/writable.sh"

[ "$ordinal" = 0 ] && exit 0
case $info in
*master_link_status:up*) exit 0 ;;
*) unready "The replica is not in sync with its primary" ;;
esac
