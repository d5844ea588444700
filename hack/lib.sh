# shellcheck shell=bash
# What the scripts in this folder share. Source it; it expects `set -euo pipefail`.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BIN=$ROOT/bin

# The scripts name their kubeconfig at each call. What the user's shell has set must not leak in.
unset KUBECONFIG
export KUBERC=off GOFLAGS='' GOWORK=off

if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
	TTY=1 BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' GREEN=$'\e[32m' CYAN=$'\e[36m' RESET=$'\e[0m'
else
	TTY='' BOLD='' DIM='' RED='' GREEN='' CYAN='' RESET=''
fi

# Background jobs of a script do not get Ctrl-C.
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

say() { printf '%s\n' "$*"; }
title() { printf '\n%s%s%s\n' "$BOLD" "$*" "$RESET"; }
die() {
	printf '%serror:%s %s\n' "$RED" "$RESET" "$*" >&2
	exit 1
}

# show prints a command the way a person in the root of the repository would type it, then runs it.
show() {
	local word line='$'
	for word in "$@"; do
		word=${word/#"$ROOT/"/}
		[[ $word =~ ^[A-Za-z0-9_./=:,@%+-]+$ ]] && line+=" $word" || line+=" '$word'"
	done
	printf '\n%s%s%s\n' "$CYAN" "$line" "$RESET"
	"$@" || true
}

# watch_job <what> <pid> <command...> waits for a background job of this shell and keeps saying that it is alive:
# in place on a terminal, a line every 20 seconds elsewhere. The command, if any, prints a few words on how far it is.
# BEGAN says since when to count for jobs that were started together.
watch_job() {
	local what=$1 pid=$2 began=${BEGAN:-$SECONDS} next=$((SECONDS + 20)) note
	[[ $TTY ]] && next=$SECONDS
	shift 2
	while kill -0 "$pid" 2>/dev/null; do
		if ((SECONDS >= next)); then
			note=$("$@" 2>/dev/null | tail -n 1 || true)
			if [[ $TTY ]]; then
				printf '\r\e[K  %s %s… %d s %s%s' "$what" "$DIM" $((SECONDS - began)) "${note:0:70}" "$RESET"
				next=$((SECONDS + 1))
			else
				say "  … $what: $((SECONDS - began)) s ${note:0:100}"
				next=$((SECONDS + 20))
			fi
		fi
		sleep 0.1
	done
	[[ $TTY ]] && printf '\r\e[K'
	if ! wait "$pid"; then
		say "  ${RED}✗${RESET} $what (after $((SECONDS - began)) s)"
		return 1
	fi
	say "  ${GREEN}✓${RESET} $what ${DIM}($((SECONDS - began)) s)${RESET}"
}

# fleet_dirs sets the paths of the fleet in FLEET_DIR and makes the folder.
fleet_dirs() {
	umask 077
	mkdir -p "${FLEET_DIR:=$ROOT/.fleet}"
	FLEET_DIR=$(cd "$FLEET_DIR" && pwd -P)
	KUBECONFIGS=$FLEET_DIR/kubeconfigs
	export KWOK_WORKDIR=$FLEET_DIR/kwok KUBECACHEDIR=$FLEET_DIR/cache
	[[ $KWOK_WORKDIR =~ ^[A-Za-z0-9_./+-]+$ ]] && return
	# kwokctl cuts such a path at the first blank: give it a link to the folder instead.
	KWOK_WORKDIR=/tmp/flotilla-$(cksum <<<"$FLEET_DIR" | cut -d ' ' -f 1)
	[[ -L $KWOK_WORKDIR ]] || ln -s "$FLEET_DIR/kwok" "$KWOK_WORKDIR"
	[[ $(readlink "$KWOK_WORKDIR") == "$FLEET_DIR/kwok" ]] || die "$KWOK_WORKDIR is in the way"
}

# kube <cluster> <args...> runs kubectl against a cluster of the fleet.
kube() {
	local cluster=$1
	shift
	"$BIN/kubectl" --kubeconfig "$KUBECONFIGS/$cluster" "$@"
}

# members lists the members of the fleet in the order of their numbers.
members() {
	local file
	for file in "$KUBECONFIGS"/member-*; do
		[[ -e $file ]] && say "${file##*/}"
	done | sort -t- -k2n
}

# runs_with <pid> <text> says whether the process is alive and has the text in its command line.
# A pid file alone proves nothing: after a reboot the number may belong to something else.
runs_with() {
	local args
	kill -0 "$1" 2>/dev/null || return 1
	if [[ -r /proc/$1/cmdline ]]; then
		args=$(tr '\0' ' ' <"/proc/$1/cmdline")
	else
		args=$(ps -o args= -p "$1" 2>/dev/null || true)
	fi
	[[ $args == *"$2"* ]]
}

# await_exit <pid> <seconds> waits until a process is gone.
await_exit() {
	local end=$((SECONDS + $2))
	while kill -0 "$1" 2>/dev/null; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}

# kwokctl_config prints what kwokctl needs to know of a cluster. The ports are those of etcd's peers, etcd, the API server,
# the controller-manager, the scheduler and kwok, in this order.
kwokctl_config() { # <address to listen on> <ports> <components to leave out> <address to advertise> <range of Services> <more options>
	local ports
	read -ra ports <<<"$2"
	cat <<-EOF
		apiVersion: config.kwok.x-k8s.io/v1alpha1
		kind: KwokctlConfiguration
		options:
		  runtime: binary
		  bindAddress: $1
		  etcdPeerPort: ${ports[0]}
		  etcdPort: ${ports[1]}
		  kubeApiserverPort: ${ports[2]}
		  kubeControllerManagerPort: ${ports[3]}
		  kubeSchedulerPort: ${ports[4]}
		  kwokControllerPort: ${ports[5]}
		  etcdBinary: "$BIN/etcd"
		  kubeApiserverBinary: "$BIN/kube-apiserver"
		  kubeControllerManagerBinary: "$BIN/kube-controller-manager"
		  kubeSchedulerBinary: "$BIN/kube-scheduler"
		  kwokControllerBinary: "$BIN/kwok"
		  kubectlBinary: "$BIN/kubectl"
		  disable: [$3]
		  $6
		componentsPatches:
		- name: kube-apiserver
		  extraArgs:
		  - {key: advertise-address, value: $4}
		  - {key: service-cluster-ip-range, value: $5}
		  - {key: kubelet-preferred-address-types, value: InternalIP}
		  # As some distributions have it: who owns what it creates needs a right for that.
		  - {key: enable-admission-plugins, value: OwnerReferencesPermissionEnforcement}
		# Alone in their clusters, they need no election, and losing one ends them while the API server is stopped.
		- name: kube-scheduler
		  extraArgs:
		  - {key: leader-elect, value: "false"}
		- name: kube-controller-manager
		  extraArgs:
		  - {key: leader-elect, value: "false"}
		  - {key: enable-hostpath-provisioner, value: "true"}
	EOF
}

# kubeconfig_of_kwok writes the kubeconfig of a cluster in place: one context, named after the cluster, with all the data
# inside. The address is kwokctl's own unless one is given.
kubeconfig_of_kwok() { # <cluster> <file> [address]
	(
		umask 077
		"$BIN/kwokctl" get kubeconfig --name "$1" | sed -e "s/kwok-$1\$/$1/" ${3:+-e "s#https://127.0.0.1:#https://$3:#"} >"$2.kwok"
		"$BIN/kubectl" --kubeconfig "$2.kwok" config view --raw --flatten >"$2.new"
		rm "$2.kwok"
		mv "$2.new" "$2"
	)
}

# storage_class is that of volumes below /tmp/hostpath_pv, which the controller-manager makes.
storage_class() {
	cat <<-EOF
		apiVersion: storage.k8s.io/v1
		kind: StorageClass
		metadata:
		  name: standard
		  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
		provisioner: kubernetes.io/host-path
		allowVolumeExpansion: true
	EOF
}
