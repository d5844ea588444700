#!/usr/bin/env bash
# Prepares the hub and registers the members of the fleet in FLEET_DIR, as a GitOps repository would.
# Usage: hack/register.sh hub|members. What is there already stays as it is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fleet_dirs
[[ -e $KUBECONFIGS/hub ]] || die "no fleet in $FLEET_DIR: run 'make fleet-up' first"
mkdir -p "$FLEET_DIR/registrations" "$FLEET_DIR/logs"

# region_of spreads the members: of three, the last is in us.
region_of() {
	((${1#member-} % 3)) && say eu || say us
}

# register writes the registration as it would be committed, and applies it.
register() {
	local file=$FLEET_DIR/registrations/$1.yaml
	if [[ -s $file ]] && kube hub get secret -n flotilla-clusters "$1" >/dev/null 2>&1; then return; fi
	(umask 077 && "$BIN/kubectl-flotilla" register "$1" --kubeconfig "$KUBECONFIGS/$1" --member-context "$1" --labels "region=$(region_of "$1")" -o yaml >"$file.new")
	mv "$file.new" "$file"
	kube hub apply --server-side --force-conflicts -f "$file"
}

members_up() {
	local name names=() pids=() i BEGAN=$SECONDS
	for name in $(members); do
		register "$name" >"$FLEET_DIR/logs/$name-register.log" 2>&1 &
		names+=("$name") pids+=($!)
	done
	for i in "${!names[@]}"; do
		name=${names[i]}
		watch_job "$name (region $(region_of "$name"))" "${pids[i]}" && continue
		tail -n 15 "$FLEET_DIR/logs/$name-register.log" >&2
		die "registering $name"
	done
}

hub_up() {
	kube hub apply --server-side --force-conflicts -k "$ROOT/config/hub" >"$FLEET_DIR/logs/hub-install.log" 2>&1 &
	watch_job 'schemas, namespaces and rights on the hub' $! && return
	tail -n 15 "$FLEET_DIR/logs/hub-install.log" >&2
	die 'preparing the hub'
}

case ${1:-} in
hub) hub_up ;;
members) members_up ;;
*) die 'usage: hack/register.sh hub|members' ;;
esac
