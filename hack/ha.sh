#!/usr/bin/env bash
# Runs the laboratory of Redis that fails over, test/ha, on each engine that can be had here.
# Usage: hack/ha.sh [pattern of go test -run]
# Environment: HA_DIR (.ha) holds the programs; HA_ENGINES="redis-7 redis-8 valkey" picks engines; HA_SHORT=1 runs a short
# selection on the first; HA_FACTOR (1) multiplies how often each scenario is run; HA_TIMEOUT (60m) bounds each run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
umask 022
HA_DIR=${HA_DIR:-$ROOT/.ha}
[[ $HA_DIR == /* ]] || HA_DIR=$PWD/$HA_DIR

[[ $(uname -s) == Linux ]] || { say 'ha: not run: network namespaces need Linux' && exit 75; }
for program in unshare ip apt-get dpkg-deb; do
	[[ $(type -P $program) ]] || { say "ha: not run: $program is not installed" && exit 75; }
done
unshare --mount --pid --net --fork true 2>/dev/null || { say 'ha: not run: this user may not make namespaces; run it as root' && exit 75; }

DEBIAN=$HA_DIR/debian
source "$ROOT/hack/debian.sh"

# engine_root makes a root with a server, haproxy and what the scripts need, once.
engine_root() { # <name> <engine>
	[[ -s $HA_DIR/$1/etc/versions ]] && return
	server_root "$2" "$HA_DIR/$1" haproxy=/usr/sbin/haproxy coreutils=/bin/sleep coreutils=/bin/timeout
	(chroot "$HA_DIR/$1" "/usr/bin/$2-server" --version && chroot "$HA_DIR/$1" /usr/bin/haproxy -v) >"$HA_DIR/versions"
	mv "$HA_DIR/versions" "$HA_DIR/$1/etc/versions"
}

engines=() ready=()
for engine in ${HA_ENGINES:-${HA_SHORT:+redis-7}}; do engines+=("$engine"); done
[[ ${engines[*]} ]] || engines=(redis-7 redis-8 valkey)
for engine in "${engines[@]}"; do
	[[ $engine == redis-7 || -s $HA_DIR/$engine/etc/versions ]] || in_trixie || { say "ha: $engine is not run: Debian 13 is out of reach" && continue; }
	(engine_root "$engine" "${engine%%-*}") || { say "ha: $engine is not run: its packages are out of reach" && continue; }
	ready+=("$engine")
done

[[ ${ready[*]} ]] || exit 75
CGO_ENABLED=0 go test -c -tags ha -o "$HA_DIR/ha.test" "$ROOT/test/ha"
code=0
for engine in "${ready[@]}"; do
	title "$engine: $(awk '{printf "%s ", $0}' "$HA_DIR/$engine/etc/versions" | cut -c 1-150)"
	# Namespaces of its own for everything: whatever happens to the test, the kernel takes processes, mounts and networks away.
	(cd "$ROOT/test/ha" && HA_ROOT=$HA_DIR/$engine unshare --mount --pid --net --fork --kill-child --mount-proc --propagation private \
		sh -c '"$@"; exit $?' sh "$HA_DIR/ha.test" -test.v -test.count=1 ${HA_SHORT:+-test.short} -test.timeout "${HA_TIMEOUT:-60m}" -test.run "${1:-.}") |
		sed -u -E '/^=== (RUN|PAUSE|CONT|NAME)/d' || code=1
done
exit $code
