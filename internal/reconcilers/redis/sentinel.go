// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// In mode Sentinel the Pods decide which of them is the primary. The manager only learns it: the keeper of the Pod that
// has become the primary ends with a message, which the kubelet reports in the status of the Pod. It is used for the
// order of updates, the status and the events; a wrong or late message costs one more hand-over and no data.

const (
	// voters is the number of Pods with a sentinel that votes, quorum is how many have to agree.
	voters, majority = 3, 2
	// voterIDBytes is the size of the identity of a sentinel.
	voterIDBytes = 20
	// unknown is the ordinal of a primary that is not known.
	unknown = int32(-1)
	// tellGrace is how long the primary may be unknown before it is reported. A failover takes a few seconds.
	tellGrace = time.Minute
	// tellDeadline is how long an update waits for a primary that is not known.
	tellDeadline = 10 * time.Minute
	// meetGrace is how long the sentinels have to find each other before the last Pod of mode Replication is replaced.
	meetGrace = 10 * time.Second
	// tellPrefix begins the message of a keeper; the epoch follows.
	tellPrefix = "primary "

	unknownSentence = "No Pod has reported that it is the primary"
)

// besides is what a Pod of mode Sentinel has beside its server.
type besides struct {
	// proxy reports whether the Pod is one of mode Sentinel, and so has a proxy.
	proxy bool
	// serves, votes and proxies report whether its server is ready, its sentinel runs, and its proxy is ready. A Pod whose
	// keeper is being restarted is not Ready although its server serves.
	serves, votes, proxies bool
	// told reports whether its keeper has reported that it is the primary, at which epoch, and when.
	told   bool
	epoch  int64
	toldAt time.Time
}

// besideServer returns what a Pod has beside its server.
func besideServer(seen *corev1.Pod) besides {
	view := besides{proxy: seen.Labels[flotillav1.LabelRedisProxy] == "true"}
	if !view.proxy {
		return view
	}
	for i := range seen.Status.ContainerStatuses {
		status := &seen.Status.ContainerStatuses[i]
		switch status.Name {
		case containerName:
			view.serves = status.Ready && seen.DeletionTimestamp == nil
		case sentinelContainer:
			view.votes = status.State.Running != nil
		case proxyContainer:
			view.proxies = status.Ready
		case keeperContainer:
			if !reported(status) {
				continue
			}
			ended := status.LastTerminationState.Terminated
			if text, found := strings.CutPrefix(strings.TrimSpace(ended.Message), tellPrefix); found {
				epoch, err := strconv.ParseInt(text, 10, 64)
				view.told, view.epoch, view.toldAt = err == nil && epoch >= 0, epoch, ended.FinishedAt.UTC()
			}
		}
	}
	return view
}

// diagnoseBeside explains what is wrong with the containers beside the server of a Pod of mode Sentinel. That its keeper
// is being restarted is no problem: it ends whenever it reports something.
func diagnoseBeside(seen *corev1.Pod) diagnosis {
	if seen.Labels[flotillav1.LabelRedisProxy] != "true" {
		return diagnosis{}
	}
	for i := range seen.Status.ContainerStatuses {
		status := &seen.Status.ContainerStatuses[i]
		waiting := status.State.Waiting
		if waiting == nil || !slices.Contains([]string{sentinelContainer, keeperContainer, proxyContainer}, status.Name) {
			continue
		}
		switch {
		case slices.Contains(imageReasons, waiting.Reason):
			return diagnosis{reason: flotillav1.ReasonImageUnavailable, broken: true, why: fmt.Sprintf(
				"the image of its container %s cannot be pulled (%s); correct spec.image, spec.proxy.image or spec.imagePullSecrets", status.Name, waiting.Reason)}
		case slices.Contains(creationReasons, waiting.Reason):
			return diagnosis{reason: flotillav1.ReasonContainerNotCreated, broken: true, why: fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, sentence(waiting.Message))}
		case waiting.Reason == loopReason && status.Name == keeperContainer && reported(status):
			return diagnosis{why: "its keeper has reported that it is the primary, and the kubelet waits before it is started again"}
		case waiting.Reason == loopReason:
			return diagnosis{reason: flotillav1.ReasonCrashing, broken: true, why: fmt.Sprintf("its container %s exits repeatedly; see its log", status.Name)}
		}
	}
	return diagnosis{}
}

// reported reports whether a keeper has ended because it had something to report.
func reported(status *corev1.ContainerStatus) bool {
	ended := status.LastTerminationState.Terminated
	return ended != nil && ended.ExitCode == 0
}

// primary returns the Pod that is the primary, or false if it does not exist or is not known.
func (s *state) primary() (pod, bool) { return s.podAt(s.primaryOrdinal(s.pods)) }

// primaryOrdinal returns the ordinal of the primary among the Pods, or unknown. In mode Sentinel it is the Pod that has
// reported the highest epoch. A report of a lower epoch than before is outdated, unless it is newer: then the sentinels
// have lost what they knew, and count anew.
func (s *state) primaryOrdinal(pods []pod) int32 {
	if !redisspec.IsSentinel(&s.spec) {
		return 0
	}
	before := s.redis.Status
	last := unknown
	var highest besides
	for _, p := range pods {
		switch {
		case !p.told || p.ordinal >= voters || p.deleting:
			continue
		case before.PrimaryEpoch != nil && p.epoch < *before.PrimaryEpoch && before.LastFailoverTime != nil && !p.toldAt.After(before.LastFailoverTime.Time):
			continue
		case last == unknown || cmp.Or(cmp.Compare(p.epoch, highest.epoch), p.toldAt.Compare(highest.toldAt)) > 0:
			last, highest = p.ordinal, p.besides
		}
	}
	if last == unknown && slices.ContainsFunc(pods, func(p pod) bool { return p.ordinal == 0 && !p.proxy && !p.deleting }) {
		// A Pod of mode Replication, which is the primary as long as there is one.
		return 0
	}
	return last
}

// markPrimary marks the primary among the Pods.
func (s *state) markPrimary(pods []pod) {
	primary := s.primaryOrdinal(pods)
	for i := range pods {
		pods[i].primary = pods[i].ordinal == primary
	}
}

// unknownFor returns since when there has been no primary that serves. The previous condition shows it.
func (s *state) unknownFor() time.Duration {
	before := conditionOf(s.redis.Status, flotillav1.ConditionPrimaryAvailable)
	if before.Status != metav1.ConditionFalse || before.Reason != flotillav1.ReasonPrimaryUnknown {
		return 0
	}
	return max(s.now.Sub(before.LastTransitionTime.Time), 0)
}

// untilUnknown returns when to check again whether the primary is known, or zero.
func untilUnknown(s *state) time.Duration {
	if !redisspec.IsSentinel(&s.spec) || *s.spec.Replicas == 0 || s.primaryOrdinal(s.pods) != unknown {
		return 0
	}
	return max(tellGrace-s.unknownFor(), 0)
}

// emptyPod returns the Pod that would be the primary and has lost its data, or false.
func emptyPod(s *state) (pod, bool) {
	if !redisspec.IsSentinel(&s.spec) {
		primary, found := s.podAt(0)
		return primary, found && primary.emptyVolume != ""
	}
	at := slices.IndexFunc(s.pods, func(p pod) bool { return p.emptyVolume != "" })
	if at < 0 {
		return pod{}, false
	}
	return s.pods[at], true
}

// voterIDs returns the identities of the sentinels. They depend on the Redis and the ordinal only, so that a sentinel
// whose volume was lost is the same voter as before.
func voterIDs(redis *flotillav1.Redis) string {
	var ids []string
	for ordinal := range voters {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", redis.UID, ordinal))
		ids = append(ids, hex.EncodeToString(sum[:voterIDBytes]))
	}
	return strings.Join(ids, " ")
}

// migrating reports whether Pods may still be of mode Replication. This is recorded, because new Pods have to know it as
// long as the sentinels do not: a record without it is of mode Replication. Without a record, the StatefulSet or data of
// an earlier Redis shows it; data of mode Sentinel is recognised by its Pods.
func migrating(s *state) bool {
	if !redisspec.IsSentinel(&s.spec) {
		return false
	}
	recorded := s.recorded.migrating
	switch {
	case s.recorded.known:
	case s.record != nil || s.former != nil:
		recorded = true
	case s.statefulSet != nil:
		recorded = s.statefulSet.Spec.Template.Labels[flotillav1.LabelRedisProxy] != "true"
	default:
		recorded = initializedClaim(s)
	}
	return recorded && !s.migrated()
}

// migrated reports whether every desired Pod is of mode Sentinel and Ready.
func (s *state) migrated() bool {
	ready := filter(s.pods, func(p pod) bool { return p.proxy && p.ready && p.ordinal < *s.spec.Replicas })
	return *s.spec.Replicas > 0 && len(ready) == int(*s.spec.Replicas)
}

// forceAnnotation returns the annotation by which a person decides about a primary that does not start.
func forceAnnotation(redis *flotillav1.Redis) string {
	if redis.Spec.Mode == flotillav1.RedisModeSentinel {
		return flotillav1.AnnotationForcePrimary
	}
	return flotillav1.AnnotationForceEmptyPrimary
}

// forcedPrimary returns the ordinal of the Pod that a person has chosen as the primary, or "". The UID of its claim
// ensures that the choice is about this volume.
func forcedPrimary(s *state) string {
	name, uid, found := strings.Cut(s.redis.Annotations[flotillav1.AnnotationForcePrimary], "@")
	ordinal, known := ordinalOf(name, s.redis.Name)
	if !redisspec.IsSentinel(&s.spec) || !found || !known || ordinal >= voters {
		return ""
	}
	claim := s.claims[ordinal]
	if claim == nil || string(claim.UID) != uid {
		return ""
	}
	return strconv.Itoa(int(ordinal))
}

// addressed reports whether the record has the addresses of all desired Pods. A Pod is only created then: it is known to
// the others by its address.
func (s *state) addressed() bool {
	return !redisspec.IsSentinel(&s.spec) || len(s.recorded.ordinals()) >= int(*s.spec.Replicas)
}

// ordinals returns the addresses of the Pods by ordinal, up to the first that is not known.
func (t topology) ordinals() []string {
	var addresses []string
	for ordinal := range maxOrdinals {
		address, found := t.addresses[strconv.Itoa(ordinal)]
		if !found {
			break
		}
		addresses = append(addresses, address)
	}
	return addresses
}
