// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

const (
	// rolloutDeadline is how long a replaced Pod may take before its rollout counts as blocked. The rollout continues to
	// wait.
	rolloutDeadline = 10 * time.Minute
	// primaryGrace tolerates a few failures of the primary's probe during a rollout, so that it is still replaced last.
	primaryGrace = 30 * time.Second
)

// rollout is the next step of bringing all Pods to the current spec.
type rollout struct {
	// replace are the Pods to delete now; the StatefulSet creates them again from its template.
	replace []pod
	// reason and blocked explain why the rollout has stopped, and are empty if it has not.
	reason, blocked string
	// recheck is when time alone may change the decision, or zero.
	recheck time.Duration
}

// rolloutOf plans the rollout, and waits for an approval of the primary if the spec requires one. A primary that does
// not serve is replaced without an approval.
func rolloutOf(s *state, hash string, pods []pod) rollout {
	next := planRollout(hash, *s.spec.Replicas, pods, s.now)
	if s.absent.overdue(s.now) && len(next.replace) == 0 && next.blocked == "" {
		next = pastAbsence(s, hash, pods)
	}
	if redisspec.IsSentinel(&s.spec) {
		next = pastSentinel(s, next, pods)
	}
	primary := slices.IndexFunc(next.replace, func(p pod) bool { return p.primary && p.ready })
	if primary < 0 || s.spec.UpdateStrategy.Primary != flotillav1.RedisPrimarySupervised || s.redis.Annotations[flotillav1.AnnotationApprovePrimaryUpdate] == hash {
		return next
	}
	return rollout{reason: flotillav1.ReasonWaitingForApproval, blocked: fmt.Sprintf("The update waits before it replaces Pod %s, the primary; approve it with annotation %s=%s",
		next.replace[primary].name, flotillav1.AnnotationApprovePrimaryUpdate, hash)}
}

// planRollout decides which Pods to replace next. Replicas come first, the highest ordinal first, each Ready before the
// next, and the primary last. Pods that could not communicate during a partial update are replaced together.
func planRollout(hash string, replicas int32, pods []pod, now time.Time) rollout {
	next := nextInRollout(hash, replicas, pods, now)
	if at := slices.IndexFunc(next.replace, func(p pod) bool { return p.risk != nil }); at >= 0 {
		// Replace none rather than some: Pods that are replaced together cannot communicate with the others.
		return rollout{reason: next.replace[at].risk.reason, blocked: next.replace[at].risk.message}
	}
	return next
}

func nextInRollout(hash string, replicas int32, pods []pod, now time.Time) rollout {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p pod) bool { return p.ordinal >= replicas })
	slices.SortFunc(pods, inOrder)

	stale := filter(pods, func(p pod) bool { return p.hash != hash && !p.deleting })
	if len(stale) == 0 {
		// The rollout is complete. A Pod that is permanently broken may be the result of the update and is reported; a Pod
		// that is slow, or that protects its data, has its own conditions.
		broken := filter(pods, func(p pod) bool { return p.broken && p.emptyVolume == "" })
		return blockedBy(hash, broken, now)
	}
	if together := filter(stale, func(p pod) bool { return !redisspec.Follows(hash, p.hash) }); len(together) > 0 {
		return rollout{replace: together}
	}
	if stopped := blockedBy(hash, pods, now); stopped.blocked != "" {
		return stopped
	}
	if at := slices.IndexFunc(pods, func(p pod) bool { return p.stuck }); at >= 0 {
		return rollout{reason: pods[at].reason, blocked: fmt.Sprintf("Pod %s does not terminate: %s", pods[at].name, pods[at].why)}
	}
	// One at a time: a Pod that is terminating, or has not been created again, is the one.
	if len(pods) < int(replicas) || slices.ContainsFunc(pods, func(p pod) bool { return p.deleting }) {
		return rollout{recheck: untilDeadline(hash, pods, now)}
	}
	// A stale Pod that does not serve can be replaced without loss, and the other Pods may be waiting for it.
	down := filter(stale, func(p pod) bool { return !p.ready })
	if len(down) > 0 && !down[0].primary {
		return rollout{replace: down[:1]}
	}
	starting := slices.ContainsFunc(pods, func(p pod) bool { return p.hash == hash && !p.ready })
	if len(down) > 0 {
		if wait := primaryGrace - now.Sub(down[0].changed); starting && wait > 0 {
			return rollout{recheck: wait}
		}
		return rollout{replace: down[:1]}
	}
	if starting {
		return rollout{recheck: untilDeadline(hash, pods, now)}
	}
	return rollout{replace: stale[:1]}
}

// inOrder sorts Pods in the order in which they are replaced: the highest ordinal first, the primary last.
func inOrder(a, b pod) int {
	switch {
	case a.primary != b.primary && a.primary:
		return 1
	case a.primary != b.primary:
		return -1
	default:
		return cmp.Compare(b.ordinal, a.ordinal)
	}
}

// blockedBy returns the Pod with the current spec that does not become Ready.
func blockedBy(hash string, pods []pod, now time.Time) rollout {
	for _, p := range pods {
		switch {
		case p.hash != hash || p.ready || p.deleting:
		case p.broken:
			return rollout{reason: cmp.Or(p.reason, flotillav1.ReasonRolloutStuck), blocked: fmt.Sprintf("Pod %s does not become Ready with the current spec: %s", p.name, p.why)}
		case now.Sub(p.changed) >= rolloutDeadline:
			message := fmt.Sprintf("Pod %s with the current spec has not been Ready for %.0f minutes or more", p.name, rolloutDeadline.Minutes())
			if p.why != "" {
				message += ": " + p.why
			}
			return rollout{reason: cmp.Or(p.reason, flotillav1.ReasonRolloutStuck), blocked: message}
		}
	}
	return rollout{}
}

// untilDeadline returns the time until the first starting Pod counts as blocked.
func untilDeadline(hash string, pods []pod, now time.Time) time.Duration {
	var next time.Duration
	for _, p := range pods {
		if p.hash != hash || p.ready || p.deleting || p.broken {
			continue
		}
		if left := rolloutDeadline - now.Sub(p.changed); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

func filter(pods []pod, keep func(pod) bool) []pod {
	var kept []pod
	for _, p := range pods {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	return kept
}
