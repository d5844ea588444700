#!/usr/bin/env bash
# Real Kubernetes control planes with simulated nodes on this machine: a hub and members. Usage: hack/fleet.sh up|down
# Environment: MEMBERS (3), NODES for each member (5), FLEET_DIR (.fleet), AUDIT_POLICY (a file; requests are then logged in
# kwok/clusters/<name>/logs/audit.log), MORE_HUBS (names of more clusters without nodes, whose API servers can pass requests on to
# others). Everything the fleet has lives in FLEET_DIR.
# `up` leaves running clusters alone, starts stopped ones and creates missing ones, all side by side.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MEMBERS=${MEMBERS:-3} NODES=${NODES:-5} MORE_HUBS=${MORE_HUBS:-}
[[ $MEMBERS =~ ^[0-9]+$ && $NODES =~ ^[0-9]+$ ]] || die "MEMBERS and NODES are numbers, not '$MEMBERS' and '$NODES'"
((MEMBERS <= 100 && NODES <= 250)) || die "at most 100 members of 250 nodes: each member takes about 500 MB"
fleet_dirs
# kwokctl runs kubectl by name.
PATH=$BIN:$PATH

is_member() { [[ $1 == member-* ]]; }

# A hub keeps the controller-manager for garbage collection and namespace deletion; nothing is scheduled there.
disabled() { is_member "$1" || say 'kube-scheduler, kwok-controller'; }

# ports_of prints the ports of a cluster, which are its own for life: a block of six at its number in the fleet.
ports_of() { # <number>
	local first=$(($(<"$FLEET_DIR/port-base") + 6 * $1))
	seq -s ' ' "$first" $((first + 5))
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# choose_ports picks the fleet's ports once: below the ephemeral range, at a place that depends on the folder so that
# fleets that start at the same moment do not meet, and where nothing listens.
choose_ports() { # <clusters>
	local base port try
	[[ -s $FLEET_DIR/port-base ]] && return
	base=$(cksum <<<"$FLEET_DIR")
	base=${base%% *}
	for ((try = 0; try < 50; try++)); do
		base=$((10000 + (base + try * 613) % 21000))
		for ((port = base; port < base + 6 * $1; port++)); do
			listens "$port" && continue 2
		done
		say "$base" >"$FLEET_DIR/port-base"
		return
	done
	die 'no free block of ports between 10000 and 31000'
}

# write_config writes what kwokctl needs to know of a cluster. The advertised address is one reserved for documentation:
# nothing dials it, and the API server does not have to look for a default route.
write_config() { # <cluster> <number>
	kwokctl_config 127.0.0.1 "$(ports_of "$2")" "$(disabled "$1")" 192.0.2.1 10.96.0.0/16 \
		"kubeAuditPolicy: \"${AUDIT_POLICY:-}\"" >"$FLEET_DIR/config/$1.yaml"
	[[ " $MORE_HUBS " != *" $1 "* ]] || aggregation "$KWOK_WORKDIR/clusters/$1/pki" >>"$FLEET_DIR/config/$1.yaml"
}

# aggregation prints the flags with which an API server authenticates itself, and its users, to those it passes requests on to.
aggregation() { # <folder of certificates>
	cat <<-EOF
		- name: kube-apiserver
		  extraArgs:
		  - {key: requestheader-client-ca-file, value: $1/ca.crt}
		  - {key: requestheader-allowed-names, value: kwok-admin}
		  - {key: requestheader-username-headers, value: X-Remote-User}
		  - {key: requestheader-group-headers, value: X-Remote-Group}
		  - {key: requestheader-extra-headers-prefix, value: X-Remote-Extra-}
		  - {key: proxy-client-cert-file, value: $1/admin.crt}
		  - {key: proxy-client-key-file, value: $1/admin.key}
	EOF
}

# processes lists "<pid> <component>" of a cluster's living processes and forgets pid files of dead ones, which would
# keep kwokctl from starting the component, or make it kill a stranger.
processes() {
	local file pid
	for file in "$KWOK_WORKDIR/clusters/$1"/pids/*.pid; do
		[[ -e $file ]] || continue
		pid=$(<"$file")
		if [[ $pid ]] && runs_with "$pid" "$KWOK_WORKDIR/clusters/$1/"; then
			say "$pid $(basename "$file" .pid)"
		else
			rm -f "$file"
		fi
	done
}

complete() {
	local want=3
	is_member "$1" && want=5
	[[ $(processes "$1" | wc -l) -eq $want ]] && kube "$1" get --raw /readyz --request-timeout 5s >/dev/null 2>&1
}

# nodes_of adds the simulated nodes that are missing: two zones, and of five nodes three in group web and two in group batch.
nodes_of() { # <member> <number>
	local i name zone group have
	have=" $(kube "$1" get nodes -o 'jsonpath={.items[*].metadata.name}') "
	for ((i = 1; i <= NODES; i++)); do
		name=$1-node-$i zone=$((i % 2)) group=web
		[[ $have == *" $name "* ]] && continue
		((i % 5 == 4 || i % 5 == 0)) && group=batch
		((zone)) && zone=a || zone=b
		cat <<-EOF
			---
			apiVersion: v1
			kind: Node
			metadata:
			  name: $name
			  annotations: {kwok.x-k8s.io/node: fake, node.alpha.kubernetes.io/ttl: "0"}
			  labels:
			    kubernetes.io/arch: amd64
			    kubernetes.io/os: linux
			    kubernetes.io/hostname: $name
			    topology.kubernetes.io/zone: $zone
			    node.example.com/group: $group
			spec: {podCIDR: 10.$(($2 + 100)).$i.0/24, podCIDRs: [10.$(($2 + 100)).$i.0/24]}
			status:
			  addresses: [{type: InternalIP, address: 198.18.$2.$i}, {type: Hostname, address: $name}]
			  capacity: {cpu: "8", memory: 32Gi, pods: "110"}
			  allocatable: {cpu: "8", memory: 32Gi, pods: "110"}
			  nodeInfo: {architecture: amd64, operatingSystem: linux}
		EOF
	done >"$FLEET_DIR/config/$1-nodes.yaml"
	[[ -s $FLEET_DIR/config/$1-nodes.yaml ]] || return 0
	kube "$1" create -f "$FLEET_DIR/config/$1-nodes.yaml"
	kube "$1" wait node --all --for=condition=Ready --timeout=120s
}

# up_one brings one cluster up. Its output is a log.
up_one() { # <cluster> <number>
	local try
	if [[ -e $KWOK_WORKDIR/clusters/$1/kwok.yaml ]]; then
		"$BIN/kwokctl" start cluster --name "$1" --wait 120s
	else
		write_config "$1" "$2"
		"$BIN/kwokctl" create cluster --name "$1" -c "$FLEET_DIR/config/$1.yaml" --kubeconfig "$FLEET_DIR/config/$1.kubeconfig" --wait 120s
	fi
	kubeconfig_of_kwok "$1" "$KUBECONFIGS/$1"
	for ((try = 0; try < 60; try++)); do
		complete "$1" && return
		# On a busy machine a component can give up before the API server answers it, and nobody else starts it again.
		((try % 10 == 9)) && "$BIN/kwokctl" start cluster --name "$1" --wait 30s
		sleep 1
	done
	say "$1 is not complete; these run:" "$(processes "$1" | tr '\n' ' ')"
	return 1
}

dress_one() { # <member> <number>
	storage_class | kube "$1" apply --server-side -f -
	nodes_of "$1" "$2"
}

bring_up() { # <cluster> <number>
	complete "$1" || up_one "$1" "$2"
	! is_member "$1" || dress_one "$1" "$2"
}

# messages prints what bringing a cluster up says, and of kwokctl's log lines only the message.
messages() {
	sed -e 's/^{.*"level":"\([A-Z]*\)".*"msg":"\([^"]*\)".*"err":"\(.*\)"}$/\1 \2: \3/' \
		-e 's/^{.*"level":"\([A-Z]*\)".*"msg":"\([^"]*\)".*/\1 \2/' "$FLEET_DIR/logs/$1.log"
}

up() {
	local i name clusters=(hub) pids=() failed='' BEGAN=$SECONDS
	for ((i = 1; i <= MEMBERS; i++)); do clusters+=("member-$i"); done
	clusters+=($MORE_HUBS)
	mkdir -p "$KUBECONFIGS" "$FLEET_DIR"/{config,logs,kwok}
	choose_ports "${#clusters[@]}"
	# The controller-managers make the folders of volumes below this one, whoever owns it.
	mkdir -p -m 1777 /tmp/hostpath_pv && chmod 1777 /tmp/hostpath_pv 2>/dev/null || true
	[[ -w /tmp/hostpath_pv ]] || die "/tmp/hostpath_pv belongs to another user and is not writable: volumes could not be made (chmod 1777 it)"
	title "Starting a hub and $MEMBERS members with $NODES simulated nodes each in ${FLEET_DIR/#"$ROOT/"/}"
	for i in "${!clusters[@]}"; do
		bring_up "${clusters[i]}" "$i" >"$FLEET_DIR/logs/${clusters[i]}.log" 2>&1 &
		pids+=($!)
	done
	for i in "${!clusters[@]}"; do
		name=${clusters[i]}
		if ! watch_job "$name" "${pids[i]}" messages "$name"; then
			failed+=" $name"
			messages "$name" | tail -n 15 | sed 's/^/      /' >&2
		fi
	done
	[[ ! $failed ]] || die "did not start:$failed; logs are in $FLEET_DIR/logs and $KWOK_WORKDIR/clusters/<name>/logs. 'make fleet-down' clears up"
	say "  the fleet is up after $((SECONDS - BEGAN)) s; kubeconfigs are in ${KUBECONFIGS/#"$ROOT/"/}"
}

# down_one stops and deletes one cluster, and makes sure that none of its processes is left.
down_one() {
	local pid component left volume
	left=$(processes "$1")
	if [[ $left == *kube-apiserver* && -e $KUBECONFIGS/$1 ]]; then
		# Empty: the Pods are simulated.
		for volume in $(kube "$1" get pv -o 'jsonpath={.items[*].spec.hostPath.path}' --request-timeout 5s 2>/dev/null || true); do
			[[ $volume == /tmp/hostpath_pv/* ]] && rmdir "$volume" 2>/dev/null || true
		done
	fi
	"$BIN/kwokctl" delete cluster --name "$1" --kubeconfig "$FLEET_DIR/config/$1.kubeconfig" || true
	while read -r pid component; do
		[[ $pid ]] || continue
		kill "$pid" 2>/dev/null || true
		await_exit "$pid" 10 || { say "killing $component of $1" && kill -KILL "$pid" && await_exit "$pid" 10; }
	done <<<"$left"
	rm -rf "$KWOK_WORKDIR/clusters/$1" "$KUBECONFIGS/$1"
}

down() {
	local dir name pids=() names=() i BEGAN=$SECONDS
	title "Removing the fleet in ${FLEET_DIR/#"$ROOT/"/}"
	"$ROOT/hack/manager.sh" stop
	mkdir -p "$FLEET_DIR/logs" "$FLEET_DIR/config"
	for dir in "$KWOK_WORKDIR"/clusters/*/; do
		[[ -d $dir ]] || continue
		name=$(basename "$dir")
		down_one "$name" >"$FLEET_DIR/logs/$name-down.log" 2>&1 &
		pids+=($!) names+=("$name")
	done
	for i in "${!pids[@]}"; do
		watch_job "${names[i]}" "${pids[i]}" true || { cat "$FLEET_DIR/logs/${names[i]}-down.log" >&2 && die "could not remove ${names[i]}"; }
	done
	((${#pids[@]})) || say '  no cluster is there'
	# By name, so that a wrong FLEET_DIR costs nothing.
	for name in kwok config kubeconfigs logs cache registrations port-base manager.log manager.kubeconfig; do
		rm -rf "${FLEET_DIR:?}/$name"
	done
	[[ -L $KWOK_WORKDIR ]] && rm "$KWOK_WORKDIR"
	rmdir "$FLEET_DIR" 2>/dev/null || true
}

case ${1:-} in
up) up ;;
down) down ;;
*) die 'usage: hack/fleet.sh up|down' ;;
esac
