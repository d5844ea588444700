#!/bin/sh
# Startup and liveness: any answer of a working server will do. A server that loads its data, waits for its primary,
# runs a script or asks for another password is alive; killing it would make things worse.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"

case $(ask -h 127.0.0.1 -p "$port" ping) in
*PONG* | *LOADING* | *MASTERDOWN* | *BUSY* | *NOAUTH* | *WRONGPASS*) exit 0 ;;
*) exit 1 ;;
esac
