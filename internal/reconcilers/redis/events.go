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

// alarming are reasons of Ready that a person should hear of.
var alarming = []string{
	flotillav1.ReasonNameConflict, flotillav1.ReasonAuthLost, flotillav1.ReasonSecretMissing, flotillav1.ReasonPreviousRejected, flotillav1.ReasonConfigRejected,
	flotillav1.ReasonForbidden, flotillav1.ReasonChildRejected, flotillav1.ReasonPrimaryVolumeEmpty,
}

// ills are reasons of Degraded and StorageReady that do not pass by themselves.
var ills = []string{
	flotillav1.ReasonUnschedulable, flotillav1.ReasonImageUnavailable, flotillav1.ReasonContainerNotCreated, flotillav1.ReasonCrashing,
	flotillav1.ReasonOOMKilled, flotillav1.ReasonDiskFull, flotillav1.ReasonSnapshotFailed, flotillav1.ReasonPodNotCreated, flotillav1.ReasonNodeLost, flotillav1.ReasonTerminationStuck,
	flotillav1.ReasonVolumeLost, flotillav1.ReasonVolumeDeleting, flotillav1.ReasonExpansionRefused, flotillav1.ReasonExpansionInfeasible,
}

// deeds returns the events of what the pass has done. setUp says that this spec had all
// its children before.
func deeds(s *state, done outcome, setUp bool) []clusters.Event {
	var told []clusters.Event
	if done.secretCreated {
		told = append(told, event(corev1.EventTypeNormal, "PasswordGenerated", "Create", nil, "Generated the password in Secret %s", secretName(s.redis.Name)))
	}
	for _, c := range done.created {
		// The ConfigMap of another spec, or of another manager, was not there before.
		if setUp && (c.kind != "ConfigMap" || slices.Contains(configMapsOf(s.templateVolumes()), c.desired.GetName())) {
			told = append(told, event(corev1.EventTypeNormal, c.kind+"Recreated", "Heal", c.desired, "%s %s was gone and is created again", c.kind, c.desired.GetName()))
		}
	}
	for _, c := range done.moved {
		told = append(told, event(corev1.EventTypeWarning, "ServiceAddressChanged", "Heal", c.desired, "Service %s has a new cluster IP because %s is taken", c.desired.GetName(), c.address))
	}
	for _, claim := range done.grown {
		related := &corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		}
		told = append(told, event(corev1.EventTypeNormal, "VolumeExpanding", "Grow", related, "PersistentVolumeClaim %s grows from %s to %s",
			claim.Name, claim.Spec.Resources.Requests.Storage(), &s.spec.Storage.Size))
	}
	for _, p := range done.replaced {
		told = append(told, event(corev1.EventTypeNormal, "PodReplaced", "Update", podReference(s.redis, p.name), "Pod %s is replaced to carry the current spec", p.name))
	}
	return told
}

// transitions returns the events of what is different from the status before.
func transitions(s *state, before, after flotillav1.RedisStatus) []clusters.Event {
	var told []clusters.Event
	if before.Selector == "" && after.Selector != "" {
		told = append(told, event(corev1.EventTypeNormal, "Created", "Create", nil, "Created the objects of a Redis of %d replicas", after.DesiredReplicas))
	}
	if before.Selector != "" && before.DesiredReplicas != after.DesiredReplicas {
		reason := "ScaledUp"
		if after.DesiredReplicas < before.DesiredReplicas {
			reason = "ScaledDown"
		}
		told = append(told, event(corev1.EventTypeNormal, reason, "Scale", nil, "Replicas changed from %d to %d", before.DesiredReplicas, after.DesiredReplicas))
	}
	for _, name := range recreatedPods(s, before) {
		told = append(told, event(corev1.EventTypeNormal, "PodRecreated", "Heal", podReference(s.redis, name), "Pod %s was deleted and is created again", name))
	}
	return append(told, conditionEvents(s, before, after)...)
}

func conditionEvents(s *state, before, after flotillav1.RedisStatus) []clusters.Event {
	var told []clusters.Event
	was := func(conditionType string) metav1.Condition { return conditionOf(before, conditionType) }
	now := func(conditionType string) metav1.Condition { return conditionOf(after, conditionType) }
	turned := func(conditionType string, status metav1.ConditionStatus) bool {
		return was(conditionType).Status != status && now(conditionType).Status == status
	}

	ready := now(flotillav1.ConditionReady)
	if slices.Contains(alarming, ready.Reason) && was(flotillav1.ConditionReady).Reason != ready.Reason {
		told = append(told, event(corev1.EventTypeWarning, ready.Reason, "Reconcile", nil, "%s", ready.Message))
	}
	if turned(flotillav1.ConditionReady, metav1.ConditionTrue) {
		told = append(told, event(corev1.EventTypeNormal, "Ready", "Reconcile", nil, "%s", ready.Message))
	}
	if was(flotillav1.ConditionPrimaryAvailable).Status == metav1.ConditionTrue && *s.spec.Replicas > 0 && turned(flotillav1.ConditionPrimaryAvailable, metav1.ConditionFalse) {
		primary := now(flotillav1.ConditionPrimaryAvailable)
		told = append(told, event(corev1.EventTypeWarning, primary.Reason, "Observe", podReference(s.redis, after.Primary), "%s", primary.Message))
	}
	told = append(told, troubleEvents(s, was(flotillav1.ConditionDegraded), now(flotillav1.ConditionDegraded), was(flotillav1.ConditionStorageReady), now(flotillav1.ConditionStorageReady))...)
	if turned(flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue) {
		told = append(told, event(corev1.EventTypeWarning, flotillav1.ConditionRolloutBlocked, "Update", nil, "%s", now(flotillav1.ConditionRolloutBlocked).Message))
	}
	if turned(flotillav1.ConditionObjectsAltered, metav1.ConditionTrue) {
		told = append(told, event(corev1.EventTypeWarning, flotillav1.ReasonFieldDropped, "Reconcile", nil, "%s", now(flotillav1.ConditionObjectsAltered).Message))
	}
	rolling := func(c metav1.Condition) bool { return c.Reason == flotillav1.ReasonRollingUpdate }
	applied, appliedBefore := now(flotillav1.ConditionConfigApplied), was(flotillav1.ConditionConfigApplied)
	switch {
	case rolling(applied) && !rolling(appliedBefore):
		told = append(told, event(corev1.EventTypeNormal, "RolloutStarted", "Update", nil, "%s", applied.Message))
	case rolling(appliedBefore) && applied.Status == metav1.ConditionTrue:
		told = append(told, event(corev1.EventTypeNormal, "RolloutCompleted", "Update", nil, "%s", applied.Message))
	}
	if applied.Reason == flotillav1.ReasonTwoPasswords && appliedBefore.Reason != applied.Reason {
		told = append(told, event(corev1.EventTypeNormal, applied.Reason, "Update", nil, "%s", applied.Message))
	}
	if turned(flotillav1.ConditionPaused, metav1.ConditionTrue) {
		told = append(told, event(corev1.EventTypeNormal, "Paused", "Pause", nil, "%s", now(flotillav1.ConditionPaused).Message))
	}
	if was(flotillav1.ConditionPaused).Status == metav1.ConditionTrue && turned(flotillav1.ConditionPaused, metav1.ConditionFalse) {
		told = append(told, event(corev1.EventTypeNormal, "Resumed", "Resume", nil, "%s", now(flotillav1.ConditionPaused).Message))
	}
	return told
}

// troubleEvents tells what has come to be wrong with a Pod or a volume, and that volumes have grown.
func troubleEvents(s *state, degradedBefore, degradedNow, storageBefore, storageNow metav1.Condition) []clusters.Event {
	var told []clusters.Event
	if slices.Contains(ills, degradedNow.Reason) && degradedBefore.Reason != degradedNow.Reason {
		var related client.Object
		if ill := worstPod(s); ill != nil {
			related = podReference(s.redis, ill.name)
		}
		told = append(told, event(corev1.EventTypeWarning, degradedNow.Reason, "Observe", related, "%s", degradedNow.Message))
	}
	if slices.Contains(ills, storageNow.Reason) && storageBefore.Reason != storageNow.Reason {
		told = append(told, event(corev1.EventTypeWarning, storageNow.Reason, "Observe", nil, "%s", storageNow.Message))
	}
	if storageBefore.Reason == flotillav1.ReasonExpanding && storageNow.Status == metav1.ConditionTrue {
		told = append(told, event(corev1.EventTypeNormal, "VolumesExpanded", "Grow", nil, "Every volume has grown to %s", &s.spec.Storage.Size))
	}
	return told
}

// recreatedPods names the Pods that were Ready when the status was written and that somebody has deleted since: they are
// gone or going, or a younger one has taken their place. Rolling updates have events of their own.
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

// removedEvent tells which data went with a Redis.
func removedEvent(names []string) clusters.Event {
	return event(corev1.EventTypeNormal, "DataRemoved", "Delete", nil, "Removed as storage.retentionPolicy says: %s", strings.Join(names, ", "))
}

func event(eventType, reason, action string, related client.Object, format string, args ...any) clusters.Event {
	return clusters.Event{Type: eventType, Reason: reason, Action: action, Note: fmt.Sprintf(format, args...), Related: related}
}
