// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// alarming are reasons of Ready that are recorded as warnings.
var alarming = []string{
	flotillav1.ReasonNameConflict, flotillav1.ReasonAuthLost, flotillav1.ReasonSecretMissing, flotillav1.ReasonPreviousRejected, flotillav1.ReasonConfigRejected,
	flotillav1.ReasonForbidden, flotillav1.ReasonChildRejected, flotillav1.ReasonPrimaryVolumeEmpty, flotillav1.ReasonTopologyUnknown,
}

// ills are reasons of Degraded and StorageReady that do not resolve by themselves.
var ills = []string{
	flotillav1.ReasonUnschedulable, flotillav1.ReasonImageUnavailable, flotillav1.ReasonContainerNotCreated, flotillav1.ReasonCrashing,
	flotillav1.ReasonOOMKilled, flotillav1.ReasonDiskFull, flotillav1.ReasonSnapshotFailed, flotillav1.ReasonPodNotCreated, flotillav1.ReasonNodeLost, flotillav1.ReasonTerminationStuck,
	flotillav1.ReasonVolumeLost, flotillav1.ReasonVolumeDeleting, flotillav1.ReasonExpansionRefused, flotillav1.ReasonExpansionInfeasible,
	flotillav1.ReasonProxyDown,
}

// deeds returns the events for what the pass has done. setUp reports whether all children of this spec existed before.
func deeds(s *state, done outcome, setUp bool) []clusters.Event {
	var events []clusters.Event
	if done.secretCreated {
		events = append(events, event(corev1.EventTypeNormal, "PasswordGenerated", "Create", nil, "Generated the password in Secret %s", secretName(s.redis.Name)))
	}
	for _, c := range done.created {
		// The ConfigMap of another spec, or of another manager, did not exist before.
		if setUp && (c.kind != "ConfigMap" || slices.Contains(configMapsOf(s.templateVolumes()), c.desired.GetName())) {
			events = append(events, event(corev1.EventTypeNormal, c.kind+"Recreated", "Heal", c.desired, "%s %s was missing and is created again", c.kind, c.desired.GetName()))
		}
	}
	for _, c := range done.moved {
		events = append(events, event(corev1.EventTypeWarning, "ServiceAddressChanged", "Heal", c.desired, "Service %s has a new cluster IP because %s is in use", c.desired.GetName(), c.address))
	}
	for _, claim := range done.grown {
		related := &corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		}
		events = append(events, event(corev1.EventTypeNormal, "VolumeExpanding", "Grow", related, "PersistentVolumeClaim %s grows from %s to %s",
			claim.Name, claim.Spec.Resources.Requests.Storage(), &s.spec.Storage.Size))
	}
	for _, p := range done.replaced {
		events = append(events, event(corev1.EventTypeNormal, "PodReplaced", "Update", podReference(s.redis, p.name), "Pod %s is replaced to apply the current spec", p.name))
	}
	return events
}

// transitions returns the events for the differences from the previous status.
func transitions(s *state, before, after flotillav1.RedisStatus) []clusters.Event {
	var events []clusters.Event
	if before.Selector == "" && after.Selector != "" {
		events = append(events, event(corev1.EventTypeNormal, "Created", "Create", nil, "Created the objects of a Redis of %d replicas", after.DesiredReplicas))
	}
	if before.Selector != "" && before.DesiredReplicas != after.DesiredReplicas {
		reason := "ScaledUp"
		if after.DesiredReplicas < before.DesiredReplicas {
			reason = "ScaledDown"
		}
		events = append(events, event(corev1.EventTypeNormal, reason, "Scale", nil, "Replicas changed from %d to %d", before.DesiredReplicas, after.DesiredReplicas))
	}
	for _, name := range recreatedPods(s, before) {
		events = append(events, event(corev1.EventTypeNormal, "PodRecreated", "Heal", podReference(s.redis, name), "Pod %s was deleted and is created again", name))
	}
	events = append(events, sentinelEvents(s, before, after)...)
	return append(events, conditionEvents(s, before, after)...)
}

func conditionEvents(s *state, before, after flotillav1.RedisStatus) []clusters.Event {
	var events []clusters.Event
	was := func(conditionType string) metav1.Condition { return conditionOf(before, conditionType) }
	now := func(conditionType string) metav1.Condition { return conditionOf(after, conditionType) }
	turned := func(conditionType string, status metav1.ConditionStatus) bool {
		return was(conditionType).Status != status && now(conditionType).Status == status
	}

	ready := now(flotillav1.ConditionReady)
	if slices.Contains(alarming, ready.Reason) && was(flotillav1.ConditionReady).Reason != ready.Reason {
		events = append(events, event(corev1.EventTypeWarning, ready.Reason, "Reconcile", nil, "%s", ready.Message))
	}
	if turned(flotillav1.ConditionReady, metav1.ConditionTrue) {
		events = append(events, event(corev1.EventTypeNormal, "Ready", "Reconcile", nil, "%s", ready.Message))
	}
	if was(flotillav1.ConditionPrimaryAvailable).Status == metav1.ConditionTrue && *s.spec.Replicas > 0 && turned(flotillav1.ConditionPrimaryAvailable, metav1.ConditionFalse) {
		primary := now(flotillav1.ConditionPrimaryAvailable)
		events = append(events, event(corev1.EventTypeWarning, primary.Reason, "Observe", podReference(s.redis, after.Primary), "%s", primary.Message))
	}
	events = append(events, troubleEvents(s, was(flotillav1.ConditionDegraded), now(flotillav1.ConditionDegraded), was(flotillav1.ConditionStorageReady), now(flotillav1.ConditionStorageReady))...)
	if turned(flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue) {
		events = append(events, event(corev1.EventTypeWarning, flotillav1.ConditionRolloutBlocked, "Update", nil, "%s", now(flotillav1.ConditionRolloutBlocked).Message))
	}
	if turned(flotillav1.ConditionObjectsAltered, metav1.ConditionTrue) {
		events = append(events, event(corev1.EventTypeWarning, flotillav1.ReasonFieldDropped, "Reconcile", nil, "%s", now(flotillav1.ConditionObjectsAltered).Message))
	}
	rolling := func(c metav1.Condition) bool { return c.Reason == flotillav1.ReasonRollingUpdate }
	applied, appliedBefore := now(flotillav1.ConditionConfigApplied), was(flotillav1.ConditionConfigApplied)
	switch {
	case rolling(applied) && !rolling(appliedBefore):
		events = append(events, event(corev1.EventTypeNormal, "RolloutStarted", "Update", nil, "%s", applied.Message))
	case rolling(appliedBefore) && applied.Status == metav1.ConditionTrue:
		events = append(events, event(corev1.EventTypeNormal, "RolloutCompleted", "Update", nil, "%s", applied.Message))
	}
	if applied.Reason == flotillav1.ReasonTwoPasswords && appliedBefore.Reason != applied.Reason {
		events = append(events, event(corev1.EventTypeNormal, applied.Reason, "Update", nil, "%s", applied.Message))
	}
	if turned(flotillav1.ConditionPaused, metav1.ConditionTrue) {
		events = append(events, event(corev1.EventTypeNormal, "Paused", "Pause", nil, "%s", now(flotillav1.ConditionPaused).Message))
	}
	if was(flotillav1.ConditionPaused).Status == metav1.ConditionTrue && turned(flotillav1.ConditionPaused, metav1.ConditionFalse) {
		events = append(events, event(corev1.EventTypeNormal, "Resumed", "Resume", nil, "%s", now(flotillav1.ConditionPaused).Message))
	}
	return events
}

// troubleEvents returns events for new problems of a Pod or a volume, and for volumes that have grown.
func troubleEvents(s *state, degradedBefore, degradedNow, storageBefore, storageNow metav1.Condition) []clusters.Event {
	var events []clusters.Event
	if slices.Contains(ills, degradedNow.Reason) && degradedBefore.Reason != degradedNow.Reason {
		var related client.Object
		if ill := worstPod(s); ill != nil {
			related = podReference(s.redis, ill.name)
		}
		events = append(events, event(corev1.EventTypeWarning, degradedNow.Reason, "Observe", related, "%s", degradedNow.Message))
	}
	if slices.Contains(ills, storageNow.Reason) && storageBefore.Reason != storageNow.Reason {
		events = append(events, event(corev1.EventTypeWarning, storageNow.Reason, "Observe", nil, "%s", storageNow.Message))
	}
	if storageBefore.Reason == flotillav1.ReasonExpanding && storageNow.Status == metav1.ConditionTrue {
		events = append(events, event(corev1.EventTypeNormal, "VolumesExpanded", "Grow", nil, "Every volume has grown to %s", &s.spec.Storage.Size))
	}
	return events
}

// recreatedPods returns the Pods that were Ready when the status was written and that were deleted since: they are
// gone, are terminating, or have a younger successor. Rolling updates have their own events.
func recreatedPods(s *state, before flotillav1.RedisStatus) []string {
	if s.statefulSet == nil || conditionOf(before, flotillav1.ConditionConfigApplied).Status != metav1.ConditionTrue {
		return nil
	}
	ready := conditionOf(before, flotillav1.ConditionReady)
	var names []string
	for _, member := range before.Members {
		ordinal, ok := ordinalOf(member.Name, s.redis.Name)
		if !ok || !member.Ready || ordinal >= *s.spec.Replicas {
			continue
		}
		seen, found := s.podAt(ordinal)
		younger := found && ready.Status == metav1.ConditionTrue && seen.created.After(ready.LastTransitionTime.Time)
		if !found || seen.deleting || younger {
			names = append(names, member.Name)
		}
	}
	return names
}

func conditionOf(status flotillav1.RedisStatus, conditionType string) metav1.Condition {
	if condition := apimeta.FindStatusCondition(status.Conditions, conditionType); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}

func podReference(redis *flotillav1.Redis, name string) client.Object {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: redis.Namespace, Name: name},
	}
}

// removedEvent lists the data that was removed with a Redis.
func removedEvent(names []string) clusters.Event {
	return event(corev1.EventTypeNormal, "DataRemoved", "Delete", nil, "Removed as storage.retentionPolicy says: %s", strings.Join(names, ", "))
}

func event(eventType, reason, action string, related client.Object, format string, args ...any) clusters.Event {
	return clusters.Event{Type: eventType, Reason: reason, Action: action, Note: fmt.Sprintf(format, args...), Related: related}
}
