#!/usr/bin/env bash
# Runs test/e2e on clusters with real nodes. Usage: hack/e2e-suite.sh [pattern of go test -run]
# Environment: E2E_HUB and E2E_MEMBERS=a,b are kubeconfigs of clusters to use instead of those of hack/e2e.sh; E2E_DIR (.e2e);
# E2E_NODES (1) is how many nodes the first member has, 3 for TestSentinelNodes; E2E_KEEP=1 leaves the clusters running;
# E2E_CUT (5m) is how long the hub is cut off, E2E_IDLE (10m) how long nothing may be written when nothing happens;
# E2E_TIMES (1) is how often TestSentinel repeats what it measures, if that is more than usual; E2E_TIMEOUT (120m) bounds all
# scenarios together; E2E_SHORT=1 runs a short selection; REDIS_HA is the folder of the chart redis-ha, which TestPeers compares
# mode Sentinel with, E2E_ROUNDS (5) times in each way.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

absolute() { [[ $1 == /* ]] && say "$1" || say "$PWD/$1"; }

if [[ ${E2E_HUB:-} ]]; then
	members=()
	[[ ${E2E_MEMBERS:-} == *,* ]] || die 'E2E_HUB needs E2E_MEMBERS=<kubeconfig>,<kubeconfig>'
	for file in "$E2E_HUB" ${E2E_MEMBERS//,/ }; do
		[[ -r $file ]] || die "cannot read the kubeconfig $file"
	done
	for file in ${E2E_MEMBERS//,/ }; do members+=("$(absolute "$file")"); done
	E2E_HUB=$(absolute "$E2E_HUB") E2E_MEMBERS=$(IFS=, && say "${members[*]}")
	export E2E_HUB E2E_MEMBERS
else
	E2E_DIR=$(absolute "${E2E_DIR:-$ROOT/.e2e}")
	export E2E_DIR
	[[ ${E2E_KEEP:-} ]] || trap '"$ROOT/hack/e2e.sh" down' EXIT
	"$ROOT/hack/e2e.sh" up
fi
if [[ ${REDIS_HA:-} ]]; then
	REDIS_HA=$(absolute "$REDIS_HA")
	export REDIS_HA
	"$ROOT/hack/build.sh" helm
fi
title 'Breaking Redis'
cd "$ROOT/test/e2e"
go test -tags e2e -count=1 ${E2E_SHORT:+-short} -timeout "${E2E_TIMEOUT:-120m}" -parallel 4 -v -run "${1:-.}" . | sed -u -E '/^=== (RUN|PAUSE|CONT|NAME)/d'
