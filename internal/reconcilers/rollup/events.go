// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Actions and reasons of events that are not also reasons of conditions.
const (
	actionRollUp      = "RollUp"
	eventClusterReady = "ClusterReady"
)

// news is the content of an event about one or more clusters.
type news struct {
	eventType, reason, note string
	names                   []string
}

// change is the entry of a cluster as of the last events, and as published now.
type change struct {
	// before is nil if the cluster is new.
	before *flotillav1.ClusterStatus
	after  flotillav1.ClusterStatus
}

// changes returns the clusters whose entries may have changed, whether they are listed or not. before is the published
// list, and omitted the number of clusters that it omits: entering or leaving a list of limited length is no change.
func changes(clusters []*cluster, before []flotillav1.ClusterStatus, omitted int32) []change {
	listed := map[string]*flotillav1.ClusterStatus{}
	// Ready clusters are omitted first. After a restart nothing but the list is known about the others.
	readyListed := false
	for i := range before {
		listed[before[i].Name] = &before[i]
		readyListed = readyListed || before[i].Ready == metav1.ConditionTrue
	}
	var all []change
	for _, seen := range clusters {
		known := change{before: cmp.Or(seen.said, listed[seen.Name]), after: *seen.lastEntry()}
		if known.before == nil && omitted > 0 {
			if !readyListed {
				continue
			}
			known.before = &flotillav1.ClusterStatus{Name: seen.Name, Ready: metav1.ConditionTrue}
		}
		all = append(all, known)
	}
	return all
}

// transitions returns the events to record. Only a change of ready is an event, and a new cluster counts as not ready.
// Placement records why a copy cannot be created, and the conditions show why it is not ready yet.
func transitions(changes []change) []news {
	var all []news
	for _, change := range changes {
		entry, known := change.after, metav1.ConditionFalse
		if change.before != nil {
			known = change.before.Ready
		}
		quiet := entry.Reason == flotillav1.ReasonPending || entry.Reason == flotillav1.ReasonRemoving || entry.Reason == flotillav1.ReasonRemovalHeld
		starting := change.before == nil && entry.Reason == flotillav1.ReasonClusterNotReady
		if known == entry.Ready || quiet || starting {
			continue
		}
		item := news{eventType: corev1.EventTypeWarning, reason: entry.Reason, note: entry.Message}
		if entry.Ready == metav1.ConditionTrue {
			item = news{eventType: corev1.EventTypeNormal, reason: eventClusterReady, note: "Ready"}
		}
		i := slices.IndexFunc(all, func(n news) bool { return n.reason == item.reason && n.note == item.note })
		if i < 0 {
			i = len(all)
			all = append(all, item)
		}
		all[i].names = append(all[i].names, entry.Name)
	}
	return all
}

// sayTransitions records the changes of a status write as events. The names of the clusters come first.
func (r *Reconciler) sayTransitions(before, after fleet.Object, observed state) {
	// The reference has no resourceVersion, so that a series is folded into one event.
	regarding := &corev1.ObjectReference{
		APIVersion: flotillav1.GroupVersion.String(),
		Kind:       r.Kind.Name,
		Namespace:  after.GetNamespace(),
		Name:       after.GetName(),
		UID:        after.GetUID(),
	}
	unsaid := observed.view.unsaidClusters()
	changes := changes(unsaid, r.Kind.Entries(before), before.GetFleetStatus().ClustersOmitted)
	observed.view.said(unsaid)
	for _, item := range transitions(changes) {
		// Events with the same regarding and related objects are folded into the first one.
		related := &corev1.ObjectReference{APIVersion: flotillav1.GroupVersion.String(), Kind: flotillav1.KindMemberCluster, Name: item.names[0]}
		r.Events.Eventf(regarding, related, item.eventType, item.reason, actionRollUp, "%s: %s", text.Names(item.names), item.note)
	}
	// These events describe the hub object itself, so they have no related cluster.
	own := []string{flotillav1.ReasonPlacementInvalid, flotillav1.ReasonNoClusterSelected, flotillav1.ReasonNoPlacement}
	ready := apimeta.FindStatusCondition(*after.GetConditions(), flotillav1.ConditionReady)
	was := apimeta.FindStatusCondition(*before.GetConditions(), flotillav1.ConditionReady)
	if ready != nil && slices.Contains(own, ready.Reason) && (was == nil || was.Reason != ready.Reason) {
		r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, ready.Reason, actionRollUp, "%s", ready.Message)
	}
	progressing := apimeta.FindStatusCondition(*after.GetConditions(), flotillav1.ConditionProgressing)
	if progressing != nil && progressing.Reason == flotillav1.ReasonRolloutHalted && progressingReason(before) != progressing.Reason {
		back := fleet.Command("rollout undo", r.Kind.Name, client.ObjectKeyFromObject(after))
		r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, progressing.Reason, actionRollUp, "%s; go back with: %s", progressing.Message, back)
	}
	if held := apimeta.FindStatusCondition(*after.GetConditions(), flotillav1.ConditionRemovalHeld); held != nil && !fleet.RemovalHeld(before) {
		r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, flotillav1.ReasonRemovalHeld, actionRollUp, "%s", held.Message)
	}
}
