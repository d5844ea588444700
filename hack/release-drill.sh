#!/usr/bin/env bash
# Does what the README says under "Ten minutes", from the files of a release alone: on clusters with real nodes that have
# nothing yet, in a folder that has nothing else, without Go and without the repository. Only that the nodes pull images is
# played: they are given those of the release and of Redis.
# Usage: hack/release-drill.sh [folder of the release]; needs root on Linux. Environment: E2E_DIR (.e2e).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
RELEASE=$(cd "${1:-$ROOT/dist/release}" && pwd) || die 'there is no release: make release VERSION=v1.2.3 REPOSITORY=...'
E2E_DIR=${E2E_DIR:-$ROOT/.e2e}
export E2E_DIR
E2E="$ROOT/hack/e2e.sh"
# minutes is what the README promises.
minutes=10

archive=$(basename "$RELEASE"/kubectl-flotilla_*_linux_amd64.tar.gz)
version=${archive#kubectl-flotilla_} version=${version%_linux_amd64.tar.gz}
user=$(mktemp -d)
trap 'rm -rf "$user"; "$E2E" down' EXIT
E2E_BARE=1 "$E2E" up

# The user has kubectl and what every Linux has.
mkdir "$user/bin"
cp "$BIN/kubectl" "$user/bin/"
find "$RELEASE" -maxdepth 1 -type f -exec cp {} "$user" \;
files=()
for name in hub member-1 member-2; do files+=("$E2E_DIR/kubeconfigs/$name"); done
export KUBECONFIG=$user/config
(IFS=: && KUBECONFIG="${files[*]}" "$BIN/kubectl" config view --flatten >"$user/config")
chmod 600 "$user/config"
"$BIN/kubectl" config use-context hub >/dev/null
"$BIN/kubectl" config rename-context member-1 eu-1-admin >/dev/null
"$BIN/kubectl" config rename-context member-2 us-1-admin >/dev/null
reference=$(grep -oE '[^ "]+flotilla-manager[^ "]*@sha256:[0-9a-f]+' "$user/install.yaml" | sort -u)
tagged=${reference%@*}
redis=$(grep -oE 'default: redis:[0-9.]+' "$user/install.yaml" | sort -u | sed 's/.*redis://')
"$E2E" image hub "$user/flotilla-manager_$version.tar" >/dev/null
"$E2E" tag hub "$tagged" "${tagged%:*}@${reference#*@}" >/dev/null
for name in member-1 member-2; do
	"$E2E" tag "$name" localhost/redis:e2e "docker.io/library/redis:$redis" >/dev/null
done

# The commands and the manifest, as they stand in the README.
block() { # <sh or yaml>
	awk -v want="$1" '/^## /{on = /^## Ten minutes/} /^```/{if (kind == "") {kind = substr($0, 4); if (kind == "") kind = "-"} else kind = ""; next} on && kind == want' "$ROOT/README.md" |
		sed "s/v0\.1\.0/$version/g; s/-0\.1\.0\.tgz/-${version#v}.tgz/g"
}
block yaml >"$user/cache.yaml"
block sh >"$user/commands"
[[ -s $user/cache.yaml && $(wc -l <"$user/commands") -ge 7 ]] || die 'the README has no commands under "Ten minutes"'

title 'Ten minutes, from the files of a release'
began=$SECONDS
(cd "$user" && env -i HOME="$user" KUBECONFIG="$user/config" TERM=dumb PATH="$user/bin:/usr/bin:/bin" bash -euo pipefail -x ./commands) ||
	die "the commands of the README failed after $((SECONDS - began)) s"
took=$((SECONDS - began))
((took <= minutes * 60)) || die "it took $took s, more than $minutes minutes"
say "  ${GREEN}✓${RESET} a placed Redis after $took s"
