// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/events"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
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
	record := m.normal
	if len(found.left) > 0 || found.unknown || found.claim {
		record = m.warning
		note += "; not removed: " + found.String()
	}
	record("ClusterOffboarded", "Offboard", text.Cut(text.Line(note), events.NoteLimit))
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

const (
	// confirmRetry is the delay before the absence of a registration is checked again, after an error or when the
	// registration is back and no watch has shown it yet.
	confirmRetry = 10 * time.Second
	// confirmTimeout is the deadline of the check.
	confirmTimeout = 15 * time.Second
)

// onLost publishes that the registration has vanished, or that it is back.
func (m *member) onLost(lostAt time.Time) {
	was := m.lostAt
	m.lostAt = lostAt
	if lostAt.IsZero() {
		m.update(func(p *publication) { p.lost = verdict.Verdict{} })
		m.recorded.lost = false
		if !was.IsZero() {
			m.log.Info("Registration is back")
		}
		return
	}
	message := fmt.Sprintf("Secret %s, the registration, is gone: nothing is written to the member, which is offboarded unless the Secret returns within %s",
		m.current.Secret, m.pool.cfg.Grace)
	if m.credential == nil {
		message += "; the claim and the finalizers in it remain then, because the credential is gone, too"
	}
	m.update(func(p *publication) { p.lost = verdict.Good(flotillav1.ReasonRegistrationGone, message) })
	if !was.IsZero() {
		return
	}
	if m.credential == nil {
		m.setState(clusters.StateInvalid, flotillav1.ReasonRegistrationGone, message)
	}
	m.log.Info("Registration is gone", "grace", m.pool.cfg.Grace.String())
	if !m.recorded.lost {
		m.warning(flotillav1.ReasonRegistrationGone, "Offboard", message)
	}
}

// confirmDue returns when the grace period ends, or when its end is checked again.
func (m *member) confirmDue() time.Time {
	due := m.lostAt.Add(m.pool.cfg.Grace)
	if again := m.due[jobConfirm]; again.After(due) {
		return again
	}
	return due
}

// confirmLost offboards the member if the hub confirms that the registration is gone. The watches may be behind, for
// example during an outage of the hub, and offboarding cannot be undone.
func (m *member) confirmLost(ctx context.Context) {
	secret := m.current.Secret
	m.do(ctx, jobConfirm, confirmTimeout, func(ctx context.Context, _ access) func(*session) {
		found, err := m.pool.registered(ctx, secret, m.name)
		return func(*session) {
			m.due[jobConfirm] = m.pool.cfg.Clock.Now().Add(confirmRetry)
			switch {
			case err != nil:
				m.log.Error(err, "Confirming that the registration is gone")
			case !found && m.leaveIfLost():
				signal(m.changed)
			}
		}
	})
}

// drainInterval is how often the copies in a draining member are counted.
const drainInterval = 2 * time.Second

// drained returns condition Drained of a member. The verdict is empty when the copies cannot be counted now.
func (p *Pool) drained(ctx context.Context, m *member, s clusters.Snapshot) verdict.Verdict {
	left, counted := 0, false
	if c := m.cluster(); c != nil && s.Visible() && len(s.Off) == 0 {
		var err error
		if left, err = p.countCopies(ctx, c.GetCache()); err != nil {
			p.log.Error(err, "Counting the copies in a member that is drained", "cluster", string(m.name))
		}
		counted = err == nil
	}
	switch {
	case !counted:
		return verdict.Verdict{}
	case left == 0:
		return verdict.Good(flotillav1.ReasonAllRemoved, "No copy of this hub is left in the member")
	}
	message := fmt.Sprintf("%d copies of this hub are still in the member", left)
	if left == 1 {
		message = "1 copy of this hub is still in the member"
	}
	if !s.Writable() {
		message += "; nothing is removed while it is paused or frozen"
	}
	return verdict.Verdict{Status: metav1.ConditionFalse, Reason: flotillav1.ReasonDraining, Message: message}
}

// countCopies counts the objects that this hub has placed in a member.
func (p *Pool) countCopies(ctx context.Context, from client.Reader) (int, error) {
	count := 0
	for _, list := range []client.ObjectList{&flotillav1.RedisList{}, &flotillav1.NodePoolList{}} {
		// The objects are owned by the cache; they are only read.
		if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("listing %T: %w", list, err)
		}
		err := apimeta.EachListItem(list, func(item runtime.Object) error {
			object, err := apimeta.Accessor(item)
			if err == nil && p.isCopy(object) {
				count++
			}
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("reading %T: %w", list, err)
		}
	}
	return count, nil
}

// isCopy reports whether an object in a member was placed by this hub. Both annotations must match.
func (p *Pool) isCopy(object metav1.Object) bool {
	annotations := object.GetAnnotations()
	return annotations[flotillav1.AnnotationHub] == p.cfg.HubID &&
		annotations[flotillav1.AnnotationPlacedFrom] == object.GetNamespace()+"/"+object.GetName()
}

// reportDrained sets condition Drained while the member is draining, and removes it otherwise.
func reportDrained(status *flotillav1.MemberClusterStatus, wanted publication, set func(string, verdict.Verdict)) {
	switch {
	case !wanted.snapshot.Draining:
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionDrained)
	case wanted.drained.Status != "":
		set(flotillav1.ConditionDrained, wanted.drained)
	case apimeta.FindStatusCondition(status.Conditions, flotillav1.ConditionDrained) == nil:
		set(flotillav1.ConditionDrained, verdict.Verdict{
			Status: metav1.ConditionUnknown, Reason: flotillav1.ReasonDraining, Message: "The member cannot be seen, and so nobody knows whether copies are left",
		})
	}
}
