#!/bin/sh
# Readiness: the server answers and takes writes, and a replica is in sync or was a moment ago.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"

hold=${FLOTILLA_RUN_DIR:-/run/flotilla/shared}/hold
if [ -s "$hold" ]; then
	IFS= read -r why <"$hold"
	printf '%s\n' "$why"
	exit 1
fi
. "$config_dir/writable.sh"

case $info in
*role:master*) exit 0 ;;
*master_sync_in_progress:1*) unready "The replica is copying its primary" ;;
*master_link_status:up*) exit 0 ;;
esac
# A failover takes some seconds. A replica that was in sync may be read during that time; if all Pods were unready, the
# Service of the primary would have no endpoints.
priority=$(number "$info" slave_priority:)
down=$(number "$info" master_link_down_since_seconds:)
[ "${priority:-0}" -gt 0 ] && [ "${down:-30}" -lt 30 ] && exit 0
unready "The replica is not in sync with its primary"
