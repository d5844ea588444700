// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

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
