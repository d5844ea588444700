#!/bin/sh
# Startup and liveness of container redis: a server that waits for its role is alive.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"

[ ! -s "${FLOTILLA_RUN_DIR:-/run/flotilla/shared}/hold" ] || exit 0
. "$config_dir/alive.sh"
