// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// absentGrace is how long a Pod may be missing before the events of its StatefulSet are read.
	absentGrace = 15 * time.Second
	// endGrace is how much longer than its grace period a Pod may take to terminate.
	endGrace = time.Minute
	// bindGrace is how long a volume may take to be bound before the scheduler is quoted; until then no node accepts its
	// Pod.
	bindGrace = 15 * time.Second
	// eventSlack is how much an event may be older than the absence of the Pod that it explains, because clocks differ.
	eventSlack = time.Minute
	// maxEvents limits the number of events that are read.
	maxEvents = 100
	// quotaRefusal begins the refusal of an API server because of an exceeded quota.
	quotaRefusal = "exceeded quota"
)

// absence describes the desired Pods that do not exist.
type absence struct {
	names []string
	since time.Time
	// refusal is why the first Pod cannot be created, according to the StatefulSet controller, or "".
	refusal string
}

// overdue reports whether Pods have been missing for longer than their creation takes.
func (a absence) overdue(now time.Time) bool {
	return len(a.names) > 0 && now.Sub(a.since) >= absentGrace
}

// sentence names the missing Pods and the remedy.
func (a absence) sentence(s *state) string {
	text, them := fmt.Sprintf("Pod %s does not exist", list(a.names)), "it"
	if len(a.names) > 1 {
		text, them = fmt.Sprintf("Pods %s do not exist", list(a.names)), "them"
	}
	if !a.overdue(s.now) {
		return text
	}
	if a.refusal == "" {
		return fmt.Sprintf("%s, and the StatefulSet controller has not created %s; kubectl get events -n %s --field-selector involvedObject.name=%s shows what it tried",
			text, them, s.redis.Namespace, s.redis.Name)
	}
	return fmt.Sprintf("%s because the creation is refused: %s; raise the quota or correct the policy that refuses it, change what spec asks for, or lower replicas", text, a.refusal)
}

// observeAbsence finds the Pods that do not exist and, after a while, the event with the cause. The previous condition
// shows since when they are missing.
func (s *state) observeAbsence(ctx context.Context, reader client.Reader) error {
	for ordinal := range *s.spec.Replicas {
		if _, found := s.podAt(ordinal); !found {
			s.absent.names = append(s.absent.names, podName(s.redis.Name, ordinal))
		}
	}
	s.absent.since = s.now
	if s.statefulSet == nil {
		// Nothing creates Pods yet, and Ready explains why.
		return nil
	}
	if created := conditionOf(s.redis.Status, flotillav1.ConditionPodsCreated); created.Status == metav1.ConditionFalse {
		s.absent.since = created.LastTransitionTime.Time
	}
	// The clock of the member may be ahead: a time in the future must not delay the report.
	if born := s.statefulSet.CreationTimestamp.Time; born.After(s.absent.since) && !born.After(s.now) {
		s.absent.since = born
	}
	if !s.absent.overdue(s.now) {
		return nil
	}
	var events eventsv1.EventList
	err := reader.List(ctx, &events, client.InNamespace(s.redis.Namespace), client.Limit(maxEvents),
		client.MatchingFields{"reason": "FailedCreate", "regarding.kind": "StatefulSet", "regarding.name": s.statefulSet.Name})
	if apierrors.IsForbidden(err) {
		// The hub has the rights of an earlier version in this member.
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the events of StatefulSet %q: %w", s.statefulSet.Name, err)
	}
	s.absent.refusal = refusalOf(events.Items, s.absent)
	return nil
}

// refusalOf returns the explanation in the newest event about the first missing Pod.
func refusalOf(events []eventsv1.Event, a absence) string {
	newest, refusal := a.since.Add(-eventSlack), ""
	for i := range events {
		if !strings.Contains(events[i].Note, "create Pod "+a.names[0]+" ") {
			continue
		}
		if at := lastSeen(&events[i]); at.After(newest) {
			_, cause, _ := strings.Cut(events[i].Note, "error: ")
			newest, refusal = at, clause(cause)
		}
	}
	return refusal
}

// lastSeen returns when an event was last seen, independently of the API that it was written with.
func lastSeen(event *eventsv1.Event) time.Time {
	at := event.CreationTimestamp.Time
	times := []time.Time{event.EventTime.Time, event.DeprecatedLastTimestamp.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	for _, other := range times {
		if other.After(at) {
			at = other
		}
	}
	return at
}

// observeNode adds the state of the node to the diagnosis of a Pod that does not terminate or does not serve.
func (s *state) observeNode(ctx context.Context, reader client.Reader, p *pod) error {
	late := p.deleting && s.now.Sub(p.ends) >= endGrace
	if p.ready || p.node == "" || !late && (p.deleting || p.why != notReadyYet) {
		return nil
	}
	trouble, err := nodeTrouble(ctx, reader, p.node)
	if err != nil {
		return err
	}
	switch {
	case late && trouble != "":
		p.diagnosis = diagnosis{reason: flotillav1.ReasonNodeLost, stuck: true, why: fmt.Sprintf(
			"it cannot terminate because its node %s; if that node is off for certain, taint it node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or run kubectl delete pod %s -n %s --force --grace-period=0",
			trouble, p.name, s.redis.Namespace)}
	case late:
		p.diagnosis = diagnosis{reason: flotillav1.ReasonTerminationStuck, stuck: true, why: fmt.Sprintf(
			"it should have terminated by %s, and its node %s is Ready; look at its finalizers, and at the log of the kubelet there", p.ends.UTC().Format(time.RFC3339), p.node)}
	case trouble != "":
		p.diagnosis = diagnosis{reason: flotillav1.ReasonNodeLost, unwritten: p.unwritten, why: fmt.Sprintf("its node %s", trouble)}
	}
	return nil
}

// holdBack suppresses the message of the scheduler during the first seconds, in which volumes are bound.
func (p *pod) holdBack(seen *corev1.Pod, now time.Time) {
	if p.reason != flotillav1.ReasonUnschedulable {
		return
	}
	since := seen.CreationTimestamp.Time
	if scheduled := podCondition(seen, corev1.PodScheduled); scheduled != nil && scheduled.LastTransitionTime.After(since) {
		since = scheduled.LastTransitionTime.Time
	}
	if until := since.Add(bindGrace); now.Before(until) {
		p.diagnosis, p.unscheduled = diagnosis{}, until
	}
}

// nodeTrouble returns what is wrong with a node, to follow its name, or "" if it is Ready or cannot be read.
func nodeTrouble(ctx context.Context, reader client.Reader, name string) (string, error) {
	node := &corev1.Node{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return name + " is gone", nil
	case apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading Node %q: %w", name, err)
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if ready {
		return "", nil
	}
	return name + " is not Ready", nil
}

// podsCreated reports whether every desired Pod exists. Its transition time is since when one does not.
func podsCreated(s *state) metav1.Condition {
	condition := func(status bool, reason, message string) metav1.Condition {
		return is(flotillav1.ConditionPodsCreated, status, reason, message)
	}
	switch {
	case len(s.absent.names) == 0:
		return condition(true, flotillav1.ReasonPodsExist, "Every desired Pod exists")
	case s.absent.overdue(s.now):
		return condition(false, flotillav1.ReasonPodNotCreated, s.absent.sentence(s))
	default:
		return condition(false, flotillav1.ReasonCreatingPods, s.absent.sentence(s))
	}
}

// waited returns when to check again what a pass waits for, or zero if only a watch event can change it.
func waited(s *state) time.Duration {
	var next time.Duration
	sooner := func(delay time.Duration) {
		if next == 0 || delay < next {
			next = delay
		}
	}
	switch {
	case s.absent.overdue(s.now):
		sooner(unseenDelay)
	case len(s.absent.names) > 0 && s.statefulSet != nil:
		sooner(absentGrace - s.now.Sub(s.absent.since))
	}
	if wait := untilUnknown(s); wait > 0 {
		sooner(wait)
	}
	for _, p := range s.pods {
		left := p.ends.Add(endGrace).Sub(s.now)
		switch {
		case p.stuck || p.reason == flotillav1.ReasonNodeLost:
			sooner(unseenDelay)
		case p.deleting && left > 0:
			sooner(left)
		case p.unscheduled.After(s.now):
			sooner(p.unscheduled.Sub(s.now))
		}
	}
	return next
}

// pastAbsence lets a spec that requests less continue although a Pod is missing: the Pod may be refused because of what
// the others use. At most one replica is replaced before the missing Pod exists again, and the primary only after an
// approval.
func pastAbsence(s *state, hash string, pods []pod) rollout {
	pods = filter(pods, func(p pod) bool { return p.ordinal < *s.spec.Replicas })
	if !slices.ContainsFunc(pods, func(p pod) bool { return p.hash != hash }) {
		return rollout{}
	}
	blocked := rollout{reason: flotillav1.ReasonPodNotCreated, blocked: s.absent.sentence(s)}
	waits := slices.ContainsFunc(pods, func(p pod) bool { return p.deleting || p.hash == hash && !p.ready })
	if waits || len(s.absent.names) != 1 || int32(len(pods)) != *s.spec.Replicas-1 || !strings.Contains(s.absent.refusal, quotaRefusal) {
		return blocked
	}
	slices.SortFunc(pods, inOrder)
	for _, p := range pods {
		if p.hash == hash || p.risk != nil || !asksLess(s.spec.Resources, p.resources) {
			continue
		}
		if p.primary && s.redis.Annotations[flotillav1.AnnotationApprovePrimaryUpdate] != hash {
			blocked.blocked += fmt.Sprintf("; to replace the primary by one that asks for less, set annotation %s=%s", flotillav1.AnnotationApprovePrimaryUpdate, hash)
			return blocked
		}
		return rollout{replace: []pod{p}}
	}
	return blocked
}

// asksLess reports whether a Pod with these resources requests less of something than another, and more of nothing.
func asksLess(next, now corev1.ResourceRequirements) bool {
	less := false
	for _, lists := range [][2]corev1.ResourceList{{next.Requests, now.Requests}, {next.Limits, now.Limits}} {
		for name, quantity := range lists[0] {
			had, found := lists[1][name]
			if !found || quantity.Cmp(had) > 0 {
				return false
			}
			less = less || quantity.Cmp(had) < 0
		}
	}
	return less
}
