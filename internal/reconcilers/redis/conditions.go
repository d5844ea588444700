// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

func readyCondition(s *state, p plan, c counts, failure error) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return is(flotillav1.ConditionReady, false, reason, message)
	}
	reason, message := refusal(failure)
	primary, found := s.primary()
	empty, blocked := emptyPod(s)
	switch {
	case p.stop != nil:
		return no(p.stop.reason, p.stop.message)
	case len(s.foreign) > 0:
		return no(flotillav1.ReasonNameConflict, "Objects that are not of this Redis have the names of its own: "+list(s.foreign))
	case reason != "":
		return no(reason, message)
	case p.rollout.reason == flotillav1.ReasonFieldDropped && c.updated < *s.spec.Replicas:
		return no(p.rollout.reason, p.rollout.blocked)
	case *s.spec.Replicas == 0:
		return is(flotillav1.ConditionReady, true, flotillav1.ReasonScaledToZero, "No replicas are requested")
	case blocked:
		return no(flotillav1.ReasonPrimaryVolumeEmpty, emptySentence(s, empty))
	case isSentinel(&s.spec) && !found:
		if reason, message := unknownPrimary(s); reason != "" {
			return no(reason, message)
		}
	case !found || !primary.ready && !primary.serves:
		return no(flotillav1.ReasonPrimaryNotReady, primarySentence(s))
	}
	switch {
	case c.ready < *s.spec.Replicas:
		return no(flotillav1.ReasonReplicasNotReady, notReadySentence(s, c))
	case c.updated < *s.spec.Replicas:
		return no(flotillav1.ReasonRollingUpdate, updateSentence(s, c))
	default:
		return is(flotillav1.ConditionReady, true, flotillav1.ReasonAllReplicasReady, fmt.Sprintf("%d of %d Pods are Ready", c.ready, *s.spec.Replicas))
	}
}

func progressing(s *state, p plan, c counts, failure error) metav1.Condition {
	condition := func(status bool, reason, message string) metav1.Condition {
		return is(flotillav1.ConditionProgressing, status, reason, message)
	}
	reason, message := refusal(failure)
	switch {
	case p.stop != nil:
		return condition(false, p.stop.reason, p.stop.message)
	case s.spec.Paused:
		return condition(false, flotillav1.ReasonPaused, "Nothing is changed while the Redis is paused")
	case reason != "":
		return condition(false, reason, message)
	case p.rollout.blocked != "":
		return condition(false, p.rollout.reason, p.rollout.blocked)
	case len(c.stale) > 0:
		return condition(true, flotillav1.ReasonRollingUpdate, updateSentence(s, c))
	case c.ready < *s.spec.Replicas || len(s.pods) > int(*s.spec.Replicas):
		return condition(true, flotillav1.ReasonReplicasNotReady, fmt.Sprintf("%d Pods exist, %d of %d desired Pods are Ready", len(s.pods), c.ready, *s.spec.Replicas))
	default:
		return condition(false, flotillav1.ReasonSettled, "No change is in progress")
	}
}

// degraded reports what is wrong with the Pods: first the primary, then problems that do not resolve by themselves.
func degraded(s *state, c counts) metav1.Condition {
	reason, message := quorum(s)
	switch {
	case reason == flotillav1.ReasonQuorumLost:
		return is(flotillav1.ConditionDegraded, true, reason, message+"; "+notReadySentence(s, c))
	case c.ready == *s.spec.Replicas && reason != "":
		return is(flotillav1.ConditionDegraded, true, reason, message)
	case c.ready == *s.spec.Replicas:
		return is(flotillav1.ConditionDegraded, false, flotillav1.ReasonNone, "Every desired Pod is Ready")
	}
	condition := is(flotillav1.ConditionDegraded, true, flotillav1.ReasonReplicasNotReady, notReadySentence(s, c))
	if ill := worstPod(s); ill != nil {
		condition.Reason = ill.reason
	} else if s.absent.overdue(s.now) {
		condition.Reason = flotillav1.ReasonPodNotCreated
	} else if reason != "" {
		condition.Reason, condition.Message = reason, message+"; "+condition.Message
	}
	return condition
}

func primaryAvailable(s *state) metav1.Condition {
	primary, found := s.primary()
	serves := found && (primary.ready || primary.serves)
	switch {
	case *s.spec.Replicas == 0:
		return is(flotillav1.ConditionPrimaryAvailable, false, flotillav1.ReasonScaledToZero, "No replicas are requested")
	case serves && followers(s) < s.spec.Replication.MinReplicasToWrite:
		return is(flotillav1.ConditionPrimaryAvailable, false, flotillav1.ReasonWritesRefused, fmt.Sprintf(
			"Pod %s is Ready and refuses writes: %d replicas are Ready, and replication.minReplicasToWrite is %d", primary.name, followers(s), s.spec.Replication.MinReplicasToWrite))
	case serves:
		return is(flotillav1.ConditionPrimaryAvailable, true, flotillav1.ReasonPrimaryReady, "Pod "+primary.name+" is Ready")
	case !found && isSentinel(&s.spec):
		return is(flotillav1.ConditionPrimaryAvailable, false, flotillav1.ReasonPrimaryUnknown, unknownSentence)
	default:
		return is(flotillav1.ConditionPrimaryAvailable, false, flotillav1.ReasonPrimaryNotReady, primarySentence(s))
	}
}

// followers counts the replicas that are Ready, which means linked to the primary and in sync.
func followers(s *state) int32 {
	primary := s.primaryOrdinal(s.pods)
	return int32(len(filter(s.pods, func(p pod) bool { return p.ordinal != primary && p.ready })))
}

// configApplied reports whether Pods are being replaced. A rollout lasts until every Pod is Ready again; only the
// previous condition distinguishes it from Pods that were deleted.
func configApplied(s *state, p plan, c counts, before metav1.Condition) metav1.Condition {
	rolling := before.Reason == flotillav1.ReasonRollingUpdate && (c.updated < *s.spec.Replicas || c.ready < *s.spec.Replicas)
	switch {
	case p.stop != nil:
		return is(flotillav1.ConditionConfigApplied, false, p.stop.reason, p.stop.message)
	case len(c.stale) > 0 && s.spec.Paused:
		return is(flotillav1.ConditionConfigApplied, false, flotillav1.ReasonPaused, updateSentence(s, c))
	case len(c.stale) > 0 || rolling:
		return is(flotillav1.ConditionConfigApplied, false, flotillav1.ReasonRollingUpdate, updateSentence(s, c))
	case s.password.previous != "":
		return is(flotillav1.ConditionConfigApplied, true, flotillav1.ReasonTwoPasswords, fmt.Sprintf(
			"Every Pod accepts the password and the previous one; change the clients, then remove key %s from Secret %s", previousKey(secretRef(s.redis, &s.spec).Key), secretRef(s.redis, &s.spec).Name))
	default:
		return is(flotillav1.ConditionConfigApplied, true, flotillav1.ReasonUpdated, "Every Pod has the current spec")
	}
}

func rolloutBlocked(p plan) metav1.Condition {
	if p.rollout.blocked != "" {
		return is(flotillav1.ConditionRolloutBlocked, true, p.rollout.reason, p.rollout.blocked)
	}
	return is(flotillav1.ConditionRolloutBlocked, false, flotillav1.ReasonNone, "No update is blocked")
}

func emptyPrimaryBlocked(s *state) metav1.Condition {
	if empty, found := emptyPod(s); found {
		return is(flotillav1.ConditionEmptyPrimaryBlocked, true, flotillav1.ReasonPrimaryVolumeEmpty, emptySentence(s, empty))
	}
	return is(flotillav1.ConditionEmptyPrimaryBlocked, false, flotillav1.ReasonNone, "The primary has not refused its volume")
}

func dataAtRisk(s *state) metav1.Condition {
	risk := func(reason, message string) metav1.Condition {
		return is(flotillav1.ConditionDataAtRisk, true, reason, message)
	}
	switch {
	case s.keepRefused:
		name := secretName(s.redis.Name)
		return risk(flotillav1.ReasonPrunable, fmt.Sprintf(
			"Secret %s has label %s, by which Argo CD may prune it, and the hub may not change it: apply config/member, or run kubectl label secret %s -n %s %s-",
			name, labelInstance, name, s.redis.Namespace, labelInstance))
	case s.spec.Storage.Type == flotillav1.RedisStorageEmptyDir:
		return risk(flotillav1.ReasonEphemeral, "Data is lost with its Pods because storage is an EmptyDir")
	case s.spec.Persistence.Mode == flotillav1.RedisPersistenceNone:
		return risk(flotillav1.ReasonPersistenceDisabled, "Data is lost at each restart because nothing is written to storage")
	case onFewNodes(s):
		return risk(flotillav1.ReasonSingleNode, fmt.Sprintf("Pods 0 to %d run on fewer than %d nodes, so that one lost node can stop failover and all writes", voters-1, voters))
	case redisspec.MaxMemory(&s.spec) == 0:
		return risk(flotillav1.ReasonMaxMemoryUnset, "Neither memory.maxMemory nor a memory limit is set, so Redis may be killed when its node runs out of memory")
	default:
		return is(flotillav1.ConditionDataAtRisk, false, flotillav1.ReasonNone, "The spec keeps data safe")
	}
}

func paused(s *state) metav1.Condition {
	if s.spec.Paused {
		return is(flotillav1.ConditionPaused, true, flotillav1.ReasonPaused, "Nothing is changed while spec.paused is set")
	}
	return is(flotillav1.ConditionPaused, false, flotillav1.ReasonNone, "The Redis is not paused")
}
