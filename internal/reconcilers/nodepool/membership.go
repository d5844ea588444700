// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// stance is what a pool may do on one node.
type stance int

const (
	// stanceAside has nothing to do with the node.
	stanceAside stance = iota
	// stanceActive writes what the spec says.
	stanceActive
	// stanceFrozen writes nothing and keeps what the record lists from others.
	stanceFrozen
	// stanceLeaving makes the node as it was.
	stanceLeaving
	// stanceReleasing forgets the node and leaves its keys.
	stanceReleasing
)

// view is a pool as the planner sees it. It keeps pointers into the cache and changes nothing there.
type view struct {
	name     string
	pool     *flotillav1.NodePool
	selector labels.Selector
	// wishes are what the spec wants; refused are the keys in it that no spec should have.
	wishes  []wish
	refused []string
	// owned is the authority to write and remove: status.ownedKeys.
	owned sets.Set[string]
	// held is set while nothing may be written on behalf of the pool.
	held bool
	// armed is set when the finalizer is there and status lists all keys of the spec, so that what is written now is
	// cleaned later. Writing waits for all of it: half of it would be two patches, and a gap between two taints.
	armed bool
	// cleaning is set when the pool is being deleted and its status says that nodes are to be cleaned.
	cleaning bool
}

// viewsOf returns the pools in order of precedence: weight, highest first, then name.
func viewsOf(pools []flotillav1.NodePool) []*view {
	views := make([]*view, 0, len(pools))
	for i := range pools {
		views = append(views, viewOf(&pools[i]))
	}
	sortViews(views)
	return views
}

func sortViews(views []*view) {
	slices.SortFunc(views, func(a, b *view) int {
		return cmp.Or(cmp.Compare(b.pool.Spec.Weight, a.pool.Spec.Weight), cmp.Compare(a.name, b.name))
	})
}

func viewOf(pool *flotillav1.NodePool) *view {
	v := matcherOf(pool)
	v.owned = sets.New(pool.Status.OwnedKeys...)
	v.held = isHeld(pool)
	v.armed = controllerutil.ContainsFinalizer(pool, flotillav1.FinalizerNodePool)
	v.cleaning = isCleaning(pool)
	for _, w := range wishesOf(&pool.Spec) {
		if !mayOwn(v.name, &pool.Spec, w.key) || !mayHold(w.key, w.value) {
			v.refused = append(v.refused, w.key.String())
			continue
		}
		v.wishes = append(v.wishes, w)
		v.armed = v.armed && v.owned.Has(w.key.String())
	}
	return v
}

// matcherOf returns a view that can only tell which nodes match, at little cost.
func matcherOf(pool *flotillav1.NodePool) *view {
	return &view{name: pool.Name, pool: pool, selector: selectorOf(pool)}
}

// isHeld reports whether the pool may change nothing. Deletion beats paused and dryRun: on the hub the spec of a copy that
// is being deleted can no longer be changed, so that nothing would end it.
func isHeld(pool *flotillav1.NodePool) bool {
	return pool.DeletionTimestamp.IsZero() && (pool.Spec.Paused || pool.Spec.DryRun)
}

// isCleaning reports whether the pool controller has found the deletion to be meant.
func isCleaning(pool *flotillav1.NodePool) bool {
	if pool.DeletionTimestamp.IsZero() {
		return false
	}
	condition := apimeta.FindStatusCondition(pool.Status.Conditions, flotillav1.ConditionProgressing)
	return condition != nil && condition.Reason == flotillav1.ReasonCleaning
}

// supposing returns the view as it would be with all authority given, for plans that are counted and not applied.
func (v *view) supposing() *view {
	supposed := *v
	supposed.held, supposed.armed = false, true
	supposed.owned = v.owned.Clone()
	for _, w := range v.wishes {
		supposed.owned.Insert(w.key.String())
	}
	return &supposed
}

// matches reports whether the node belongs to the pool.
func (v *view) matches(node *corev1.Node) bool {
	if isControlPlane(node) && !v.pool.Spec.AllowControlPlane {
		return false
	}
	return v.selector.Matches(labels.Set(node.Labels))
}

// stanceOn says what the pool may do on the node.
func (v *view) stanceOn(node *corev1.Node, recorded bool) stance {
	deleting := !v.pool.DeletionTimestamp.IsZero()
	switch {
	case deleting && !recorded:
		return stanceAside
	case v.held, deleting && !v.cleaning:
		return stanceFrozen
	case deleting && v.pool.Spec.DeletionPolicy == flotillav1.NodeDeletionPolicyOrphan:
		return stanceReleasing
	case deleting:
		return stanceLeaving
	case v.matches(node) && !v.armed:
		return stanceFrozen
	case v.matches(node):
		return stanceActive
	case recorded:
		return stanceLeaving
	}
	return stanceAside
}

// authorised reports whether the pool may remove or restore a key that a record says it holds.
func (v *view) authorised(k key) bool {
	if !mayOwn(v.name, &v.pool.Spec, k) {
		return false
	}
	return v.owned.Has(k.String()) || slices.ContainsFunc(v.wishes, func(w wish) bool { return w.key == k })
}

// overrides reports whether the pool replaces values that it did not write.
func (v *view) overrides() bool {
	return v.pool.Spec.ConflictPolicy == flotillav1.NodeConflictPolicyOverride
}

// selectors are the latest that were compiled, by the *NodeSelector that a cache has of a pool and nobody changes: a change
// of one node asks those of all pools.
var selectors = lru.New(1 << 14)

// selectorOf returns which nodes belong to the pool. A selector that cannot be read, or an empty one, matches none.
func selectorOf(pool *flotillav1.NodePool) labels.Selector {
	spec := pool.Spec.NodeSelector
	if spec == nil {
		return roleSelector(pool.Name)
	}
	if known, found := selectors.Get(spec); found {
		return known.(labels.Selector)
	}
	selector := compileSelector(spec)
	selectors.Add(spec, selector)
	return selector
}

// roleSelector is that of a pool without one: the nodes that have its role label.
func roleSelector(poolName string) labels.Selector {
	return compileSelector(&flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{
		Key: flotillav1.NodeRolePrefix + poolName, Operator: metav1.LabelSelectorOpExists,
	}}})
}

func compileSelector(spec *flotillav1.NodeSelector) labels.Selector {
	if len(spec.MatchLabels) == 0 && len(spec.MatchExpressions) == 0 {
		return labels.Nothing()
	}
	converted := &metav1.LabelSelector{MatchLabels: make(map[string]string, len(spec.MatchLabels))}
	for k, v := range spec.MatchLabels {
		converted.MatchLabels[k] = string(v)
	}
	for _, r := range spec.MatchExpressions {
		converted.MatchExpressions = append(converted.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	selector, err := metav1.LabelSelectorAsSelector(converted)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func isControlPlane(node *corev1.Node) bool {
	_, controlPlane := node.Labels[controlPlaneRole]
	_, master := node.Labels[masterRole]
	return controlPlane || master
}

func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return node.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
