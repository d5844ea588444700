#!/usr/bin/env bash
# Prepares the hub and registers the members of the fleet in FLEET_DIR, as a GitOps repository would.
# Usage: hack/register.sh hub|members. What is there already stays as it is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fleet_dirs
[[ -e $KUBECONFIGS/hub ]] || die "no fleet in $FLEET_DIR: run 'make fleet-up' first"
mkdir -p "$FLEET_DIR/registrations" "$FLEET_DIR/logs"

install() { kube "$1" apply --server-side --force-conflicts -k "$ROOT/config/$2"; }

# region_of spreads the members: of three, the last is in us.
region_of() {
	((${1#member-} % 3)) && say eu || say us
}

# token_of reads the long-lived token of the hub's ServiceAccount in a member, which the member makes on request.
token_of() {
	local token try
	kube "$1" apply --server-side -f - >&2 <<-EOF
		apiVersion: v1
		kind: Secret
		type: kubernetes.io/service-account-token
		metadata:
		  name: flotilla-hub-token
		  namespace: flotilla-system
		  annotations: {kubernetes.io/service-account.name: flotilla-hub}
	EOF
	for ((try = 0; try < 60; try++)); do
		token=$(kube "$1" get secret -n flotilla-system flotilla-hub-token -o 'go-template={{with .data.token}}{{. | base64decode}}{{end}}')
		[[ $token ]] && say "$token" && return
		sleep 0.5
	done
	return 1
}

# kubeconfig_of prints what the hub uses to reach a member. It passes through files and pipes only: an argument can be
# seen by every user of the machine.
kubeconfig_of() {
	local token server ca
	token=$(token_of "$1")
	server=$(kube "$1" config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
	ca=$(kube "$1" config view --minify --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}')
	cat <<-EOF
		apiVersion: v1
		kind: Config
		current-context: flotilla-hub
		contexts:
		- {name: flotilla-hub, context: {cluster: $1, user: flotilla-hub}}
		clusters:
		- {name: $1, cluster: {server: "$server", certificate-authority-data: $ca}}
		users:
		- {name: flotilla-hub, user: {token: $token}}
	EOF
}

register() {
	local kubeconfig file=$FLEET_DIR/registrations/$1.yaml
	install "$1" member
	kubeconfig=$(kubeconfig_of "$1" | base64 | tr -d '\n')
	cat >"$file" <<-EOF
		apiVersion: v1
		kind: Secret
		metadata:
		  name: $1
		  namespace: flotilla-clusters
		  labels:
		    flotilla.dev/cluster: "true"
		    region: $(region_of "$1")
		data:
		  kubeconfig: $kubeconfig
	EOF
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
	install hub hub >"$FLEET_DIR/logs/hub-install.log" 2>&1 &
	watch_job 'schemas, namespaces and rights on the hub' $! && return
	tail -n 15 "$FLEET_DIR/logs/hub-install.log" >&2
	die 'preparing the hub'
}

case ${1:-} in
hub) hub_up ;;
members) members_up ;;
*) die 'usage: hack/register.sh hub|members' ;;
esac
