// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
	"github.com/flotilla-dev/flotilla/internal/text"
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
	case redisspec.IsSentinel(&s.spec) && !found:
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
	case !found && redisspec.IsSentinel(&s.spec):
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

func primarySentence(s *state) string {
	primary, found := s.primary()
	switch {
	case !found && s.absent.overdue(s.now):
		return s.absent.sentence(s)
	case !found:
		return fmt.Sprintf("Pod %s does not exist", podName(s.redis.Name, 0))
	case primary.stuck:
		return fmt.Sprintf("Pod %s does not terminate: %s", primary.name, primary.why)
	case primary.deleting:
		return fmt.Sprintf("Pod %s is being deleted", primary.name)
	case primary.why != "":
		return fmt.Sprintf("Pod %s is not Ready: %s", primary.name, primary.why)
	default:
		return fmt.Sprintf("Pod %s is not Ready", primary.name)
	}
}

// notReadySentence counts the Pods that are Ready, and describes the problem of the worst of the others.
func notReadySentence(s *state, c counts) string {
	text := fmt.Sprintf("%d of %d Pods are Ready, not %s", c.ready, *s.spec.Replicas, list(c.notReady))
	if ill := worstPod(s); ill != nil {
		return text + fmt.Sprintf("; Pod %s: %s", ill.name, ill.why)
	}
	if s.absent.overdue(s.now) {
		return text + "; " + s.absent.sentence(s)
	}
	return text
}

// worstPod returns the Pod to report first: the primary, then one whose problem does not resolve by itself. It is nil
// if no problem is known.
func worstPod(s *state) *pod {
	var worst *pod
	primary := s.primaryOrdinal(s.pods)
	for i := range s.pods {
		p := &s.pods[i]
		if p.ready || p.reason == "" || p.ordinal >= *s.spec.Replicas {
			continue
		}
		if worst == nil || (p.broken && !worst.broken && worst.ordinal != primary) {
			worst = p
		}
	}
	return worst
}

// emptySentence quotes the start script, whose output comes from the member, and adds what a person can do.
func emptySentence(s *state, primary pod) string {
	text := sentence(fmt.Sprintf("Pod %s does not serve: %s", primary.name, primary.emptyVolume))
	claim := s.claims[primary.ordinal]
	if claim != nil && redisspec.IsSentinel(&s.spec) {
		return fmt.Sprintf("%s; restore the volume, or choose the Pod that becomes the primary with annotation %s=<pod>@<UID of its claim>, for this one %s@%s",
			text, flotillav1.AnnotationForcePrimary, primary.name, claim.UID)
	}
	if claim != nil {
		return fmt.Sprintf("%s; restore the volume, or accept that the data is lost with annotation %s=%s", text, flotillav1.AnnotationForceEmptyPrimary, claim.UID)
	}
	return text + "; restore the volume"
}

func updateSentence(s *state, c counts) string {
	if len(c.stale) == 0 {
		return fmt.Sprintf("%d of %d Pods have the current spec, and %d are Ready", c.updated, *s.spec.Replicas, c.ready)
	}
	return fmt.Sprintf("%d of %d Pods have the current spec, not %s", c.updated, *s.spec.Replicas, list(c.stale))
}

// list joins the first few names: "a, b, c and 3 more".
func list(names []string) string { return text.List(names, maxListed) }

// sentence converts a text from a member to a message: one line of limited length, with a capital and without a period.
func sentence(said string) string {
	said = clause(said)
	first, size := utf8.DecodeRuneInString(said)
	if size == 0 {
		return "No message"
	}
	return string(unicode.ToUpper(first)) + said[size:]
}

// clause converts a text from a member so that it can be part of a sentence.
func clause(said string) string {
	return text.Clause(said, maxRefusal)
}

// asStatus returns the first API status in an error, also among joined ones.
func asStatus(err error, status *apierrors.APIStatus) bool { return errors.As(err, status) }
