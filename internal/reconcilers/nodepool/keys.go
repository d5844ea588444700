// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// kind says what a key names on a node.
type kind string

const (
	kindLabel      kind = "label"
	kindAnnotation kind = "annotation"
	kindTaint      kind = "taint"
)

// key names one thing on a node that a pool can own. Taints are told apart by key and effect, as Kubernetes does.
type key struct {
	kind   kind
	name   string
	effect corev1.TaintEffect
}

// String is the form of status.ownedKeys, of conditions and of events.
func (k key) String() string {
	if k.kind == kindTaint {
		return string(k.kind) + ":" + k.name + ":" + string(k.effect)
	}
	return string(k.kind) + ":" + k.name
}

// noExecute reports whether putting the key on a node evicts Pods.
func (k key) noExecute() bool {
	return k.kind == kindTaint && k.effect == corev1.TaintEffectNoExecute
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.effect, b.effect))
}

// wish is one key with the value that a pool wants it to have.
type wish struct {
	key   key
	value string
	// once is set for taints that are put on only when a node joins.
	once bool
}

// wishesOf lists what a spec wants of each node: labels and annotations sorted by key, taints in the order of the spec.
func wishesOf(spec *flotillav1.NodePoolSpec) []wish {
	wishes := make([]wish, 0, len(spec.Labels)+len(spec.Annotations)+len(spec.Taints))
	for _, name := range slices.Sorted(maps.Keys(spec.Labels)) {
		wishes = append(wishes, wish{key: key{kind: kindLabel, name: name}, value: string(spec.Labels[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Annotations)) {
		wishes = append(wishes, wish{key: key{kind: kindAnnotation, name: name}, value: string(spec.Annotations[name])})
	}
	for _, taint := range spec.Taints {
		wishes = append(wishes, wish{
			key:   key{kind: kindTaint, name: taint.Key, effect: taint.Effect},
			value: taint.Value,
			once:  taint.Propagation == flotillav1.TaintPropagationOnInitialization,
		})
	}
	return wishes
}

// These mirror the rules of the CRD. They hold for what comes out of a record, which any kubelet can write.
var (
	qualifiedName     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	systemPrefix      = regexp.MustCompile(`^([-a-z0-9.]+[.])?(kubernetes|k8s)[.]io/`)
	restrictionPrefix = regexp.MustCompile(`^([-a-z0-9.]+[.])?node-restriction[.]kubernetes[.]io/`)
	labelPrefixes     = regexp.MustCompile(`^([-a-z0-9.]+[.])?(karpenter[.]sh|cluster[.]x-k8s[.]io|flotilla[.]dev)/`)
	annotationPrefix  = regexp.MustCompile(`^([-a-z0-9.]+[.])?(kubernetes[.]io|k8s[.]io|karpenter[.]sh|cluster[.]x-k8s[.]io|flotilla[.]dev)/`)
	taintPrefixes     = regexp.MustCompile(`^([-a-z0-9.]+[.])?(node[.]kubernetes[.]io|node[.]cloudprovider[.]kubernetes[.]io|readiness[.]k8s[.]io|karpenter[.]sh|cluster[.]x-k8s[.]io|flotilla[.]dev)/`)
	labelValue        = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`)
)

// Limits of the CRD on values and keys.
const (
	maxLabelValue      = 63
	maxAnnotationValue = 1024
	maxTaintKey        = 253
	maxPrefix          = 253
)

// Labels and taints of control-plane nodes.
const (
	controlPlaneRole = "node-role.kubernetes.io/control-plane"
	masterRole       = "node-role.kubernetes.io/master"
)

// mayOwn reports whether the spec of a pool could hold the key, so that nothing else is ever touched on its behalf.
func mayOwn(poolName string, spec *flotillav1.NodePoolSpec, k key) bool {
	if strings.IndexByte(k.name, '/') > maxPrefix || !qualifiedName.MatchString(k.name) {
		return false
	}
	switch k.kind {
	case kindLabel:
		if k.name == controlPlaneRole || k.name == masterRole || labelPrefixes.MatchString(k.name) {
			return false
		}
		if strings.HasPrefix(k.name, flotillav1.NodeRolePrefix) {
			return k.name == flotillav1.NodeRolePrefix+poolName
		}
		return !systemPrefix.MatchString(k.name) || restrictionPrefix.MatchString(k.name)
	case kindAnnotation:
		return !annotationPrefix.MatchString(k.name)
	case kindTaint:
		switch k.effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return false
		}
		if k.name == controlPlaneRole || k.name == masterRole {
			return spec.AllowControlPlane
		}
		return len(k.name) <= maxTaintKey && !taintPrefixes.MatchString(k.name)
	}
	return false
}

// mayHold reports whether a value obeys the rules of the spec for the key's kind.
func mayHold(k key, value string) bool {
	if k.kind == kindAnnotation {
		return len(value) <= maxAnnotationValue
	}
	return len(value) <= maxLabelValue && labelValue.MatchString(value)
}
