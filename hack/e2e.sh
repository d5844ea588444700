#!/usr/bin/env bash
# A hub and two members with real nodes on this machine: containerd, kubelet, kube-proxy, and the manager as a Pod.
# Usage: hack/e2e.sh up|down|check, and for the suite: reboot <machine> · stop <machine> · start <machine> ·
# cut <cluster> · join <cluster> · unplug <machine> · plug <machine> · kill <machine> <uid of a Pod> <pattern of programs> [signal] ·
# forget <machine> <uid of a Pod> <words> <file...> · isolate <machine> <uid of a Pod> · rejoin <machine> <uid of a Pod> ·
# api <cluster> STOP|CONT · disk <cluster> <name> make|drop|room <KiB>|mode <mode> · image <machine> <tar> ·
# tag <machine> <image> <another name>
# Each cluster is a machine with control plane and node; the first member has more nodes if E2E_NODES (1) says so, on machines
# member-1.2 and so on. A machine is a set of namespaces (network, mounts, processes) below one process; ending that ends it all.
# Environment: E2E_DIR (.e2e); E2E_NODES (1); E2E_BARE=1 installs nothing on the clusters. `up` leaves alone what runs, `down` leaves no process, mount, link or cgroup.
# Exit code 75 says that this machine cannot have such clusters, 1 that Flotilla does not run on them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

umask 077
# What nodes are made with is often only in the path of root.
PATH=$PATH:/usr/sbin:/sbin
E2E_DIR=${E2E_DIR:-$ROOT/.e2e}
[[ $E2E_DIR == /* ]] || E2E_DIR=$PWD/$E2E_DIR
export E2E_DIR
CLUSTERS=(hub member-1 member-2)
E2E_NODES=${E2E_NODES:-1}
BRIDGE=flotilla-e2e
# The clusters' own addresses are from the range reserved for test networks.
NET=198.19.77
BINARIES=(kube-apiserver kube-controller-manager kube-scheduler kubectl etcd kwok kwokctl
	kubelet kube-proxy containerd containerd-shim-runc-v2 ctr bridge loopback host-local portmap dns image pause)

cannot() { (die "$@") || exit 75; }

# machines lists those that there are to be.
machines() {
	local number
	printf '%s\n' "${CLUSTERS[@]}"
	for ((number = 2; number <= E2E_NODES; number++)); do say "member-1.$number"; done
}

# machine_of sets the addresses of a machine, and those that its cluster has.
machine_of() {
	local number machine=1
	case $1 in
	hub) number=0 ;;
	member-*) number=${1#member-} ;;
	*) die "no such machine: $1" ;;
	esac
	LINK=flotilla-e2e$number
	if [[ $number == *.* ]]; then
		machine=${number#*.} number=${number%.*}
		LINK=flotilla-e2e${number}n$machine
	fi
	DIR=$E2E_DIR/clusters/$1
	export API=$NET.$((10 + number)) SERVICES=10.$((96 + number)).0.0/16 ALL_PODS=10.$((196 + number)).0.0/16
	export ADDRESS=$NET.$((10 * machine + number)) PODS=10.$((196 + number)).$((machine - 1)).0/24
}

# init_of prints the process that holds the namespaces of a machine, if it lives.
init_of() {
	local pid
	[[ -s $E2E_DIR/clusters/$1/init.pid ]] || return 0
	pid=$(<"$E2E_DIR/clusters/$1/init.pid")
	! runs_with "$pid" "$E2E_DIR/clusters/$1" || say "$pid"
}

# enter runs a command inside the namespaces of a machine.
enter() { # <machine> <command...>
	local pid
	machine_of "$1"
	pid=$(init_of "$1")
	[[ $pid ]] || die "$1 does not run: hack/e2e.sh up"
	nsenter --target "$pid" --mount --net --pid -- "${@:2}"
}

node() { enter "$1" "$ROOT/hack/e2e-node.sh" "$1" "$2"; }

# owner_of_network prints whose clusters run on this machine: links and cgroups have the same names for everybody.
owner_of_network() { ip -d link show "$BRIDGE" 2>/dev/null | sed -n 's/^ *alias //p'; }

# others_clusters prints whose they are when they are not ours.
others_clusters() {
	local owner
	! ip link show "$BRIDGE" >/dev/null 2>&1 || owner=$(owner_of_network)
	[[ ! ${owner+set} || $owner == "$E2E_DIR" ]] || say "${owner:-someone else}"
}

# missing names what this machine lacks, one per line.
missing() {
	local program owner cgroups=/sys/fs/cgroup
	[[ $(uname -s) == Linux ]] || say "Linux (this is $(uname -s))"
	[[ $(id -u) == 0 ]] || say 'root (nodes make namespaces, mounts and cgroups)'
	[[ -e /sys/fs/cgroup ]] || say 'cgroups at /sys/fs/cgroup'
	[[ -e /sys/fs/cgroup/memory || -e /sys/fs/cgroup/cgroup.controllers ]] || say 'the memory cgroup controller'
	[[ ! -r /proc/meminfo || $(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo) -gt 4000000 || -e $E2E_DIR/clusters/hub/init.pid ]] || say '4 GB of free memory'
	for program in runc:runc iptables:iptables nft:nftables conntrack:conntrack ip:iproute2 nsenter:util-linux pgrep:procps apt-get:apt dpkg-deb:dpkg; do
		type -P "${program%:*}" >/dev/null || say "${program%:*} (apt-get install ${program#*:})"
	done
	owner=$(others_clusters)
	[[ ! $owner ]] || say "room beside the clusters of $owner (E2E_DIR=$owner hack/e2e.sh down)"
	[[ $(id -u) == 0 && $(uname -s) == Linux ]] || return 0
	if ! unshare --net --mount --pid --fork true 2>/dev/null; then
		say 'the right to make namespaces (unshare fails)'
	elif type -P ip nft >/dev/null && ! unshare --net bash -c 'ip link add name a0 type bridge && ip link add name b0 type veth peer name c0 && nft add table ip d' 2>/dev/null; then
		say 'bridges, veth pairs or nftables in network namespaces (the kernel refuses them)'
	fi
	[[ -e $cgroups/cgroup.controllers ]] || cgroups+=/memory
	{ mkdir "$cgroups/$BRIDGE-$$" && rmdir "$cgroups/$BRIDGE-$$"; } 2>/dev/null || say 'the right to make cgroups'
}

# check installs the few packages that a node needs, where it can, and says precisely what this machine does not allow.
check() {
	local lacks
	lacks=$(missing)
	if [[ $lacks == *apt-get\ install* && $(id -u) == 0 && $(type -P apt-get) ]]; then
		mkdir -p "$E2E_DIR"
		{ apt-get install -y --no-install-recommends runc iptables nftables conntrack iproute2 procps ||
			{ apt-get update && apt-get install -y --no-install-recommends runc iptables nftables conntrack iproute2 procps; }; } >"$E2E_DIR/apt.log" 2>&1 </dev/null ||
			say "  apt-get install failed: the log is $E2E_DIR/apt.log"
		lacks=$(missing)
	fi
	[[ ! $lacks ]] || cannot "this machine cannot run real nodes; it lacks:"$'\n'"$(sed 's/^/  /' <<<"$lacks")"
}

# network lays one bridge, and routes from this machine to the Services and Pods of each cluster.
network() {
	! ip link show "$BRIDGE" >/dev/null 2>&1 || return 0
	ip link add "$BRIDGE" type bridge
	ip link set "$BRIDGE" alias "$E2E_DIR"
	ip address add "$NET.1/24" dev "$BRIDGE"
	ip link set "$BRIDGE" up
}

cgroups() { # <machine>
	local controller
	if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
		for controller in cpuset cpu io memory pids hugetlb; do
			echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
		done
		mkdir -p "/sys/fs/cgroup/$BRIDGE/$1"
		for controller in cpuset cpu io memory pids hugetlb; do
			echo "+$controller" >"/sys/fs/cgroup/$BRIDGE/cgroup.subtree_control" 2>/dev/null || true
			echo "+$controller" >"/sys/fs/cgroup/$BRIDGE/$1/cgroup.subtree_control" 2>/dev/null || true
		done
		return
	fi
	for controller in /sys/fs/cgroup/*/; do
		mkdir -p "$controller$BRIDGE/$1" 2>/dev/null || true
	done
}

# hold starts the process that holds the namespaces, and puts the machine on the bridge.
hold() { # <machine>
	local parent pid other
	mkdir -p "$DIR"/{config,logs,pids,images,kwok,containerd} "$E2E_DIR/kubeconfigs"
	mkdir -p -m 755 "$DIR"/{log,kubelet} /var/lib/kubelet
	mkdir -p -m 1777 "$E2E_DIR/clusters/${1%.*}/volumes" /tmp/hostpath_pv
	rm -f "$DIR/init.ready" "$DIR"/pids/* "$DIR"/kwok/clusters/*/pids/*
	setsid unshare --net --mount --pid --fork "$ROOT/hack/e2e-node.sh" "$1" init >"$DIR/logs/init.log" 2>&1 </dev/null &
	parent=$!
	disown
	for ((try = 0; try < 100; try++)); do
		pid=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null || true)
		[[ -e $DIR/init.ready && $pid ]] && break
		sleep 0.1
	done
	[[ -e $DIR/init.ready ]] || { cat "$DIR/logs/init.log" >&2 && die "the namespaces of $1 did not come up"; }
	say "${pid// /}" >"$DIR/init.pid"
	ip link add "$LINK" type veth peer name eth0 netns "${pid// /}"
	ip link set "$LINK" master "$BRIDGE" up
	enter "$1" ip address add "$ADDRESS/24" dev eth0
	enter "$1" ip link set eth0 up
	# For its own processes: kube-proxy sends what goes there elsewhere, but first there has to be a way.
	enter "$1" ip route replace "$SERVICES" dev eth0
	[[ $1 == *.* ]] || ip route replace "$SERVICES" via "$ADDRESS"
	ip route replace "$PODS" via "$ADDRESS"
	for other in $(machines); do
		[[ $other != "$1" && ${other%.*} == "${1%.*}" ]] || continue
		machine_of "$other"
		nsenter --target "${pid// /}" --net -- ip route replace "$PODS" via "$ADDRESS"
	done
	machine_of "$1"
}

bring_up() { # <machine>
	machine_of "$1"
	cgroups "$1"
	if [[ ! $(init_of "$1") ]]; then hold "$1"; fi
	[[ $1 == *.* ]] || node "$1" control-plane
	node "$1" start
}

# install puts Flotilla on the hub with dist/install.yaml, in which only the name of the image is another, and registers the
# members.
install() {
	local FLEET_DIR=$E2E_DIR
	fleet_dirs
	sed -E 's|(image:) \S*flotilla-manager:\S*|\1 localhost/flotilla-manager:e2e|' "$ROOT/dist/install.yaml" | kube hub apply --server-side --force-conflicts -f -
	# The tag stays, the content may not.
	if [[ -e $E2E_DIR/manager.sum && $(<"$E2E_DIR/manager.sum") != "$(cksum <"$BIN/manager")" ]]; then
		kube hub rollout restart deployment -n flotilla-system flotilla-manager
	fi
	cksum <"$BIN/manager" >"$E2E_DIR/manager.sum"
	kube hub rollout status deployment -n flotilla-system flotilla-manager --timeout 300s
	FLEET_DIR=$E2E_DIR "$ROOT/hack/register.sh" members
	kube hub wait memberclusters.flotilla.dev "${CLUSTERS[@]:1}" --for=create --timeout=300s
	kube hub wait memberclusters.flotilla.dev --all --for=condition=Ready --timeout=300s
}

up() {
	local i name names pids=() failed='' BEGAN=$SECONDS
	check
	mapfile -t names < <(machines)
	mkdir -p "$E2E_DIR/logs"
	"$ROOT/hack/build.sh" "${BINARIES[@]}" || cannot 'building what nodes consist of, see above'
	[[ -x $BIN/manager ]] || die 'there is no bin/manager: make build'
	title "Starting a hub and $((${#CLUSTERS[@]} - 1)) members with real nodes in ${E2E_DIR/#"$ROOT/"/}"
	"$ROOT/hack/e2e-images.sh" >"$E2E_DIR/logs/images.log" 2>&1 &
	watch_job 'images' $! || { tail -n 15 "$E2E_DIR/logs/images.log" >&2 && cannot "packing the images: the log is $E2E_DIR/logs/images.log"; }
	network
	for name in "${names[@]}"; do
		bring_up "$name" >"$E2E_DIR/logs/$name.log" 2>&1 &
		pids+=($!)
	done
	for i in "${!names[@]}"; do
		name=${names[i]}
		watch_job "$name" "${pids[i]}" tail -n 1 "$E2E_DIR/logs/$name.log" && continue
		failed+=" $name"
		tail -n 15 "$E2E_DIR/logs/$name.log" | sed 's/^/      /' >&2
	done
	[[ ! $failed ]] || cannot "did not start:$failed; logs are in $E2E_DIR/logs and $E2E_DIR/clusters/<name>/logs. 'make e2e-down' clears up"
	if [[ ${E2E_BARE:-} ]]; then
		say "  the bare clusters are up after $((SECONDS - BEGAN)) s; kubeconfigs are in ${E2E_DIR/#"$ROOT/"/}/kubeconfigs"
		return
	fi
	install >"$E2E_DIR/logs/install.log" 2>&1 &
	watch_job 'the manager as a Pod, and the registrations' $! tail -n 1 "$E2E_DIR/logs/install.log" ||
		{ tail -n 15 "$E2E_DIR/logs/install.log" >&2 && die "installing: the log is $E2E_DIR/logs/install.log"; }
	say "  everything is up after $((SECONDS - BEGAN)) s; kubeconfigs are in ${E2E_DIR/#"$ROOT/"/}/kubeconfigs"
}

# down ends each machine with its first process, which takes all others, mounts and links with it.
down() {
	local name pid ours=''
	[[ $(owner_of_network) != "$E2E_DIR" ]] || ours=1
	for name in "${CLUSTERS[@]}" "$E2E_DIR"/clusters/*.*; do
		name=${name##*/}
		[[ $name != '*.*' ]] || continue
		machine_of "$name"
		pid=$(init_of "$name")
		if [[ $pid ]]; then
			kill -KILL "$pid"
			await_exit "$pid" 30 || die "process $pid of $name does not end"
		fi
		# It goes with its namespace, at a moment of the kernel's choice.
		[[ ! $ours ]] || ip link delete "$LINK" 2>/dev/null || true
		[[ ! $ours ]] || find /sys/fs/cgroup -depth -path "*/$BRIDGE/$name*" -type d -exec rmdir {} + 2>/dev/null || true
		rm -rf "$DIR" "$E2E_DIR/kubeconfigs/$name"
	done
	if [[ $ours ]]; then
		find /sys/fs/cgroup -depth -path "*/$BRIDGE" -type d -exec rmdir {} + 2>/dev/null || true
		ip link delete "$BRIDGE"
		rmdir /var/lib/kubelet 2>/dev/null || true
	fi
	rm -rf "$E2E_DIR"/{registrations,logs,cache,kwok,manager.sum}
	say "  ${GREEN}✓${RESET} the clusters in ${E2E_DIR/#"$ROOT/"/} are gone"
}

# processes_of lists the processes of a Pod.
processes_of() { # <machine> <uid of the Pod>
	find /sys/fs/cgroup -path "*/$BRIDGE/$1/*pod$2/*" -name cgroup.procs -exec cat {} + | sort -u
}

# in_network_of runs a command in the network of a Pod.
in_network_of() { # <machine> <uid of the Pod> <command...>
	local pid
	pid=$(processes_of "$1" "$2" | head -n 1)
	[[ $pid ]] || die "no process in the Pod with UID $2 of $1"
	nsenter --target "$pid" --net -- "${@:3}"
}

# isolate drops every packet from and to a Pod, without an answer, as when its node is off.
isolate() { # <machine> <uid of the Pod>
	in_network_of "$@" nft -f - <<-END
		table inet isolated {
			chain in { type filter hook input priority 0; policy drop; iifname "lo" accept; }
			chain out { type filter hook output priority 0; policy drop; oifname "lo" accept; }
		}
	END
}

# kill_process kills a program of a Pod as the kernel would: from outside of it. With another signal it is stopped, or goes on.
kill_process() { # <machine> <uid of the Pod> <pattern of programs> [signal]
	local pid killed=''
	for pid in $(processes_of "$1" "$2"); do
		[[ $(readlink "/proc/$pid/exe") == */$3 ]] || continue
		kill -"${4:-KILL}" "$pid"
		killed=1
	done
	[[ $killed ]] || die "no process $3 in the Pod with UID $2 of $1"
}

# forget stops what has certain words in its command line, removes files that it may have written, and kills it.
forget() { # <machine> <uid of the Pod> <words> <file...>
	local pid file doomed=()
	for pid in $(processes_of "$1" "$2"); do
		# What the scripts call ends at any moment.
		[[ $(tr '\0' ' ' <"/proc/$pid/cmdline") != *"$3"* ]] || doomed+=("$pid")
	done 2>/dev/null
	[[ ${doomed[*]} ]] || die "no process with $3 in the Pod with UID $2 of $1"
	kill -STOP "${doomed[@]}"
	for file in "${@:4}"; do rm -f "/proc/${doomed[0]}/root$file"; done
	kill -KILL "${doomed[@]}"
}

# disk makes a small filesystem that a volume of a cluster can be, leaves so much room on it, or lets so many write to it.
disk() { # <cluster> <name> make|drop|room|mode [KiB or mode]
	local at used
	machine_of "$1"
	at=$DIR/disks/$2
	case $3 in
	make) mkdir -p "$at" && enter "$1" mount -t tmpfs -o size=64m,mode=0777 tmpfs "$at" ;;
	drop) enter "$1" umount -l "$at" ;;
	room) used=$(enter "$1" df --output=used "$at" | tail -n 1) && enter "$1" mount -o "remount,size=$((used + $4))k" "$at" ;;
	mode) enter "$1" chmod "$4" "$at" ;;
	esac
}

images() { enter "$1" "$BIN/ctr" -a /run/containerd/containerd.sock -n k8s.io images "${@:2}" 2>/dev/null; }

# others prints the addresses of the other clusters. To cut a cluster off is to lose silently what it sends there; this
# machine goes on seeing all of them.
others() { # <cluster>
	local name
	for name in "${CLUSTERS[@]}"; do
		[[ $name == "$1" ]] || { machine_of "$name" && say "$ADDRESS"; }
	done
}

case ${1:-} in
up | down | check) "$1" ;;
stop | start) node "$2" "$1" ;;
reboot) node "$2" stop && node "$2" start ;;
cut) others "$2" | while read -r address; do enter "$2" ip route replace blackhole "$address/32"; done ;;
join) others "$2" | while read -r address; do enter "$2" ip route delete blackhole "$address/32"; done ;;
kill) kill_process "${@:2}" ;;
forget) forget "${@:2}" ;;
isolate) isolate "${@:2}" ;;
rejoin) in_network_of "$2" "$3" nft delete table inet isolated ;;
unplug) machine_of "$2" && ip link set "$LINK" down ;;
plug) machine_of "$2" && ip link set "$LINK" up ;;
api) machine_of "$2" && enter "$2" kill -"$3" "$(<"$DIR/kwok/clusters/$2/pids/kube-apiserver.pid")" ;;
disk) disk "${@:2}" ;;
image) images "$2" import "$3" ;;
tag) images "$2" tag "$3" "$4" ;;
*) die 'usage: hack/e2e.sh up|down|check|stop|start|reboot|cut|join|unplug|plug|kill|forget|isolate|rejoin|api|disk|image|tag' ;;
esac
