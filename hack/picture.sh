#!/usr/bin/env bash
# Draws docs/demo.svg: a terminal in which a member of the demo stops answering. `make picture` builds first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v script >/dev/null || die 'script, which gives commands a terminal, is missing; it is in util-linux'

"$ROOT/hack/demo.sh"
fleet_dirs
cd "$ROOT"
transcript=$FLEET_DIR/logs/picture.ansi server=$(<"$FLEET_DIR/kwok/clusters/member-3/pids/kube-apiserver.pid")
trap 'kill -CONT "$server"' EXIT
export KUBECONFIG=$KUBECONFIGS/hub PATH=$BIN:$PATH TERM=xterm
unset NO_COLOR

# typed shows a command and what it prints on a terminal.
typed() {
	printf '\e[36m$ %s\e[0m\n' "$*"
	script -qefc "stty cols 120; $*" /dev/null </dev/null
	printf '\n'
}

# becomes waits until member-3 has a status of Ready.
becomes() {
	"$BIN/kubectl" wait membercluster/member-3 --for="condition=Ready=$1" --timeout=120s >/dev/null
}

{
	typed kubectl flotilla status
	printf '\e[2m# the API server of member-3 hangs\e[0m\n\n'
	kill -STOP "$server"
	becomes False
	typed kubectl flotilla status
	typed kubectl get redises,nodepools -A
	kill -CONT "$server"
	becomes True
} >"$transcript"
go run ./hack/picture <"$transcript" >docs/demo.svg
chmod 644 docs/demo.svg
say "docs/demo.svg shows $(wc -l <"$transcript") lines"
