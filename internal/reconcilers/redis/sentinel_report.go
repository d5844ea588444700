// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// plannedGrace is how long after its creation the former primary counts as replaced rather than failed.
const plannedGrace = 2 * time.Minute

// reportFailovers counts a change of the primary. What the status says of it stays while no primary is known.
func reportFailovers(after *flotillav1.RedisStatus, before flotillav1.RedisStatus, s *state) {
	if !redisspec.IsSentinel(&s.spec) {
		after.PrimaryEpoch, after.Failovers, after.LastFailoverTime = nil, 0, nil
		return
	}
	if *s.spec.Replicas == 0 {
		// The next primary is none that has taken over.
		after.PrimaryEpoch = nil
		return
	}
	primary, found := s.primary()
	if !found || !primary.told {
		return
	}
	after.PrimaryEpoch = &primary.epoch
	if before.PrimaryEpoch == nil || *before.PrimaryEpoch == primary.epoch {
		return
	}
	if primary.epoch < *before.PrimaryEpoch && before.Primary == primary.name {
		// The sentinels count anew, and the primary is the same.
		return
	}
	after.Failovers++
	after.LastFailoverTime = &metav1.Time{Time: primary.toldAt.Truncate(time.Second)}
}

// unknownPrimary returns why a Redis of mode Sentinel without a known primary is not Ready, or "" while one has just
// changed.
func unknownPrimary(s *state) (reason, message string) {
	for _, p := range s.pods {
		if p.reason == flotillav1.ReasonTopologyUnknown {
			return p.reason, fmt.Sprintf("Pod %s does not serve: %s; choose the Pod that becomes the primary with annotation %s=<pod>@<UID of its claim>",
				p.name, p.why, flotillav1.AnnotationForcePrimary)
		}
	}
	if s.redis.Status.PrimaryEpoch != nil && s.unknownFor() < tellGrace {
		return "", ""
	}
	ready := len(filter(s.pods, func(p pod) bool { return p.ready }))
	return flotillav1.ReasonPrimaryUnknown, fmt.Sprintf("%s, and %d of %d Pods are Ready", unknownSentence, ready, *s.spec.Replicas)
}

// quorum returns what is wrong with the sentinels or the proxies, or "". Before there was a primary, and while the mode
// changes, they are still to come.
func quorum(s *state) (reason, message string) {
	if !redisspec.IsSentinel(&s.spec) || s.redis.Status.PrimaryEpoch == nil || *s.spec.Replicas == 0 || migrating(s) {
		return "", ""
	}
	voting, down := 0, ""
	for ordinal := range *s.spec.Replicas {
		p, found := s.podAt(ordinal)
		if found && p.votes && !p.deleting && ordinal < voters {
			voting++
		}
		if found && p.votes && !p.proxies && !p.deleting && down == "" {
			down = p.name
		}
	}
	switch {
	case voting < majority:
		return flotillav1.ReasonQuorumLost, fmt.Sprintf("%d of %d sentinels run: no Pod can take over, and clients of Service %s are refused", voting, voters, serviceName(s.redis.Name, suffixPrimary))
	case voting < voters:
		return flotillav1.ReasonQuorumAtRisk, fmt.Sprintf("%d of %d sentinels run: without another one no Pod can take over", voting, voters)
	case down != "":
		return flotillav1.ReasonProxyDown, fmt.Sprintf("The proxy of Pod %s does not serve", down)
	default:
		return "", ""
	}
}

// onFewNodes reports whether the Pods that vote run on fewer nodes than there are voters.
func onFewNodes(s *state) bool {
	if !redisspec.IsSentinel(&s.spec) {
		return false
	}
	nodes := map[string]bool{}
	for ordinal := range int32(voters) {
		p, found := s.podAt(ordinal)
		if !found || p.node == "" {
			return false
		}
		nodes[p.node] = true
	}
	return len(nodes) < voters
}

func migrationSentence(s *state) string {
	done := len(filter(s.pods, func(p pod) bool { return p.proxy && p.ready && p.ordinal < *s.spec.Replicas }))
	return fmt.Sprintf("%d of %d Pods are Ready in mode Sentinel", done, *s.spec.Replicas)
}

// sentinelEvents returns the events for the transitions of mode Sentinel.
func sentinelEvents(s *state, before, after flotillav1.RedisStatus) []clusters.Event {
	var events []clusters.Event
	if after.Failovers > before.Failovers {
		eventType, reason := corev1.EventTypeWarning, "FailedOver"
		if planned(s, before) {
			eventType, reason = corev1.EventTypeNormal, "PrimaryChanged"
		}
		events = append(events, event(eventType, reason, "Observe", podReference(s.redis, after.Primary), "Pod %s is the primary now, at epoch %d", after.Primary, *after.PrimaryEpoch))
	}
	was, now := conditionOf(before, flotillav1.ConditionDegraded), conditionOf(after, flotillav1.ConditionDegraded)
	switch lost := flotillav1.ReasonQuorumLost; {
	case now.Reason == lost && was.Reason != lost:
		events = append(events, event(corev1.EventTypeWarning, lost, "Observe", nil, "%s", now.Message))
	case was.Reason == lost && now.Reason != lost:
		events = append(events, event(corev1.EventTypeNormal, "QuorumRestored", "Observe", nil, "Enough sentinels run for a Pod to take over"))
	}
	if conditionOf(before, flotillav1.ConditionModeChanging).Status == metav1.ConditionTrue && conditionOf(after, flotillav1.ConditionModeChanging).Status == "" {
		events = append(events, event(corev1.EventTypeNormal, "ModeChanged", "Update", nil, "Every Pod is of mode %s", s.spec.Mode))
	}
	return events
}

// planned reports whether the former primary was deleted, so that it handed over before it ended.
func planned(s *state, before flotillav1.RedisStatus) bool {
	if conditionOf(before, flotillav1.ConditionConfigApplied).Reason == flotillav1.ReasonRollingUpdate {
		return true
	}
	for _, member := range before.Members {
		ordinal, ok := ordinalOf(member.Name, s.redis.Name)
		if !ok || member.Role != flotillav1.RedisRolePrimary {
			continue
		}
		p, found := s.podAt(ordinal)
		return found && (p.deleting || s.now.Sub(p.created) < plannedGrace)
	}
	return false
}

// pastSentinel adapts a rollout to mode Sentinel: the primary has to be known, so that it is replaced last and hands over
// once. A mode only begins to change when every Pod is Ready, and the last Pod of mode Replication stays until the
// sentinels have met, because it cannot hand over.
func pastSentinel(s *state, next rollout, pods []pod) rollout {
	if len(next.replace) != 1 {
		return next
	}
	victim := next.replace[0]
	if !victim.proxy {
		return s.changeMode(next, pods)
	}
	if s.primaryOrdinal(pods) != unknown || !victim.ready && victim.broken {
		return next
	}
	waited := s.unknownFor()
	if waited < tellDeadline {
		return rollout{recheck: tellDeadline - waited}
	}
	next.reason, next.blocked = flotillav1.ReasonPrimaryUnknown, fmt.Sprintf(
		"%s for %.0f minutes or more; the update continues in the order of the Pods, which may change the primary more than once", unknownSentence, tellDeadline.Minutes())
	return next
}

// changeMode lets a Pod of mode Replication be replaced if the others are Ready.
func (s *state) changeMode(next rollout, pods []pod) rollout {
	var newest time.Time
	begun := false
	for _, p := range pods {
		begun = begun || p.proxy
		if p.proxy && p.changed.After(newest) {
			newest = p.changed
		}
	}
	if notReady := filter(pods, func(p pod) bool { return !p.ready && p.ordinal < *s.spec.Replicas }); !begun && len(notReady) > 0 {
		return rollout{reason: flotillav1.ReasonReplicasNotReady, blocked: fmt.Sprintf("The mode does not change before every Pod is Ready; Pod %s is not", notReady[0].name)}
	}
	if !next.replace[0].primary {
		return next
	}
	if wait := meetGrace - s.now.Sub(newest); wait > 0 {
		return rollout{recheck: wait}
	}
	return next
}
