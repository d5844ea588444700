#!/bin/sh
# Liveness of container sentinel: any answer of the voter means that it is alive. So is one that does not know yet what to
# monitor, and there is none on ordinals that do not vote.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"

[ "$ordinal" -lt 3 ] || exit 0
[ ! -s "${FLOTILLA_RUN_DIR:-/run/flotilla/shared}/seeking" ] || exit 0
port=26379
. "$config_dir/alive.sh"
