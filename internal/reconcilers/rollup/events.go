// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// Actions and reasons of events that are not reasons of conditions as well.
const (
	actionRollUp      = "RollUp"
	eventClusterReady = "ClusterReady"
)

// news is what is said about one or more clusters at once.
type news struct {
	eventType, reason, note string
	names                   []string
}

// change is the entry of a cluster as the last events were about it, and as it is published now.
type change struct {
	// before is nil when the cluster is new.
	before *flotillav1.ClusterStatus
	after  flotillav1.ClusterStatus
}

// changes returns what may be news about clusters, listed or not. before is the list that was published, and omitted is how
// many clusters it left out: what leaves or enters a list of limited length has not changed for that.
func changes(clusters []*cluster, before []flotillav1.ClusterStatus, omitted int32) []change {
	listed := map[string]*flotillav1.ClusterStatus{}
	// Those that are ready are left out first. After a restart the list is all that is known of the others.
	readyListed := false
	for i := range before {
		listed[before[i].Name] = &before[i]
		readyListed = readyListed || before[i].Ready == metav1.ConditionTrue
	}
	var all []change
	for _, seen := range clusters {
		known := change{before: cmp.Or(seen.said, listed[seen.Name]), after: *seen.told()}
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

// transitions returns the news. Only a change of ready is news, and everything starts by not being so: why a copy cannot be
// made is told by placement, and why it is not ready yet by its conditions.
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

// sayTransitions records what a status write has changed, the clusters' names first.
func (r *Reconciler) sayTransitions(before, after fleet.Object, observed state) {
	// The reference has no resourceVersion, so that a series folds.
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
		// Events that agree in regarding and related fold into the first one.
		related := &corev1.ObjectReference{APIVersion: flotillav1.GroupVersion.String(), Kind: "MemberCluster", Name: item.names[0]}
		r.Events.Eventf(regarding, related, item.eventType, item.reason, actionRollUp, "%s: %s", fleet.Join(item.names), item.note)
	}
	// These are about the hub object itself; no cluster stands for them.
	own := []string{flotillav1.ReasonPlacementInvalid, flotillav1.ReasonNoClusterSelected, flotillav1.ReasonNoPlacement}
	ready := apimeta.FindStatusCondition(*after.GetConditions(), flotillav1.ConditionReady)
	was := apimeta.FindStatusCondition(*before.GetConditions(), flotillav1.ConditionReady)
	if ready != nil && slices.Contains(own, ready.Reason) && (was == nil || was.Reason != ready.Reason) {
		r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, ready.Reason, actionRollUp, "%s", ready.Message)
	}
	progressing := apimeta.FindStatusCondition(*after.GetConditions(), flotillav1.ConditionProgressing)
	if progressing != nil && progressing.Reason == flotillav1.ReasonRolloutHalted && progressingReason(before) != progressing.Reason {
		r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, progressing.Reason, actionRollUp, "%s", progressing.Message)
	}
	if held := apimeta.FindStatusCondition(*after.GetConditions(), flotillav1.ConditionRemovalHeld); held != nil && !fleet.RemovalHeld(before) {
		r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, flotillav1.ReasonRemovalHeld, actionRollUp, "%s", held.Message)
	}
}
