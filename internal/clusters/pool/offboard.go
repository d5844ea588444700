// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/events"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// namedLeft is the maximum number of objects to name that keep a finalizer.
const namedLeft = 5

// finalizers are Flotilla's finalizers on objects in members. Without a reconciler they would only block deletion.
var finalizers = []string{flotillav1.FinalizerNodePool, flotillav1.FinalizerRedis}

// leftovers is what offboarding removed from a member, and what remains.
type leftovers struct {
	// released is the number of objects whose finalizers were removed.
	released int
	// left names the objects that keep a finalizer; unknown means that there may be more.
	left    []string
	unknown bool
	// claim means that the claim remains.
	claim bool
}

// offboard ends work with a member whose registration is gone. Every object in the member is kept; the finalizers and
// the claim are removed if the member is writable.
func (m *member) offboard(ctx context.Context) {
	known := m.snapshot().UID != ""
	connected, claimed, to := m.session != nil, false, access{}
	if connected {
		claimed, to = m.session.claimed, m.session.access
	}
	writable := connected && m.health.away == "" && !m.held()
	m.running[jobOffboard] = true
	m.log.Info("Offboarding member", "writable", writable)
	m.spawn(func() func() {
		var found leftovers
		switch {
		case writable:
			found = m.release(asOwn(ctx), to, claimed)
		case connected:
			found = lastSeen(ctx, to, claimed)
		default:
			// A member that was never identified was never written.
			found = leftovers{unknown: known, claim: known}
		}
		return func() {
			m.reportOffboarded(found)
			m.disconnect()
			m.over = true
			m.update(func(p *publication) { p.gone = true })
		}
	})
}

// onLeaving stops all other work with a member that is to be offboarded.
func (m *member) onLeaving() {
	m.leaves = true
	m.setState(clusters.StateGone, flotillav1.ReasonConnected, "The registration is gone")
	if m.session != nil {
		m.session.disengage()
	}
}

// lastSeen returns what remains in a member that cannot be written, according to its caches.
func lastSeen(ctx context.Context, a access, claimed bool) leftovers {
	found := leftovers{claim: claimed}
	for _, list := range finalizedKinds() {
		if err := a.cluster.GetCache().List(ctx, list); err != nil {
			found.unknown = true
			continue
		}
		for _, object := range finalized(list) {
			found.left = append(found.left, describeObject(object))
		}
	}
	return found
}

// finalizedKinds returns empty lists of the kinds that carry Flotilla's finalizers.
func finalizedKinds() []client.ObjectList {
	return []client.ObjectList{&flotillav1.RedisList{}, &flotillav1.NodePoolList{}}
}

// finalized returns the objects of a list that carry one of Flotilla's finalizers.
func finalized(list client.ObjectList) []client.Object {
	var objects []client.Object
	// The error is always nil, because these lists contain only objects.
	_ = apimeta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if ok && slices.ContainsFunc(finalizers, func(f string) bool { return controllerutil.ContainsFinalizer(object, f) }) {
			objects = append(objects, object)
		}
		return nil
	})
	return objects
}

// describeObject returns the kind and name of an object, for people.
func describeObject(object client.Object) string {
	if _, ok := object.(*flotillav1.NodePool); ok {
		return "NodePool " + object.GetName()
	}
	return "Redis " + object.GetNamespace() + "/" + object.GetName()
}

// reportOffboarded records an event with what was removed from the member and what was not.
func (m *member) reportOffboarded(found leftovers) {
	note := fmt.Sprintf("Offboarded cluster %q; its objects stay", m.name)
	switch found.released {
	case 0:
	case 1:
		note += "; the finalizer of 1 object was removed"
	default:
		note += fmt.Sprintf("; the finalizers of %d objects were removed", found.released)
	}
	tell := m.normal
	if len(found.left) > 0 || found.unknown || found.claim {
		tell = m.warning
		note += "; not removed: " + found.String()
	}
	tell("ClusterOffboarded", "Offboard", text.Cut(text.Line(note), events.NoteLimit))
}

// String lists what remains.
func (l leftovers) String() string {
	var parts []string
	if l.claim {
		parts = append(parts, fmt.Sprintf("the claim, Lease %s/%s", preflight.ClaimNamespace, preflight.ClaimName))
	}
	if len(l.left) > 0 {
		slices.Sort(l.left)
		parts = append(parts, "the finalizers of "+text.List(l.left, namedLeft))
	}
	if l.unknown {
		parts = append(parts, "finalizers that could not be looked for")
	}
	return text.List(parts, len(parts))
}
