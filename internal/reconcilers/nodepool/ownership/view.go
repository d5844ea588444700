// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// mode is what a pool does on one node.
type mode int

const (
	// modeNone has nothing to do with the node.
	modeNone mode = iota
	// modeApply writes what the spec says.
	modeApply
	// modeKeep writes nothing and reserves the keys that the record lists.
	modeKeep
	// modeRestore restores what others wrote.
	modeRestore
	// modeForget drops the entry and keeps the keys on the node.
	modeForget
)

// View is a pool prepared for planning. It points to objects of the cache and does not modify them.
type View struct {
	Matcher
	// desired is what the spec wants; refused are its keys that no spec may contain.
	desired []desiredKey
	refused []string
	// owned are status.ownedKeys, the authority to write and remove.
	owned sets.Set[string]
	// readOnly is set while nothing may be written for the pool.
	readOnly bool
	// armed is set when the pool has its finalizer and status lists all keys of the spec, so that everything written now
	// is cleaned up later. Writing waits until then: half a change would be two patches, with a gap between two taints.
	armed bool
	// cleaning is set when the pool is being deleted and the pool controller has confirmed it.
	cleaning bool
}

// Views returns the views of pools in order of precedence: highest weight first, then by name.
func Views(pools []flotillav1.NodePool) []*View {
	views := make([]*View, 0, len(pools))
	for i := range pools {
		views = append(views, NewView(&pools[i]))
	}
	sortViews(views)
	return views
}

func sortViews(views []*View) {
	slices.SortFunc(views, func(a, b *View) int {
		return cmp.Or(cmp.Compare(b.Pool.Spec.Weight, a.Pool.Spec.Weight), cmp.Compare(a.Pool.Name, b.Pool.Name))
	})
}

// NewView returns the view of one pool.
func NewView(pool *flotillav1.NodePool) *View {
	v := &View{
		Matcher:  NewMatcher(pool),
		owned:    sets.New(pool.Status.OwnedKeys...),
		readOnly: ReadOnly(pool),
		armed:    slices.Contains(pool.Finalizers, flotillav1.FinalizerNodePool),
		cleaning: Cleaning(pool),
	}
	for _, d := range desiredKeys(&pool.Spec) {
		if !mayOwn(pool, d.key) || !validValue(d.key, d.value) {
			v.refused = append(v.refused, d.key.String())
			continue
		}
		v.desired = append(v.desired, d)
		v.armed = v.armed && v.owned.Has(d.key.String())
	}
	return v
}

// ReadOnly reports whether the pool may change nothing because it is paused or a dry run. Deletion overrides both: the
// spec of a copy that the hub deletes can no longer be changed, so the deletion would never finish.
func ReadOnly(pool *flotillav1.NodePool) bool {
	return pool.DeletionTimestamp.IsZero() && (pool.Spec.Paused || pool.Spec.DryRun)
}

// Cleaning reports whether the pool is being deleted and the pool controller has confirmed it in status.
func Cleaning(pool *flotillav1.NodePool) bool {
	if pool.DeletionTimestamp.IsZero() {
		return false
	}
	condition := apimeta.FindStatusCondition(pool.Status.Conditions, flotillav1.ConditionProgressing)
	return condition != nil && condition.Reason == flotillav1.ReasonCleaning
}

// withAuthority returns a copy of the view that may write all its keys, for plans that are counted and not applied.
func (v *View) withAuthority() *View {
	granted := *v
	granted.readOnly, granted.armed = false, true
	granted.owned = v.owned.Clone()
	for _, d := range v.desired {
		granted.owned.Insert(d.key.String())
	}
	return &granted
}

// modeOn returns what the pool does on the node; recorded says whether the record has an entry of the pool.
func (v *View) modeOn(node *corev1.Node, recorded bool) mode {
	deleting := !v.Pool.DeletionTimestamp.IsZero()
	switch {
	case deleting && !recorded:
		return modeNone
	case v.readOnly, deleting && !v.cleaning:
		return modeKeep
	case deleting && v.Pool.Spec.DeletionPolicy == flotillav1.NodeDeletionPolicyOrphan:
		return modeForget
	case deleting:
		return modeRestore
	case v.Matches(node) && !v.armed:
		return modeKeep
	case v.Matches(node):
		return modeApply
	case recorded:
		return modeRestore
	}
	return modeNone
}

// mayRemove reports whether the pool may remove or restore a key that the record attributes to it.
func (v *View) mayRemove(k Key) bool {
	if !mayOwn(v.Pool, k) {
		return false
	}
	return v.owned.Has(k.String()) || slices.ContainsFunc(v.desired, func(d desiredKey) bool { return d.key == k })
}

// overrides reports whether the pool replaces values that it did not write.
func (v *View) overrides() bool {
	return v.Pool.Spec.ConflictPolicy == flotillav1.NodeConflictPolicyOverride
}
