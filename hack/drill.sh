#!/usr/bin/env bash
# Runs the long drills. Usage: hack/drill.sh [pattern of go test -run]
# Without a pattern, or with '.', all of them run. With one, those run whose names it matches, wherever they are, fuzz targets
# included. FUZZTIME (5m) is how long each fuzz target runs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

RUN=${1:-.} picked=''
# What follows a slash picks subtests.
name=${RUN%%/*} subtests=''
[[ $RUN == */* ]] && subtests=/${RUN#*/}

# pick prints the drills of a package that the pattern matches, as a pattern.
pick() { # <package> <pattern of its drills>
	local drills
	drills=$(go test -tags drill -list "$name" "$1") || die "cannot list the drills of $1"
	drills=$(grep -E "^(Test|Fuzz)" <<<"$drills" | grep -E "$2" || true)
	[[ -z $drills ]] || say "^(${drills//$'\n'/|})\$"
}

fuzz() { # <package> <target>
	local target
	target=$(pick "$1" "^$2\$")
	[[ $target ]] || return 0
	picked=1
	go test -run '^$' -fuzz="$target" -fuzztime="${FUZZTIME:-5m}" -fuzzminimizetime=0x "$1"
}

drill() { # <package> <timeout> <pattern of its drills>
	local tests
	tests=$(pick "$1" "$3")
	[[ $tests ]] || return 0
	picked=1
	[[ $tests != *TestMonitoringDrill* ]] || "$ROOT/hack/build.sh" prometheus
	[[ $tests != *TestHelmDrill* ]] || "$ROOT/hack/build.sh" helm
	[[ $tests != *TestGitOpsDrill* ]] || "$ROOT/hack/build.sh" kustomize-controller
	go test -tags drill -count=1 -timeout "$2" -v -run "$tests$subtests" "$1"
}

fuzz ./internal/clusters/registration FuzzParseKubeconfig
fuzz ./internal/clusters/registration FuzzParseArgoCD
fuzz ./internal/reconcilers/nodepool/ownership FuzzRecord
drill ./config 30m '^TestHelmDrill$'
drill ./internal/clusters/pool 1h '^Test(Pool_does_not_grow_when_members_come_and_go|Permission_.*|FaultsDrill_memory)$'
drill ./internal/fleet 1h '^TestWaves_(any_course|need_each_of_their_rules|do_not_wait_after_an_edit_that_is_taken_back)$'
drill ./internal/reconcilers/nodepool/ownership 1h '^Test(Property_the_order_of_events_does_not_matter|Property_pools_that_select_by_labels_of_pools_come_to_an_end)$'
drill ./internal/plugin 30m '^TestFiguresDrill$'
drill ./internal/reconcilers/nodepool 1h '^TestSetup_a_large_pool$'
drill ./test/scale 1h '^Test(Storm|ThousandMembers|ThousandMembers_in_waves)$'
drill ./test/fleet 7h .
[[ $picked ]] || die "no drill matches '$RUN'"
