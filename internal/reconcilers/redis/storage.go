// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// volumeReasons are the problems of volumes, the worst one first, each with a message for the names.
var volumeReasons = []struct{ reason, sentence string }{
	{flotillav1.ReasonVolumeLost, "The volume of %s is lost; restore it, or delete the claim and its Pod to start that Pod without data"},
	{flotillav1.ReasonVolumeDeleting, "%s is being deleted and is removed with its Pod, which is not replaced meanwhile; copy the data before that Pod terminates"},
	{flotillav1.ReasonExpansionRefused, "%s"},
	{flotillav1.ReasonExpansionInfeasible, "%s cannot grow to the requested size; see the events of the claim"},
	{flotillav1.ReasonVolumesPending, "Not bound: %s"},
	{flotillav1.ReasonExpanding, "Not of the requested size yet: %s"},
}

// volumeReason returns the problem of a claim, or "" if it is bound and has the requested size.
func volumeReason(claim *corev1.PersistentVolumeClaim, s *flotillav1.RedisSpec) string {
	switch {
	case claim == nil:
		return flotillav1.ReasonVolumesPending
	case claim.Status.Phase == corev1.ClaimLost:
		return flotillav1.ReasonVolumeLost
	case claim.DeletionTimestamp != nil:
		return flotillav1.ReasonVolumeDeleting
	case claim.Status.Phase != corev1.ClaimBound:
		return flotillav1.ReasonVolumesPending
	case infeasible(claim):
		return flotillav1.ReasonExpansionInfeasible
	case smaller(claim.Status.Capacity, s):
		return flotillav1.ReasonExpanding
	default:
		return ""
	}
}

// smaller reports whether a volume is known to be smaller than the spec requests.
func smaller(have corev1.ResourceList, s *flotillav1.RedisSpec) bool {
	size, known := have[corev1.ResourceStorage]
	return known && size.Cmp(s.Storage.Size) < 0
}

// largerClaims returns the claims of desired Pods that request more than the spec.
func largerClaims(s *state) []string {
	var names []string
	for ordinal := range *s.spec.Replicas {
		size := s.claims[ordinal].Spec.Resources.Requests[corev1.ResourceStorage]
		if size.Cmp(s.spec.Storage.Size) > 0 {
			names = append(names, claimName(s.redis.Name, ordinal))
		}
	}
	return names
}

// infeasible reports whether the storage cannot expand a volume.
func infeasible(claim *corev1.PersistentVolumeClaim) bool {
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return true
	default:
		return false
	}
}

func storageReady(s *state) metav1.Condition {
	condition := func(status bool, reason, message string) metav1.Condition {
		return is(flotillav1.ConditionStorageReady, status, reason, message)
	}
	if s.spec.Storage.Type == flotillav1.RedisStorageEmptyDir {
		return condition(true, flotillav1.ReasonEphemeral, "Data is on volumes that are deleted with their Pods")
	}
	found := map[string][]string{}
	for ordinal := range *s.spec.Replicas {
		reason := volumeReason(s.claims[ordinal], &s.spec)
		found[reason] = append(found[reason], claimName(s.redis.Name, ordinal))
	}
	if s.growthRefused != "" {
		found[flotillav1.ReasonExpansionRefused] = []string{s.growthRefused}
	}
	for _, known := range volumeReasons {
		if names := found[known.reason]; len(names) > 0 {
			return condition(false, known.reason, fmt.Sprintf(known.sentence, list(names)))
		}
	}
	if larger := largerClaims(s); len(larger) > 0 {
		return condition(true, flotillav1.ReasonLarger, fmt.Sprintf("Every volume is bound; larger than storage.size %s, and left so because volumes do not shrink: %s", &s.spec.Storage.Size, list(larger)))
	}
	return condition(true, flotillav1.ReasonBound, "Every volume is bound and has the requested size")
}

// claimsToGrow returns the claims that request less than the spec. Those of Pods that are not desired are not changed,
// and a claim that a person has enlarged keeps its size: volumes never shrink.
func claimsToGrow(s *state) []*corev1.PersistentVolumeClaim {
	var grow []*corev1.PersistentVolumeClaim
	for ordinal := range *s.spec.Replicas {
		claim := s.claims[ordinal]
		// The API server refuses it before the volume is bound.
		if claim == nil || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
			continue
		}
		if smaller(claim.Spec.Resources.Requests, &s.spec) {
			grow = append(grow, claim)
		}
	}
	return grow
}

// volumeRisk returns why a Pod must not be replaced: its successor would lack the data. A replica whose claim is
// deleted gets a new one and copies the primary, unless it is guarded. A lost volume cannot be restored, and the primary's data may exist
// nowhere else.
func volumeRisk(s *flotillav1.RedisSpec, name string, guarded bool, claim *corev1.PersistentVolumeClaim) *problem {
	if !keepsData(s) {
		return nil
	}
	reason := volumeReason(claim, s)
	risky := []string{flotillav1.ReasonVolumeLost}
	if guarded {
		risky = append(risky, flotillav1.ReasonVolumeDeleting)
		if claim == nil {
			return &problem{flotillav1.ReasonVolumeLost, fmt.Sprintf("Pod %s is not replaced because its PersistentVolumeClaim is gone", name)}
		}
	}
	if !slices.Contains(risky, reason) {
		return nil
	}
	return &problem{reason, fmt.Sprintf("Pod %s is not replaced because its PersistentVolumeClaim %s is lost or being deleted; see StorageReady", name, claim.Name)}
}
