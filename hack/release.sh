#!/usr/bin/env bash
# Makes everything that a release consists of in dist/release/, from the commit that is checked out.
# Usage: hack/release.sh <version> <repository of the image>. The same commit and Go make the same bytes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
[[ $# == 2 ]] || die 'usage: hack/release.sh <version> <repository of the image>'
[[ $1 =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || die "VERSION=$1 is not a version: write it as v1.2.3"
[[ -z $(git status --porcelain) ]] || die 'the tree is dirty: commit, so that the release is that of a commit'

PLATFORMS=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64)
OUT=dist/release
BINARIES=$BIN/release
commit=$(git rev-parse HEAD)
umask 022
rm -rf "$OUT" "$BINARIES"
mkdir -p "$OUT" "$BINARIES"

hack/build.sh image cyclonedx-gomod
hack/image.sh "$2:$1" "$1" "$commit"
mv dist/flotilla-manager.tar "$OUT/flotilla-manager_$1.tar"

# plugins builds the plugin for each platform.
plugins() {
	local platform out
	for platform in "${PLATFORMS[@]}"; do
		out=$BINARIES/${platform/\//_}/kubectl-flotilla
		[[ $platform != windows/* ]] || out+=.exe
		CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath -buildvcs=false \
			-ldflags "-s -w -X main.version=$1 -X main.commit=$commit" -o "$out" ./cmd/kubectl-flotilla
	done
}
plugins "$1" &
watch_job "build kubectl-flotilla for ${#PLATFORMS[@]} platforms" $! || die 'building the plugin failed'

# What is in the binaries, by what Go has written into them. Modules are the same on all platforms but for a few.
mkdir -p "$BINARIES.sbom"
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false -o "$BINARIES.sbom/flotilla-manager" ./cmd/manager
cp "$BINARIES/linux_amd64/kubectl-flotilla" "$BINARIES.sbom/"
for name in flotilla-manager kubectl-flotilla; do
	"$BIN/cyclonedx-gomod" bin -json -std -noserial -notimestamp -version "$1" -output "$OUT/$name.cdx.json" "$BINARIES.sbom/$name" 2>/dev/null ||
		die "listing the modules of $name failed"
done
rm -rf "$BINARIES.sbom"

go run ./hack/release -version "$1" -commit "$commit" -repository "$2" -binaries "$BINARIES" -out "$OUT"
rm -rf "$BINARIES"
say "  ${GREEN}✓${RESET} $OUT has $(find "$OUT" -type f | wc -l | tr -d ' ') files:"
(cd "$OUT" && ls -l | awk 'NR > 1 {printf "      %10d  %s\n", $5, $9}')
say "  push the image with: make push VERSION=$1 REPOSITORY=$2"
