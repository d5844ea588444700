#!/usr/bin/env bash
# The whole of Flotilla on this machine: fleet, registrations, manager, samples, and a look around. `make demo` builds first.
# A second run finds everything in place and changes nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
began=$SECONDS
# How long each step may take, in seconds.
WAIT=${WAIT:-180}

"$ROOT/hack/fleet.sh" up
fleet_dirs
kubeconfig=${KUBECONFIGS/#"$ROOT/"/}

# explain prints what a person would look at when something is not well, and ends.
explain() { # <cluster> <resource...>
	title 'That did not work. What the hub knows:'
	kube hub get memberclusters -o wide || true
	kube hub get redises,nodepools -A -o wide || true
	title "$1: ${*:2}"
	kube "$1" describe "${@:2}" || true
	title "From ${FLEET_DIR/#"$ROOT/"/}/manager.log"
	# A crash begins with its reason; what follows is long.
	grep -m 1 -A 20 -E '^(panic|fatal error):' "$FLEET_DIR/manager.log" || tail -n 25 "$FLEET_DIR/manager.log" || true
	exit 1
}

# reach waits until an object exists and has a condition, as long as the manager lives.
reach() { # <cluster> <condition> <resource...>
	local end=$((SECONDS + WAIT))
	while ((SECONDS < end)) && runs_with "$(<"$FLEET_DIR/manager.pid")" "$FLEET_DIR/manager.kubeconfig"; do
		[[ $(kube "$1" get "${@:3}" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].status}") == True ]] && return
		sleep 1
	done
	return 1
}

await() { # <what> <cluster> <condition> <resource...>
	local what=$1 cluster=$2 condition=$3
	shift 3
	reach "$cluster" "$condition" "$@" >"$FLEET_DIR/logs/await.log" 2>&1 &
	watch_job "$what" $! kube "$cluster" get "$@" -o "jsonpath={.status.conditions[?(@.type==\"$condition\")].message}" ||
		explain "$cluster" "$@"
}

apply() { # <what> <cluster> <folder>
	local out
	out=$(kube "$2" apply -k "$ROOT/config/$3" 2>&1) || die "applying config/$3: $out"
	say "  ${GREEN}✓${RESET} $1 ${DIM}(config/$3)${RESET}"
}

title 'Registering the members'
"$ROOT/hack/register.sh" hub
"$ROOT/hack/register.sh" members

title 'Starting the manager'
# shellcheck disable=SC2086 # MANAGER_ARGS is a list of flags.
"$ROOT/hack/manager.sh" start ${MANAGER_ARGS:-}
for member in $(members); do
	await "MemberCluster $member is Ready" hub Ready memberclusters.flotilla.dev "$member"
done

title 'Applying the samples'
apply 'NodePool web and Redis shop/cache on the hub' hub samples
apply 'Redis checkout/sessions directly in member-1' member-1 samples/member
await 'NodePool web is ready in all its members' hub FullyReady nodepools.flotilla.dev web
await 'Redis shop/cache is ready in all its members' hub FullyReady redises.flotilla.dev -n shop cache
await 'Redis checkout/sessions is ready in member-1' member-1 Ready redises.flotilla.dev -n checkout sessions
# Counts reach a MemberCluster within ten seconds; waiting makes the first look right.
kube hub wait memberclusters.flotilla.dev member-1 --for='jsonpath={.status.summary.redises.ready}=2' --timeout=20s >"$FLEET_DIR/logs/await.log" 2>&1 &
watch_job 'MemberCluster member-1 counts both' $! || true

# on runs kubectl as a person would type it.
on() {
	local cluster=$1
	shift
	show "$BIN/kubectl" --kubeconfig "$kubeconfig/$cluster" "$@"
}

cd "$ROOT"
title 'The fleet, from the hub'
on hub get memberclusters
on hub get redises,nodepools -A
on hub get redis cache -n shop -o 'jsonpath={range .status.clusters[*]}{.name}: ready={.ready} {.readyReplicas}/{.replicas}{"\n"}{end}'
on hub events -n shop
title 'A member: the override made cache smaller in member-2'
on member-2 get redis cache -n shop
on member-2 get statefulsets,pods,services -n shop
on member-2 get nodes -L example.com/team
title 'A member: sessions is its own'
on member-1 get redises -A

k="bin/kubectl --kubeconfig $kubeconfig"
title "The fleet runs ($((SECONDS - began)) s). What to try next:"
cat <<EOF
  ${BOLD}heal${RESET}        $k/member-1 delete pod,service -n shop -l flotilla.dev/redis=cache
              $k/member-1 get pods -n shop -w
  ${BOLD}scale${RESET}       $k/hub scale redis cache -n shop --replicas=4
              $k/hub get redis cache -n shop -w
  ${BOLD}drift${RESET}       $k/member-3 label node member-3-node-1 example.com/team-
              $k/member-3 get nodes -L example.com/team -w
  ${BOLD}black hole${RESET}  kill -STOP \$(cat ${FLEET_DIR/#"$ROOT/"/}/kwok/clusters/member-3/pids/kube-apiserver.pid)    # -CONT brings it back
              $k/hub get memberclusters -w
  ${BOLD}offboard${RESET}    $k/hub delete secret member-3 -n flotilla-clusters
  ${BOLD}register${RESET}    $k/hub apply --server-side -f ${FLEET_DIR/#"$ROOT/"/}/registrations/member-3.yaml
  ${BOLD}log${RESET}         tail -f ${FLEET_DIR/#"$ROOT/"/}/manager.log
  ${BOLD}end${RESET}         make fleet-down
EOF
