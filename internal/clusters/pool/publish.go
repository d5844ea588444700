// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// hubWriteTimeout is the deadline of one round of writes to the hub.
const hubWriteTimeout = 30 * time.Second

// publication is the desired content of a MemberCluster. It is a value: its maps are not modified once it is
// published.
type publication struct {
	snapshot    clusters.Snapshot
	secret      registration.SecretRef
	verdicts    map[string]verdict.Verdict
	version     string
	endpoint    string
	credentials *flotillav1.CredentialStatus
	// drained is condition Drained of a draining member; empty when the copies cannot be counted now.
	drained verdict.Verdict
	// lost is condition Paused of a member whose registration has vanished; empty otherwise.
	lost verdict.Verdict
	// gone means that the member has been offboarded and that its MemberCluster is to be deleted.
	gone bool
}

// eventEngaged is recorded when a member becomes ready that was not published as ready.
const eventEngaged = "ClusterEngaged"

// hubEvent is an event regarding a member.
type hubEvent struct{ eventType, reason, action, note string }

// publisher is the only writer of MemberClusters, except for the counts and the attention list, which the roll-up
// owns. It writes only changes, so an idle MemberCluster is never written.
type publisher struct {
	pool  *Pool
	queue workqueue.TypedRateLimitingInterface[multicluster.ClusterName]
}

// newPublisher returns a publisher whose queue accepts members before it runs.
func newPublisher(p *Pool) *publisher {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[multicluster.ClusterName](p.cfg.PublishRetry, time.Minute)
	return &publisher{pool: p, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// enqueue schedules a publish. Changes before it runs are coalesced.
func (w *publisher) enqueue(name multicluster.ClusterName) { w.queue.Add(name) }

// run publishes members until ctx ends.
func (w *publisher) run(ctx context.Context) {
	context.AfterFunc(ctx, w.queue.ShutDown)
	for w.next(ctx) {
	}
}

// next publishes the next member of the queue. It returns false when the queue has shut down.
func (w *publisher) next(ctx context.Context) bool {
	name, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(name)
	log := w.pool.log.WithValues("cluster", name)
	defer recoverTo(log, "Publishing a member panicked")
	ctx, cancel := context.WithTimeout(ctx, hubWriteTimeout)
	defer cancel()
	if err := w.publish(ctx, name); err != nil {
		if !apierrors.IsConflict(err) && !errors.Is(err, errStillThere) {
			log.Error(err, "Publishing a member")
		}
		w.queue.AddRateLimited(name)
		return true
	}
	w.queue.Forget(name)
	return true
}

// errStillThere means that a deletion has not reached the cache yet.
var errStillThere = errors.New("the deleted object is still in the cache")

// publish writes the publication of a member to its MemberCluster, then records the events.
func (w *publisher) publish(ctx context.Context, name multicluster.ClusterName) error {
	m := w.pool.member(name)
	if m == nil {
		return nil
	}
	wanted := m.publication()
	if wanted.gone {
		return w.remove(ctx, m)
	}
	if wanted.snapshot.Draining {
		// Copies disappear one by one without notifying the pool, so they are counted regularly. Counting in the cache
		// is cheap.
		wanted.drained = w.pool.drained(ctx, m, wanted.snapshot)
		w.queue.AddAfter(name, drainInterval)
	}
	object, err := w.ensure(ctx, wanted)
	if err != nil {
		return err
	}
	wasReady := apimeta.IsStatusConditionTrue(object.Status.Conditions, flotillav1.ConditionReady)
	if err := w.publishStatus(ctx, object, wanted); err != nil {
		return err
	}
	events := m.takeEvents()
	if wasReady {
		// A restart engages every member again, which is not worth an event.
		events = slices.DeleteFunc(events, func(e hubEvent) bool { return e.reason == eventEngaged })
	}
	w.record(object, events)
	return nil
}

// ensure creates the object or corrects its labels and its reference. It reads live only when a write is due.
func (w *publisher) ensure(ctx context.Context, wanted publication) (*flotillav1.MemberCluster, error) {
	h, name := w.pool.hub, string(wanted.snapshot.Name)
	object := &flotillav1.MemberCluster{}
	err := h.client.Get(ctx, client.ObjectKey{Name: name}, object)
	if err == nil && describes(object, wanted) {
		return object, nil
	}
	object = &flotillav1.MemberCluster{}
	err = h.reader.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) {
		object = &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		describe(object, wanted)
		if err := h.client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("creating MemberCluster %q: %w", name, err)
		}
		return object, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading MemberCluster %q: %w", name, err)
	}
	if describes(object, wanted) {
		return object, nil
	}
	before := object.DeepCopy()
	describe(object, wanted)
	if err := h.client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("writing MemberCluster %q: %w", name, err)
	}
	return object, nil
}

// describe sets the labels and the reference.
func describe(object *flotillav1.MemberCluster, wanted publication) {
	object.Labels = maps.Clone(wanted.snapshot.Labels)
	object.Spec.SecretRef = flotillav1.SecretReference{
		Namespace: wanted.secret.Namespace, Name: wanted.secret.Name, UID: string(wanted.secret.UID),
	}
}

// describes reports whether the labels and the reference are correct.
func describes(object *flotillav1.MemberCluster, wanted publication) bool {
	right := object.DeepCopy()
	describe(right, wanted)
	return equality.Semantic.DeepEqual(right.Spec, object.Spec) && equality.Semantic.DeepEqual(right.Labels, object.Labels)
}

// publishStatus updates the status if it differs, based on the live object.
func (w *publisher) publishStatus(ctx context.Context, object *flotillav1.MemberCluster, wanted publication) error {
	desired := object.DeepCopy()
	report(desired, wanted, w.pool.cfg.Clock.Now())
	if equality.Semantic.DeepEqual(desired.Status, object.Status) {
		return nil
	}
	// Read into an empty object: fields missing from the response would keep their old values.
	live := &flotillav1.MemberCluster{}
	if err := w.pool.hub.reader.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
		return fmt.Errorf("reading MemberCluster %q: %w", object.Name, err)
	}
	before := live.DeepCopy()
	report(live, wanted, w.pool.cfg.Clock.Now())
	if err := statuspatch.Write(ctx, w.pool.hub.client, before, live, statuspatch.SameUID); err != nil {
		return fmt.Errorf("writing the status of MemberCluster %q: %w", object.Name, err)
	}
	return nil
}

// remove deletes the MemberCluster of an offboarded member, then forgets the member.
func (w *publisher) remove(ctx context.Context, m *member) error {
	object := &flotillav1.MemberCluster{}
	err := w.pool.hub.reader.Get(ctx, client.ObjectKey{Name: string(m.name)}, object)
	if err == nil {
		w.record(object, m.takeEvents())
		err = w.pool.hub.client.Delete(ctx, object, client.Preconditions{UID: new(object.UID)})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing MemberCluster %q: %w", m.name, err)
	}
	// While the cache still contains the object, a new registration of the name would mistake it for its own record.
	if err := w.pool.hub.client.Get(ctx, client.ObjectKey{Name: string(m.name)}, object); err == nil {
		return errStillThere
	}
	w.pool.forget(m)
	return nil
}

// record records events regarding a member. The reference has no resourceVersion, so that a series is folded into one
// event.
func (w *publisher) record(object *flotillav1.MemberCluster, events []hubEvent) {
	regarding := &corev1.ObjectReference{
		APIVersion: flotillav1.GroupVersion.String(), Kind: flotillav1.KindMemberCluster, Name: object.Name, UID: object.UID,
	}
	for _, e := range events {
		w.pool.hub.recorder.Eventf(regarding, nil, e.eventType, e.reason, e.action, "%s", e.note)
	}
}

// reported lists the conditions that every MemberCluster has, besides Ready.
var reported = []string{
	flotillav1.ConditionCredentialsAccepted, flotillav1.ConditionReachable, flotillav1.ConditionAPIsServed,
	flotillav1.ConditionClaimed, flotillav1.ConditionCachesSynced,
}

// report updates a status from a publication. Conditions of other owners are kept, and so are conditions and fields
// whose current value is not known.
//
// After a restart nothing is known for a while. The status of an earlier process is kept until the state of the member
// is decided, because a transition to Unknown would look like a change.
func report(object *flotillav1.MemberCluster, wanted publication, now time.Time) {
	status := &object.Status
	set := func(conditionType string, v verdict.Verdict) {
		condition := metav1.Condition{
			Type: conditionType, Status: v.Status, Reason: v.Reason, Message: v.Message,
			ObservedGeneration: object.Generation, LastTransitionTime: metav1.NewTime(now),
		}
		apimeta.SetStatusCondition(&status.Conditions, condition)
	}
	reportFrozen(object, wanted, now)
	if wanted.lost.Status != "" {
		set(flotillav1.ConditionPaused, wanted.lost)
	}
	before := apimeta.FindStatusCondition(status.Conditions, flotillav1.ConditionReady)
	if !wanted.snapshot.Decided && before != nil && before.Status != metav1.ConditionUnknown {
		return
	}
	for _, conditionType := range reported {
		v, known := wanted.verdicts[conditionType]
		if !known && apimeta.FindStatusCondition(status.Conditions, conditionType) != nil {
			continue
		}
		if !known {
			v = verdict.Verdict{Status: metav1.ConditionUnknown, Reason: flotillav1.ReasonNotYetProbed, Message: "The member has not been tried yet"}
		}
		set(conditionType, v)
	}
	set(flotillav1.ConditionReady, readiness(wanted.snapshot))
	switch {
	case wanted.lost.Status != "":
	case wanted.snapshot.Paused:
		set(flotillav1.ConditionPaused, verdict.Good(flotillav1.ReasonPaused, "The member is paused by its registration or its MemberCluster: it is observed and not written"))
	default:
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionPaused)
	}
	reportDrained(status, wanted, set)
	if cause := stalledBy(status.Conditions); cause != nil {
		set(flotillav1.ConditionStalled, verdict.Good(cause.Reason, cause.Message))
	} else {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionStalled)
	}
	slices.SortStableFunc(status.Conditions, func(a, b metav1.Condition) int { return conditionRank(a.Type) - conditionRank(b.Type) })
	status.ObservedGeneration = object.Generation
	setIfKnown(&status.UID, string(wanted.snapshot.UID))
	setIfKnown(&status.KubernetesVersion, wanted.version)
	setIfKnown(&status.Endpoint, wanted.endpoint)
	if wanted.credentials != nil {
		status.Credentials = wanted.credentials.DeepCopy()
	}
}

// stalledBy returns the condition that prevents a registration from taking effect until a person corrects the
// registration or the member; nil when there is none. Outages, missing definitions and missing rights do not count:
// another pipeline may be about to resolve them.
func stalledBy(conditions []metav1.Condition) *metav1.Condition {
	for _, conditionType := range reported {
		found := apimeta.FindStatusCondition(conditions, conditionType)
		if found == nil || found.Status != metav1.ConditionFalse {
			continue
		}
		switch {
		case conditionType == flotillav1.ConditionCredentialsAccepted, conditionType == flotillav1.ConditionClaimed,
			found.Reason == flotillav1.ReasonUnsupportedVersion:
			return found
		}
	}
	return nil
}

// conditionRank returns the sort key of a condition: Ready first, then the order of reported. Unlisted types rank like
// the first of these.
func conditionRank(conditionType string) int {
	if conditionType == flotillav1.ConditionReady {
		return 0
	}
	return 1 + max(0, slices.Index(reported, conditionType))
}

// setIfKnown sets a field unless the value is empty.
func setIfKnown(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// readiness returns condition Ready.
func readiness(s clusters.Snapshot) verdict.Verdict {
	switch s.State {
	case clusters.StateReady:
		return engagedAs(s)
	case clusters.StatePending, clusters.StateConnecting:
		return verdict.Verdict{Status: metav1.ConditionUnknown, Reason: flotillav1.ReasonNotYetProbed, Message: "The member is being connected"}
	case clusters.StateSyncing:
		return verdict.Verdict{Status: metav1.ConditionUnknown, Reason: flotillav1.ReasonSyncing, Message: "The member is being read"}
	default:
		return verdict.Verdict{Status: metav1.ConditionFalse, Reason: s.Reason, Message: s.Message}
	}
}

// engagedAs returns condition Ready of an engaged member. A member that is usable for at least one kind is ready. If a
// kind is off, its reason is the reason of the condition.
func engagedAs(s clusters.Snapshot) verdict.Verdict {
	var off, on []string
	reason := flotillav1.ReasonConnected
	for _, kind := range clusters.OurKinds() {
		switch {
		case !s.TakesPart(kind):
		case s.Off[kind] != "":
			off, reason = append(off, kind), s.Off[kind]
		default:
			on = append(on, kind)
		}
	}
	switch {
	case len(off) == 0:
		return verdict.Good(reason, "The member is engaged")
	case len(on) == 0:
		return verdict.Verdict{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(
			"The member answers, but %s is off there; see APIsServed and CachesSynced", text.List(off, 5))}
	default:
		return verdict.Good(reason, fmt.Sprintf("The member is engaged; %s is off there, see APIsServed and CachesSynced", text.List(off, 5)))
	}
}

// recordedState is what an earlier process published in a MemberCluster.
type recordedState struct {
	uid      types.UID
	accepted bool
	frozen   bool
	lost     bool
	ready    metav1.ConditionStatus
	since    time.Time
	// credentialReason is the reason of CredentialsAccepted, for a credential that expires at expires.
	credentialReason string
	expires          time.Time
}

// readRecorded extracts what an earlier process published. A nil object yields the zero value.
func readRecorded(object *flotillav1.MemberCluster) recordedState {
	if object == nil {
		return recordedState{}
	}
	r := recordedState{uid: types.UID(object.Status.UID)}
	r.frozen = apimeta.IsStatusConditionTrue(object.Status.Conditions, flotillav1.ConditionFrozen)
	if paused := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionPaused); paused != nil {
		r.lost = paused.Reason == flotillav1.ReasonRegistrationGone
	}
	claimed := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionClaimed)
	r.accepted = r.uid != "" && (claimed == nil || claimed.Reason != flotillav1.ReasonClaimedByAnotherHub)
	if ready := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionReady); ready != nil {
		r.ready, r.since = ready.Status, ready.LastTransitionTime.Time
	}
	if accepted := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionCredentialsAccepted); accepted != nil {
		r.credentialReason = accepted.Reason
	}
	if c := object.Status.Credentials; c != nil && c.ExpirationTime != nil {
		r.expires = c.ExpirationTime.Time
	}
	return r
}
