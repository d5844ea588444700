#!/usr/bin/env bash
# Packs the manager as one image for amd64 and arm64 in dist/flotilla-manager.tar, an OCI layout, without a container engine.
# Usage: hack/image.sh <name with tag> <version> <commit>. The same source and Go make the same bytes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
[[ $# == 3 ]] || die 'usage: hack/image.sh <name with tag> <version> <commit>'
ROOTS=$BIN/image-roots
trap 'rm -rf "$ROOTS"' EXIT
umask 022
rm -rf "$ROOTS"
mkdir -p dist

options=()
for arch in amd64 arm64; do
	mkdir -p "$ROOTS/$arch"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$2 -X main.commit=$3" \
		-o "$ROOTS/$arch/manager" ./cmd/manager
	options+=(-root "$arch=$ROOTS/$arch")
done
"$BIN/image" "${options[@]}" -compress -name "$1" -out dist/flotilla-manager.tar -entrypoint /manager -user 65532:65532 -version "$2" \
	-label "org.opencontainers.image.revision=$3" -label org.opencontainers.image.title=flotilla-manager \
	-label org.opencontainers.image.source=https://github.com/flotilla-dev/flotilla -label org.opencontainers.image.licenses=Apache-2.0
say "  ${GREEN}✓${RESET} dist/flotilla-manager.tar is $1 for linux/amd64 and linux/arm64"
