#!/usr/bin/env bash
# Builds pinned tools and control-plane binaries from Go modules into bin/. Usage: hack/build.sh <binary>...
# The versions stand in hack/*/go.mod. A binary that is there at its version is left alone.
# With KUBEBUILDER_ASSETS set, the binaries found there are linked instead.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STAMPS=$BIN/.stamp
mkdir -p "$STAMPS"

# locate <binary> sets module (folder under hack), version, package and cold (how long a build takes with empty caches).
locate() {
	local require
	case $1 in
	kube-apiserver) module=kubernetes require=k8s.io/kubernetes cold='about 9 min' ;;
	kube-controller-manager) module=kubernetes require=k8s.io/kubernetes cold='about 3 min' ;;
	kube-scheduler | kubectl | kube-proxy) module=kubernetes require=k8s.io/kubernetes cold='about 30 s' ;;
	kubelet) module=kubernetes require=k8s.io/kubernetes cold='about 2 min' ;;
	etcd) module=etcd require=go.etcd.io/etcd/server/v3 cold='about 2 min' ;;
	kwok | kwokctl) module=kwok require=sigs.k8s.io/kwok cold='about 2 min' ;;
	containerd | containerd-shim-runc-v2 | ctr) module=node require=github.com/containerd/containerd/v2 cold='about 2 min' ;;
	bridge | loopback | host-local | portmap) module=node require=github.com/containernetworking/plugins cold='about 10 s' ;;
	dns) module=dns require=github.com/coredns/coredns cold='about 3 min' ;;
	image | pause) module=image require='' cold='about 1 s' ;;
	cyclonedx-gomod) module=publish require=github.com/CycloneDX/cyclonedx-gomod cold='about 1 min' ;;
	crane) module=publish require=github.com/google/go-containerregistry cold='about 1 min' ;;
	controller-gen) module=tools require=sigs.k8s.io/controller-tools cold='about 1 min' ;;
	crd-ref-docs) module=tools require=github.com/elastic/crd-ref-docs cold='about 1 min' ;;
	kustomize-controller) module=flux require=github.com/fluxcd/$1 cold='about 6 min' ;;
	helm) module=chart require=helm.sh/helm/v3 cold='about 1 min' ;;
	promtool | prometheus) module=prometheus require=github.com/prometheus/prometheus cold='about 4 min' ;;
	golangci-lint) module=lint require=github.com/golangci/golangci-lint/v2 cold='about 4 min' ;;
	*) die "no such binary: $1" ;;
	esac
	case $1 in
	etcd | crd-ref-docs | kustomize-controller) package=$require ;; # Their main package is the module's root.
	bridge | loopback) package=$require/plugins/main/$1 ;;
	host-local) package=$require/plugins/ipam/$1 ;;
	portmap) package=$require/plugins/meta/$1 ;;
	dns | image) package=. ;;
	pause) package=./pause ;;
	*) package=$require/cmd/$1 ;;
	esac
	# What has no version of its own is named after its source.
	[[ $package == .* ]] && source=$(cat "$ROOT/hack/$module/$package"/*.go | cksum | cut -d ' ' -f 1)
	[[ $require ]] || { version=$source && return; }
	version=$(awk -v m="$require" '$1 == "require" {$1 = ""; $0 = $0} $1 == m && $2 ~ /^v/ {print $2; exit}' "$ROOT/hack/$module/go.mod")
	[[ $version ]] || die "hack/$module/go.mod does not pin $require"
	version+=${source:+-$source}
}

# ldflags strips the binary and gives Kubernetes its version, which /version and the nodes report.
ldflags() {
	local flags='-s -w' major minor
	if [[ $module == kubernetes ]]; then
		IFS=. read -r major minor _ <<<"${version#v}"
		for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
			flags+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=$major -X $pkg.gitMinor=$minor"
		done
	fi
	say "$flags"
}

progress() {
	say "($(wc -l <"$log" | tr -d ' ') packages, now $(tail -n 1 "$log"))"
}

build() {
	local name=$1 module version package cold log out want source='' tags=''
	locate "$name"
	want="$version $(ldflags | cksum)"
	if [[ ${KUBEBUILDER_ASSETS:-} && -x $KUBEBUILDER_ASSETS/$name && ! $KUBEBUILDER_ASSETS -ef $BIN ]]; then
		ln -sfn "$(cd "$KUBEBUILDER_ASSETS" && pwd -P)/$name" "$BIN/$name"
		say "linked $KUBEBUILDER_ASSETS" >"$STAMPS/$name"
		return
	fi
	[[ -x $BIN/$name && -e $STAMPS/$name && $(<"$STAMPS/$name") == "$want" ]] && return
	log=$STAMPS/$name.log out=$BIN/.$name.$$
	[[ $TTY ]] || say "  building $name $version ($cold with cold caches)"
	[[ $module == node ]] && tags=no_btrfs,no_zfs,no_devmapper
	# Rules and drills need none of the clouds that Prometheus can find targets in, nor the pages that npm would build.
	[[ $module == prometheus ]] && tags=remove_all_sd
	# -v lists each package as it is compiled: the sign of life of a build of minutes.
	CGO_ENABLED=0 go build -C "$ROOT/hack/$module" -v -trimpath -tags "$tags" -ldflags "$(ldflags)" -o "$out" "$package" >"$log" 2>&1 &
	if ! watch_job "build $name $version ($cold with cold caches)" $! progress; then
		tail -n 20 "$log" >&2
		rm -f "$out"
		die "building $name: the log is $log"
	fi
	rm -f "$BIN/$name"
	mv "$out" "$BIN/$name"
	say "$want" >"$STAMPS/$name"
	rm -f "$log"
}

for name in "$@"; do
	build "$name"
done
