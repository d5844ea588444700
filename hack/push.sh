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
"$BIN/crane" push --index "$layout" "$2:$1"
digest=$("$BIN/crane" digest "$2:$1")
grep -qF "$2:$1@$digest" dist/release/install.yaml || die "$2:$1 is $digest now, and dist/release/install.yaml names another digest: make the release with REPOSITORY=$2"
say "  ${GREEN}✓${RESET} $2:$1@$digest"
