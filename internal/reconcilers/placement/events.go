// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Actions and reasons of events that are not also reasons of conditions.
const (
	actionPlace  = "Place"
	actionRemove = "Remove"

	eventPlaced        = "Placed"
	eventDriftReverted = "DriftReverted"
	eventRemoved       = "Removed"
	eventReleased      = "Released"
	eventOffboarded    = "Offboarded"
	eventRetried       = "RolloutRetried"
)

// say records an event on the hub object. The reference has no resourceVersion, so that a series is folded into one
// event. The related MemberCluster separates the events of different members, which would otherwise be folded as well.
func (r *Reconciler) say(hubObject fleet.Object, eventType, reason, action, clusterName, note string) {
	regarding := &corev1.ObjectReference{
		APIVersion: flotillav1.GroupVersion.String(),
		Kind:       r.Kind.Name,
		Namespace:  hubObject.GetNamespace(),
		Name:       hubObject.GetName(),
		UID:        hubObject.GetUID(),
	}
	related := &corev1.ObjectReference{APIVersion: flotillav1.GroupVersion.String(), Kind: flotillav1.KindMemberCluster, Name: clusterName}
	r.Events.Eventf(regarding, related, eventType, reason, action, "%s: %s", clusterName, note)
}

func (p *copyPass) sayPlaced() {
	note := fmt.Sprintf("Placed generation %d", p.hubObject.GetGeneration())
	if p.revision != "" {
		note = "Placed " + p.revision + ", because the present generation was taken back"
	}
	p.say(p.hubObject, corev1.EventTypeNormal, eventPlaced, actionPlace, p.name, note)
}

// sayChanged records a change of the spec. A change of annotations alone is not recorded.
func (p *copyPass) sayChanged(before fleet.Object, want fleet.Effective, drifted bool) {
	switch {
	case drifted:
		note := "Reverted fields that were changed in the cluster"
		p.say(p.hubObject, corev1.EventTypeNormal, eventDriftReverted, actionPlace, p.name, note)
	case before.GetAnnotations()[flotillav1.AnnotationSpecHash] != want.Hash:
		p.sayPlaced()
	}
}

// sayLeft records which members are no longer in the record, and why.
func (r *Reconciler) sayLeft(hubObject fleet.Object, plan hubPlan) {
	if len(plan.removed) > 0 {
		r.say(hubObject, corev1.EventTypeNormal, eventRemoved, actionRemove, text.Names(plan.removed), "No copy is left")
	}
	if len(plan.releasedNames) > 0 {
		r.say(hubObject, corev1.EventTypeWarning, eventReleased, actionRemove, text.Names(plan.releasedNames), "The copy was released and may still exist")
	}
	if len(plan.offboarded) > 0 {
		r.say(hubObject, corev1.EventTypeWarning, eventOffboarded, actionRemove, text.Names(plan.offboarded), "The cluster is no longer registered; its copy stays there")
	}
}
