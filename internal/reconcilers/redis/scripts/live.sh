#!/bin/sh
# Startup and liveness.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/alive.sh"
