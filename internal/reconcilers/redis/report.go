// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	maxMembers = 16
	// maxListed is the number of names that a message lists.
	maxListed = 3
	// maxRefusal is the number of bytes of an API server's refusal that a message quotes.
	maxRefusal = 256
)

// report returns the status of the Redis from the state, the plan, and the error of the pass. It sets all fields and
// conditions that a member has.
func report(before flotillav1.RedisStatus, s *state, p plan, failure error) flotillav1.RedisStatus {
	after := *before.DeepCopy()
	after.ObservedGeneration = s.redis.Generation
	after.DesiredReplicas = *s.spec.Replicas
	c := count(s, p, before)
	after.Replicas, after.ReadyReplicas, after.UpdatedReplicas = int32(len(s.pods)), c.readyOfAll, c.updated
	after.Members = members(s)
	after.Primary = ""
	if ordinal := s.primaryOrdinal(s.pods); *s.spec.Replicas > 0 && ordinal != unknown {
		after.Primary = podName(s.redis.Name, ordinal)
	}
	reportFailovers(&after, before, s)
	// The selector marks that the Redis has been set up: from then on a missing child is recreated, not created.
	if complete(s) {
		after.Selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selectorLabels(s.redis.Name)})
	}
	ready := readyCondition(s, p, c, failure)
	for _, condition := range []metav1.Condition{
		ready,
		progressing(s, p, c, failure),
		degraded(s, c),
		podsCreated(s),
		primaryAvailable(s),
		storageReady(s),
		configApplied(s, p, c, conditionOf(before, flotillav1.ConditionConfigApplied)),
		rolloutBlocked(p),
		emptyPrimaryBlocked(s),
		dataAtRisk(s),
		paused(s),
	} {
		set(&after.Conditions, condition, s)
	}
	switch {
	case len(p.altered) > 0:
		set(&after.Conditions, is(flotillav1.ConditionObjectsAltered, true, flotillav1.ReasonFieldDropped, alteredSentence(p.altered)), s)
	case p.compared:
		apimeta.RemoveStatusCondition(&after.Conditions, flotillav1.ConditionObjectsAltered)
	}
	if migrating(s) {
		set(&after.Conditions, is(flotillav1.ConditionModeChanging, true, flotillav1.ReasonMigratingToSentinel, migrationSentence(s)), s)
	} else {
		apimeta.RemoveStatusCondition(&after.Conditions, flotillav1.ConditionModeChanging)
	}
	if s.redis.Spec.Placement != nil {
		set(&after.Conditions, is(flotillav1.ConditionPlacementIgnored, true, flotillav1.ReasonPlacementInMember, "Placement has an effect on the hub only"), s)
	} else {
		apimeta.RemoveStatusCondition(&after.Conditions, flotillav1.ConditionPlacementIgnored)
	}
	if ready.Status == metav1.ConditionFalse && slices.Contains(flotillav1.StallingReasons(), ready.Reason) {
		set(&after.Conditions, is(flotillav1.ConditionStalled, true, ready.Reason, ready.Message), s)
	} else {
		apimeta.RemoveStatusCondition(&after.Conditions, flotillav1.ConditionStalled)
	}
	if ready.Status == metav1.ConditionTrue {
		readySince(&after, s)
	}
	return after
}

// counts only include Pods below the number of replicas, except for readyOfAll.
type counts struct {
	ready, updated, readyOfAll int32
	notReady, stale            []string
}

func count(s *state, p plan, before flotillav1.RedisStatus) counts {
	var c counts
	for _, pod := range s.pods {
		if pod.ready {
			c.readyOfAll++
		}
	}
	for ordinal := range *s.spec.Replicas {
		pod, found := s.podAt(ordinal)
		if found && pod.ready {
			c.ready++
		} else {
			c.notReady = append(c.notReady, podName(s.redis.Name, ordinal))
		}
		switch {
		case found && pod.hash != p.hash:
			c.stale = append(c.stale, pod.name)
		case found && !pod.deleting:
			// A terminating Pod is not counted, but it is not stale either: its deletion is no change of the spec.
			c.updated++
		}
	}
	if p.hash == "" {
		// The desired hash is unknown, so the last number is kept.
		c.updated, c.stale = min(before.UpdatedReplicas, int32(len(s.pods))), nil
	}
	return c
}

func members(s *state) []flotillav1.RedisMember {
	var list []flotillav1.RedisMember
	primary := s.primaryOrdinal(s.pods)
	for _, p := range s.pods {
		role := flotillav1.RedisRoleReplica
		if p.ordinal == primary {
			role = flotillav1.RedisRolePrimary
		}
		if len(list) < maxMembers {
			list = append(list, flotillav1.RedisMember{Name: p.name, Role: role, Ready: p.ready, Node: p.node})
		}
	}
	slices.SortFunc(list, func(a, b flotillav1.RedisMember) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// complete reports whether every child exists.
func complete(s *state) bool {
	return s.statefulSet != nil && s.configMap != nil && s.record != nil && (s.budget != nil || !*s.spec.PodDisruptionBudget.Enabled) && len(s.services) == len(s.renderServices())
}

// refusal returns the reason of an error that only a person can resolve, or "" for errors that are retried.
func refusal(failure error) (reason, message string) {
	var status apierrors.APIStatus
	switch {
	case terminating(failure):
		return "", ""
	case apierrors.IsForbidden(failure):
		reason = flotillav1.ReasonForbidden
	case apierrors.IsInvalid(failure), apierrors.IsBadRequest(failure):
		reason = flotillav1.ReasonChildRejected
	default:
		return "", ""
	}
	message = failure.Error()
	if asStatus(failure, &status) && status.Status().Message != "" {
		message = status.Status().Message
	}
	return reason, sentence(message)
}

// readySince moves the transition time of a Ready condition to that of the last Pod: a Pod that was deleted and became
// Ready again between two passes was unavailable meanwhile. The next pass uses the time to recognise new Pods.
func readySince(after *flotillav1.RedisStatus, s *state) {
	ready := apimeta.FindStatusCondition(after.Conditions, flotillav1.ConditionReady)
	if ready == nil || !slices.ContainsFunc(s.pods, func(p pod) bool { return p.created.After(ready.LastTransitionTime.Time) }) {
		return
	}
	newest := s.now
	for _, p := range s.pods {
		if p.created.After(newest) {
			newest = p.created
		}
	}
	ready.LastTransitionTime = metav1.NewTime(newest.Truncate(time.Second))
}

func is(conditionType string, status bool, reason, message string) metav1.Condition {
	condition := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		condition.Status = metav1.ConditionTrue
	}
	return condition
}

func set(conditions *[]metav1.Condition, condition metav1.Condition, s *state) {
	condition.ObservedGeneration = s.redis.Generation
	if existing := apimeta.FindStatusCondition(*conditions, condition.Type); existing == nil || existing.Status != condition.Status {
		condition.LastTransitionTime = metav1.NewTime(s.now.Truncate(time.Second))
	}
	apimeta.SetStatusCondition(conditions, condition)
}
