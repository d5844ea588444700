#!/usr/bin/env bash
# What runs inside the namespaces of one machine of `make e2e`. hack/e2e.sh calls it there.
# Usage: hack/e2e-node.sh <machine> init|control-plane|start|stop|volumes
# Environment: E2E_DIR, and the addresses that machine_of in hack/e2e.sh sets.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
: "${E2E_DIR:?}" "${ADDRESS:?}" "${API:?}" "${SERVICES:?}" "${PODS:?}" "${ALL_PODS:?}"
CLUSTER=${1%.*} NODE=$1-node DIR=$E2E_DIR/clusters/$1
KUBECONFIG_FILE=$E2E_DIR/kubeconfigs/$CLUSTER
CGROUP=flotilla-e2e/$1
# Volumes belong to whoever the Pod runs as.
umask 022

# init gives the machine a view of its own of the folders that Kubernetes has fixed names for, then holds the namespaces.
init() {
	mount -t proc proc /proc
	mount -t tmpfs -o mode=755 tmpfs /run
	# All nodes of a cluster have the same volumes, as from a storage in the network.
	mount --bind "$E2E_DIR/clusters/$CLUSTER/volumes" /tmp/hostpath_pv
	mount --bind "$DIR/log" /var/log
	mount --bind "$DIR/kubelet" /var/lib/kubelet
	mount --make-rshared /
	ip link set lo up
	: >"$DIR/init.ready"
	exec "$BIN/pause" "$DIR"
}

# runs says whether the process of a pid file lives. Process ids are those of this namespace.
runs() { [[ -s $DIR/pids/$1 ]] && runs_with "$(<"$DIR/pids/$1")" "$DIR"; }

# launch runs a program in the background unless it runs; every command line has a path below DIR to know it by.
launch() { # <name> <command...>
	local name=$1
	shift
	runs "$name" && return
	setsid nohup "$@" >>"$DIR/logs/$name.log" 2>&1 </dev/null &
	say $! >"$DIR/pids/$name"
	disown
}

# until_true tries a command for some seconds.
until_true() { # <seconds> <command...>
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		sleep 0.2
	done
}

kubectl() { "$BIN/kubectl" --kubeconfig "$KUBECONFIG_FILE" "$@"; }

# controllers_run starts again what gave up, and says whether the controllers do their work. They wait for an API server
# only some seconds, and on a busy machine that takes longer.
controllers_run() {
	local file dead=''
	for file in "$KWOK_WORKDIR/clusters/$CLUSTER/pids"/*.pid; do
		runs_with "$(<"$file")" "$DIR" && continue
		# kwokctl takes a pid file for a process.
		rm -f "$file"
		dead=1
	done
	[[ ! $dead ]] || kwokctl start cluster --name "$CLUSTER" --wait 60s
	[[ ! $dead ]] && kubectl get serviceaccount default
}

# control_plane starts etcd, the API server, its controllers and DNS.
control_plane() {
	export KWOK_WORKDIR=$DIR/kwok PATH=$BIN:$PATH
	if [[ -e $KWOK_WORKDIR/clusters/$CLUSTER/kwok.yaml ]]; then
		kubectl get --raw /readyz --request-timeout 5s >/dev/null 2>&1 || kwokctl start cluster --name "$CLUSTER" --wait 120s
	else
		kwokctl_config 0.0.0.0 '2380 2379 6443 10257 10259 10247' kwok-controller "$ADDRESS" "$SERVICES" \
			"kubeApiserverCertSANs: [$ADDRESS, ${SERVICES%.*}.1]" >"$DIR/config/kwokctl.yaml"
		kwokctl create cluster --name "$CLUSTER" -c "$DIR/config/kwokctl.yaml" --kubeconfig "$DIR/config/kwok.kubeconfig" --wait 120s
	fi
	kubeconfig_of_kwok "$CLUSTER" "$KUBECONFIG_FILE" "$ADDRESS"
	until_true 120 kubectl get --raw /readyz
	until_true 120 controllers_run || die "the controllers of $CLUSTER do not run: logs are in $KWOK_WORKDIR/clusters/$CLUSTER/logs"
	storage_class | kubectl apply --server-side -f -
	dns
	launch volumes bash "$ROOT/hack/e2e-node.sh" "$CLUSTER" volumes "$DIR"
}

# volumes opens each volume to the user of its Pod as soon as the controller-manager has made it: host paths know no
# fsGroup, and are closed at birth.
volumes() {
	while sleep 0.2; do
		find "$DIR/volumes" -mindepth 1 -maxdepth 1 -perm 0750 -exec chmod 0777 {} +
	done
}

# dns serves the names of Services and Pods on the node's address.
dns() {
	cat >"$DIR/config/Corefile" <<-EOF
		. {
		  bind $ADDRESS
		  errors
		  kubernetes cluster.local {
		    kubeconfig $KUBECONFIG_FILE
		    ttl 2
		  }
		}
	EOF
	launch dns "$BIN/dns" -conf "$DIR/config/Corefile"
}

write_node_config() {
	: >"$DIR/config/resolv.conf"
	cat >"$DIR/config/containerd.toml" <<-EOF
		version = 3
		root = "$DIR/containerd"
		state = "/run/containerd"
		[grpc]
		  address = "/run/containerd/containerd.sock"
		[plugins.'io.containerd.cri.v1.images'.pinned_images]
		  sandbox = "localhost/pause:e2e"
		[plugins.'io.containerd.cri.v1.runtime']
		  restrict_oom_score_adj = true
		[plugins.'io.containerd.cri.v1.runtime'.cni]
		  bin_dirs = ["$BIN"]
		  conf_dir = "$DIR/config/cni"
		[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
		  runtime_type = "io.containerd.runc.v2"
		[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
		  BinaryName = "$(type -P runc)"
		  SystemdCgroup = false
	EOF
	mkdir -p "$DIR/config/cni"
	cat >"$DIR/config/cni/10-pods.conflist" <<-EOF
		{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
		   "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "$PODS"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	EOF
	cat >"$DIR/config/kubelet.yaml" <<-EOF
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		failCgroupV1: false
		failSwapOn: false
		cgroupDriver: cgroupfs
		cgroupRoot: /$CGROUP
		enforceNodeAllocatable: []
		localStorageCapacityIsolation: false
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
		authorization: {mode: AlwaysAllow}
		clusterDomain: cluster.local
		clusterDNS: [$API]
		resolvConf: $DIR/config/resolv.conf
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: 50Mi, nodefs.available: "0%", imagefs.available: "0%"}
	EOF
	cat >"$DIR/config/kube-proxy.yaml" <<-EOF
		apiVersion: kubeproxy.config.k8s.io/v1alpha1
		kind: KubeProxyConfiguration
		clientConnection: {kubeconfig: $KUBECONFIG_FILE}
		mode: nftables
		clusterCIDR: $ALL_PODS
		hostnameOverride: $NODE
		# What belongs to the whole machine is left as it is.
		conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
	EOF
}

# start brings the node up: containerd with the images, kubelet, kube-proxy.
start() {
	local image
	until_true 300 kubectl get --raw /readyz || die "the API server of $CLUSTER does not answer"
	write_node_config
	PATH=$BIN:$PATH launch containerd "$BIN/containerd" --config "$DIR/config/containerd.toml"
	until_true 60 "$BIN/ctr" -a /run/containerd/containerd.sock version || die "containerd does not answer: the log is $DIR/logs/containerd.log"
	for image in "$E2E_DIR"/images/*.tar; do
		[[ "$image" -nt $DIR/images/${image##*/} ]] || continue
		"$BIN/ctr" -a /run/containerd/containerd.sock -n k8s.io images import "$image" >/dev/null
		touch -r "$image" "$DIR/images/${image##*/}"
	done
	launch kubelet "$BIN/kubelet" --config "$DIR/config/kubelet.yaml" --kubeconfig "$KUBECONFIG_FILE" \
		--hostname-override "$NODE" --node-ip "$ADDRESS" --node-labels "topology.kubernetes.io/zone=a" --v 2
	launch kube-proxy "$BIN/kube-proxy" --config "$DIR/config/kube-proxy.yaml"
	until_true 120 kubectl wait node "$NODE" --for=condition=Ready --timeout=5s || die "node $NODE is not Ready: the log is $DIR/logs/kubelet.log"
}

# stop is a power cut: kubelet, containerd and every process of every Pod are killed, and what a reboot clears is cleared.
# The disk stays: images, volumes and the kubelet's folder.
stop() {
	local name procs pid target
	for name in kubelet containerd kube-proxy; do
		! runs "$name" || kill -KILL "$(<"$DIR/pids/$name")"
		rm -f "$DIR/pids/$name"
	done
	for pid in $(pgrep -f "^$BIN/containerd-shim-runc-v2" || true); do kill -KILL "$pid" 2>/dev/null || true; done
	for procs in $(find /sys/fs/cgroup -path "*/$CGROUP/*" -name cgroup.procs); do
		while read -r pid; do
			((pid)) && kill -KILL "$pid" 2>/dev/null || true
		done <"$procs"
	done
	until_true 30 nothing_left || die "processes of $1 do not end"
	# A mount may go together with another one.
	for target in $(awk '{print $5}' /proc/self/mountinfo | grep -E '^/(run/.+|var/lib/kubelet/.+)' | sort -r); do
		umount -l "$target" 2>/dev/null || true
	done
	find /run -mindepth 1 -delete 2>/dev/null || true
	! ip link show cni0 >/dev/null 2>&1 || ip link delete cni0
	find /sys/fs/cgroup -depth -path "*/$CGROUP/*" -type d -exec rmdir {} + 2>/dev/null || true
	conntrack -F >/dev/null 2>&1 || true
}

nothing_left() {
	! find /sys/fs/cgroup -path "*/$CGROUP/*" -name cgroup.procs -exec cat {} + | grep -q .
}

# Nothing here may ever happen to the machine itself: only below the process that holds the namespaces, or as it.
if [[ ${2:-} == init ]]; then
	(($$ == 1)) || die 'init is the first process of its namespace'
else
	[[ $(tr '\0' ' ' </proc/1/cmdline) == *" $DIR " ]] || die "not inside the namespaces of $1"
fi
case ${2:-} in
init | start | stop | volumes) "$2" ;;
control-plane) control_plane ;;
*) die 'usage: hack/e2e-node.sh <machine> init|control-plane|start|stop|volumes' ;;
esac
