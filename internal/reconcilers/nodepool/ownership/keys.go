// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Kind is what a key names on a node.
type Kind string

// The kinds of keys.
const (
	Label      Kind = "label"
	Annotation Kind = "annotation"
	Taint      Kind = "taint"
)

// Key names one thing on a node that a pool can own. Taints are identified by key and effect, as in Kubernetes.
type Key struct {
	Kind Kind
	Name string
	// Effect is empty unless the key is a taint.
	Effect corev1.TaintEffect
}

// String returns the form used in status.ownedKeys and in conditions.
func (k Key) String() string {
	return k.join(":")
}

// Words returns the form used in events and plans.
func (k Key) Words() string {
	return k.join(" ")
}

func (k Key) join(separator string) string {
	if k.Kind == Taint {
		return string(k.Kind) + separator + k.Name + ":" + string(k.Effect)
	}
	return string(k.Kind) + separator + k.Name
}

// noExecute reports whether putting the key on a node evicts Pods.
func (k Key) noExecute() bool {
	return k.Kind == Taint && k.Effect == corev1.TaintEffectNoExecute
}

// names reports whether the taint is the one that the key names.
func (k Key) names(taint corev1.Taint) bool {
	return k.Kind == Taint && k.Name == taint.Key && k.Effect == taint.Effect
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Effect, b.Effect))
}

// desiredKey is a key with the value that a pool wants it to have.
type desiredKey struct {
	key   Key
	value string
	// once is set for taints that are put on only when a node joins.
	once bool
}

// desiredKeys lists what a spec wants of each node: labels and annotations sorted by key, taints in the order of the spec.
func desiredKeys(spec *flotillav1.NodePoolSpec) []desiredKey {
	desired := make([]desiredKey, 0, len(spec.Labels)+len(spec.Annotations)+len(spec.Taints))
	for _, name := range slices.Sorted(maps.Keys(spec.Labels)) {
		desired = append(desired, desiredKey{key: Key{Kind: Label, Name: name}, value: string(spec.Labels[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Annotations)) {
		desired = append(desired, desiredKey{key: Key{Kind: Annotation, Name: name}, value: string(spec.Annotations[name])})
	}
	for _, taint := range spec.Taints {
		desired = append(desired, desiredKey{
			key:   Key{Kind: Taint, Name: taint.Key, Effect: taint.Effect},
			value: taint.Value,
			once:  taint.Propagation == flotillav1.TaintPropagationOnInitialization,
		})
	}
	return desired
}

// These mirror the rules of the CRD. They are also applied to records, which any kubelet can write.
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

// mayOwn reports whether the spec of the pool could contain the key. No other key is ever touched for a pool.
func mayOwn(pool *flotillav1.NodePool, k Key) bool {
	if strings.IndexByte(k.Name, '/') > maxPrefix || !qualifiedName.MatchString(k.Name) {
		return false
	}
	switch k.Kind {
	case Label:
		if k.Name == controlPlaneRole || k.Name == masterRole || labelPrefixes.MatchString(k.Name) {
			return false
		}
		if strings.HasPrefix(k.Name, flotillav1.NodeRolePrefix) {
			return k.Name == flotillav1.NodeRolePrefix+pool.Name
		}
		return !systemPrefix.MatchString(k.Name) || restrictionPrefix.MatchString(k.Name)
	case Annotation:
		return !annotationPrefix.MatchString(k.Name)
	case Taint:
		switch k.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return false
		}
		if k.Name == controlPlaneRole || k.Name == masterRole {
			return pool.Spec.AllowControlPlane
		}
		return len(k.Name) <= maxTaintKey && !taintPrefixes.MatchString(k.Name)
	}
	return false
}

// validValue reports whether a spec could give the key this value.
func validValue(k Key, value string) bool {
	if k.Kind == Annotation {
		return len(value) <= maxAnnotationValue
	}
	return len(value) <= maxLabelValue && labelValue.MatchString(value)
}
