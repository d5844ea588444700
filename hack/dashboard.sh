#!/usr/bin/env bash
# Looks at kubectl flotilla dashboard with Chromium: hack/dashboard.sh test, or hack/dashboard.sh screenshots FOLDER.
# Without Chromium nothing is tested: that is said, and the exit code is 75.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# have_browser installs Chromium if it is missing and that is possible.
have_browser() {
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null && return
	if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
		return 1
	fi
	say 'installing Chromium'
	{ timeout 120 apt-get update && timeout 240 apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1
}

if ! have_browser; then
	say 'dashboard: SKIPPED: there is no Chromium, and apt-get could not install it'
	exit 75
fi
case ${1:-} in
test) go -C "$ROOT/test/dashboard" test -timeout 8m . ;;
screenshots)
	mkdir -p "${2:-$ROOT/.screenshots}"
	folder=$(cd "${2:-$ROOT/.screenshots}" && pwd)
	go -C "$ROOT/test/dashboard" test -timeout 9m -run '^TestScreenshots$' . -args -screenshots "$folder"
	install -m 644 "$folder/fleet-1440-light.png" "$ROOT/docs/dashboard-fleet.png"
	install -m 644 "$folder/object-1440-dark.png" "$ROOT/docs/dashboard-object.png"
	install -m 644 "$folder/fleet-390-dark.png" "$ROOT/docs/dashboard-narrow.png"
	;;
*) die 'say test or screenshots FOLDER' ;;
esac
