#!/usr/bin/env bash
# Pushes the image in dist/release/ to its repository, with the credentials of `docker login` or of the file that
# DOCKER_CONFIG names. Usage: hack/push.sh <version> <repository>
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
[[ $# == 2 ]] || die 'usage: hack/push.sh <version> <repository>'
image=dist/release/flotilla-manager_$1.tar
[[ -e $image ]] || die "there is no $image: run make release VERSION=$1 REPOSITORY=$2"

hack/build.sh crane
layout=$(mktemp -d)
trap 'rm -rf "$layout"' EXIT
tar -xf "$image" -C "$layout"
digest=$(grep -o 'sha256:[0-9a-f]\{64\}' "$layout/index.json")
grep -qF "$2:$1@$digest" dist/release/install.yaml ||
	die "dist/release/install.yaml does not name $2:$1@$digest: make the release with REPOSITORY=$2"
"$BIN/crane" push "$layout" "$2:$1"
pushed=$("$BIN/crane" digest "$2:$1")
[[ $pushed == "$digest" ]] || die "$2:$1 is $pushed now, and the release names $digest"
say "  ${GREEN}✓${RESET} $2:$1@$digest"
