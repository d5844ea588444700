// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// releaseTimeout is what offboarding spends on a member that may be gone.
	releaseTimeout = 30 * time.Second
	// releasePage is how many objects are read at once.
	releasePage = 500
	// namedLeft is how many of the objects that keep a finalizer are named.
	namedLeft = 5
)

// finalizers are ours on objects in members. Once nobody reconciles there, they would only keep the objects from being
// deleted.
var finalizers = []string{flotillav1.FinalizerNodePool, flotillav1.FinalizerRedis}

// leftovers is what offboarding has and has not taken back from a member.
type leftovers struct {
	// released counts the objects that were freed of our finalizers.
	released int
	// left names those that keep one; unknown says that there may be others.
	left    []string
	unknown bool
	// claim says that the claim stays.
	claim bool
}

// offboard ends work with a member whose registration is gone. Every object in the member stays; the finalizers and the
// claim go, where it can be written.
func (m *member) offboard(ctx context.Context) {
	if m.offboarding {
		return
	}
	m.offboarding = true
	s, known := m.session, m.snapshot().UID != ""
	writable := s != nil && s.claimed && m.health.away == "" && !m.held()
	m.setState(StateGone, flotillav1.ReasonConnected, "The registration is gone")
	if s != nil {
		s.disengage()
	}
	m.log.Info("Offboarding member", "writable", writable)
	m.spawn(func() func() {
		ctx, cancel := context.WithTimeout(asOwn(ctx), releaseTimeout)
		defer cancel()
		var found leftovers
		switch {
		case writable:
			found = m.release(ctx, s)
		case s != nil:
			found = lastSeen(ctx, s)
		default:
			// A member that was never let in has nothing of ours.
			found = leftovers{unknown: known, claim: known}
		}
		return func() {
			m.tellOffboarded(found)
			m.disconnect()
			m.over = true
			m.update(func(p *publication) { p.gone = true })
		}
	})
}

// release takes back what is ours in a member. The claim goes last: while it is held, no other hub works there.
func (m *member) release(ctx context.Context, s *session) leftovers {
	found, err := releaseFinalizers(ctx, s.api.client)
	if err != nil {
		m.log.Info("Removing the finalizers from a member failed", "error", err.Error())
	}
	if err := m.pool.claim().release(ctx, s.api.client); err != nil {
		m.log.Info("Releasing the claim on a member failed", "error", err.Error())
		found.claim = true
	}
	return found
}

// releaseFinalizers removes our finalizers from all objects of our kinds. It goes on after an object that cannot be
// changed, and ends when the member does not answer.
func releaseFinalizers(ctx context.Context, member client.Client) (leftovers, error) {
	var found leftovers
	var errs []error
	for _, list := range finalizedKinds() {
		for {
			if err := member.List(ctx, list, client.Limit(releasePage), client.Continue(list.GetContinue())); err != nil {
				found.unknown = true
				errs = append(errs, fmt.Errorf("listing %T: %w", list, err))
				break
			}
			for _, object := range finalized(list) {
				released, err := releaseObject(ctx, member, object)
				if err != nil {
					found.left = append(found.left, describeObject(object))
					errs = append(errs, err)
				}
				if released {
					found.released++
				}
			}
			if list.GetContinue() == "" {
				break
			}
		}
	}
	return found, errors.Join(errs...)
}

// releaseObject removes our finalizers from one object. The list has other writers, so the patch carries the
// resourceVersion.
func releaseObject(ctx context.Context, member client.Client, object client.Object) (bool, error) {
	released, fresh := false, true
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !fresh {
			if err := member.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
		}
		fresh = false
		before, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T is not an object", object)
		}
		changed := false
		for _, finalizer := range finalizers {
			changed = controllerutil.RemoveFinalizer(object, finalizer) || changed
		}
		if !changed {
			return nil
		}
		err := member.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		released = err == nil
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("removing the finalizers of %s: %w", describeObject(object), err)
	}
	return released, nil
}

// lastSeen names what stays in a member that cannot be written, as far as its caches show it.
func lastSeen(ctx context.Context, s *session) leftovers {
	found := leftovers{claim: s.claimed}
	for _, list := range finalizedKinds() {
		if err := s.cluster.GetCache().List(ctx, list); err != nil {
			found.unknown = true
			continue
		}
		for _, object := range finalized(list) {
			found.left = append(found.left, describeObject(object))
		}
	}
	return found
}

// finalizedKinds returns empty lists of the kinds that carry finalizers of ours.
func finalizedKinds() []client.ObjectList {
	return []client.ObjectList{&flotillav1.RedisList{}, &flotillav1.NodePoolList{}}
}

// finalized returns the objects of a list that carry a finalizer of ours.
func finalized(list client.ObjectList) []client.Object {
	var objects []client.Object
	// The lists are of our own types, which hold nothing but objects.
	_ = apimeta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if ok && slices.ContainsFunc(finalizers, func(f string) bool { return controllerutil.ContainsFinalizer(object, f) }) {
			objects = append(objects, object)
		}
		return nil
	})
	return objects
}

// describeObject names an object for people.
func describeObject(object client.Object) string {
	if _, ok := object.(*flotillav1.NodePool); ok {
		return "NodePool " + object.GetName()
	}
	return "Redis " + object.GetNamespace() + "/" + object.GetName()
}

// tellOffboarded says what was taken back from the member and what was not.
func (m *member) tellOffboarded(found leftovers) {
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
	tell("ClusterOffboarded", "Offboard", text.Cut(text.Line(note), noteLimit))
}

// String lists what stays.
func (l leftovers) String() string {
	var parts []string
	if l.claim {
		parts = append(parts, fmt.Sprintf("the claim, Lease %s/%s", claimNamespace, claimName))
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
