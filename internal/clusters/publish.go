// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
	"github.com/flotilla-dev/flotilla/internal/text"
)

// hubWriteTimeout is the deadline of one round of writes to the hub.
const hubWriteTimeout = 30 * time.Second

// publication is what a MemberCluster is to say. It is a value: the maps in it are not changed once it is published.
type publication struct {
	snapshot    Snapshot
	secret      secretRef
	verdicts    map[string]verdict
	version     string
	endpoint    string
	credentials *flotillav1.CredentialStatus
	// drained is condition Drained of a member that is drained; empty when the member cannot be asked now.
	drained verdict
	// gone says that the member has been offboarded and that the object is to go.
	gone bool
}

// eventEngaged is told when a member becomes ready that was not known to be.
const eventEngaged = "ClusterEngaged"

// hubEvent is something that happened to a member.
type hubEvent struct{ eventType, reason, action, note string }

// publisher is the one writer of MemberClusters, except for the counts and the attention list, which belong to the
// roll-up. It writes on change only, so that nothing in them ticks.
type publisher struct {
	pool  *Pool
	queue workqueue.TypedRateLimitingInterface[multicluster.ClusterName]
}

// newPublisher makes a publisher whose queue can be filled before it runs.
func newPublisher(p *Pool) *publisher {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[multicluster.ClusterName](p.cfg.PublishRetry, time.Minute)
	return &publisher{pool: p, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// enqueue has a member published soon. Changes in the meantime are written together.
func (w *publisher) enqueue(name multicluster.ClusterName) { w.queue.Add(name) }

// run works until ctx ends.
func (w *publisher) run(ctx context.Context) {
	context.AfterFunc(ctx, w.queue.ShutDown)
	for w.next(ctx) {
	}
}

// next publishes one member.
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

// errStillThere says that a deletion has not reached the cache yet.
var errStillThere = errors.New("the deleted object is still in the cache")

// publish makes a MemberCluster say what is known, then tells the events.
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
		// Copies go one by one, and nobody tells the pool. Counting them in the cache costs little.
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
		// A restart engages every member again, which is no news to anyone.
		events = slices.DeleteFunc(events, func(e hubEvent) bool { return e.reason == eventEngaged })
	}
	w.tell(object, events)
	return nil
}

// ensure creates the object or puts its labels and its reference right. Live reads are made only when something is to
// be written.
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

// describe sets labels and reference.
func describe(object *flotillav1.MemberCluster, wanted publication) {
	object.Labels = maps.Clone(wanted.snapshot.Labels)
	object.Spec.SecretRef = flotillav1.SecretReference{
		Namespace: wanted.secret.namespace, Name: wanted.secret.name, UID: string(wanted.secret.uid),
	}
}

// describes says whether labels and reference are right.
func describes(object *flotillav1.MemberCluster, wanted publication) bool {
	right := object.DeepCopy()
	describe(right, wanted)
	return equality.Semantic.DeepEqual(right.Spec, object.Spec) && equality.Semantic.DeepEqual(right.Labels, object.Labels)
}

// publishStatus writes the status if it differs, on top of the live object.
func (w *publisher) publishStatus(ctx context.Context, object *flotillav1.MemberCluster, wanted publication) error {
	desired := object.DeepCopy()
	report(desired, wanted, w.pool.cfg.Clock.Now())
	if equality.Semantic.DeepEqual(desired.Status, object.Status) {
		return nil
	}
	// Into an empty one: what the answer leaves out would survive.
	live := &flotillav1.MemberCluster{}
	if err := w.pool.hub.reader.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
		return fmt.Errorf("reading MemberCluster %q: %w", object.Name, err)
	}
	before := live.DeepCopy()
	report(live, wanted, w.pool.cfg.Clock.Now())
	if equality.Semantic.DeepEqual(before.Status, live.Status) {
		return nil
	}
	if err := w.pool.hub.client.Status().Patch(ctx, live, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing the status of MemberCluster %q: %w", object.Name, err)
	}
	return nil
}

// remove deletes the object of an offboarded member and then forgets the member.
func (w *publisher) remove(ctx context.Context, m *member) error {
	object := &flotillav1.MemberCluster{}
	err := w.pool.hub.reader.Get(ctx, client.ObjectKey{Name: string(m.name)}, object)
	if err == nil {
		w.tell(object, m.takeEvents())
		err = w.pool.hub.client.Delete(ctx, object, client.Preconditions{UID: new(object.UID)})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing MemberCluster %q: %w", m.name, err)
	}
	// While the cache still shows it, a new registration of the name would take it for its own record.
	if err := w.pool.hub.client.Get(ctx, client.ObjectKey{Name: string(m.name)}, object); err == nil {
		return errStillThere
	}
	w.pool.forget(m)
	return nil
}

// tell records events regarding a member. The reference has no resourceVersion, so that a series folds into one event.
func (w *publisher) tell(object *flotillav1.MemberCluster, events []hubEvent) {
	regarding := &corev1.ObjectReference{
		APIVersion: flotillav1.GroupVersion.String(), Kind: "MemberCluster", Name: object.Name, UID: object.UID,
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

// report makes a status say what is known. Conditions and fields that the pool does not know are left as they are.
//
// After a restart the pool knows nothing for a while. What an earlier process published stays until the member has been
// decided, because "not known yet" would look like news.
func report(object *flotillav1.MemberCluster, wanted publication, now time.Time) {
	status := &object.Status
	reportFrozen(object, wanted, now)
	before := apimeta.FindStatusCondition(status.Conditions, flotillav1.ConditionReady)
	if !wanted.snapshot.Decided && before != nil && before.Status != metav1.ConditionUnknown {
		return
	}
	set := func(conditionType string, v verdict) {
		condition := metav1.Condition{
			Type: conditionType, Status: v.status, Reason: v.reason, Message: v.message,
			ObservedGeneration: object.Generation, LastTransitionTime: metav1.NewTime(now),
		}
		apimeta.SetStatusCondition(&status.Conditions, condition)
	}
	for _, conditionType := range reported {
		v, known := wanted.verdicts[conditionType]
		if !known && apimeta.FindStatusCondition(status.Conditions, conditionType) != nil {
			continue
		}
		if !known {
			v = verdict{status: metav1.ConditionUnknown, reason: flotillav1.ReasonNotYetProbed, message: "The member has not been tried yet"}
		}
		set(conditionType, v)
	}
	set(flotillav1.ConditionReady, readiness(wanted.snapshot))
	if wanted.snapshot.Paused {
		set(flotillav1.ConditionPaused, good(flotillav1.ReasonPaused, "The registration is paused: the member is observed and not written"))
	} else {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionPaused)
	}
	reportDrained(status, wanted, set)
	if cause := stalledBy(status.Conditions); cause != nil {
		set(flotillav1.ConditionStalled, good(cause.Reason, cause.Message))
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

// stalledBy returns the condition that keeps a registration from taking effect until a person corrects the registration or
// the member; nil when there is none. Away members, missing definitions and missing rights end without one: another pipeline
// may be about to bring them.
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

// conditionRank puts Ready first and keeps the order of the others.
func conditionRank(conditionType string) int {
	if conditionType == flotillav1.ConditionReady {
		return 0
	}
	return 1 + max(0, slices.Index(reported, conditionType))
}

// setIfKnown sets a field unless its value is not known.
func setIfKnown(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// readiness is condition Ready.
func readiness(s Snapshot) verdict {
	switch s.State {
	case StateReady:
		return engagedAs(s)
	case StatePending, StateConnecting:
		return verdict{status: metav1.ConditionUnknown, reason: flotillav1.ReasonNotYetProbed, message: "The member is being connected"}
	case StateSyncing:
		return verdict{status: metav1.ConditionUnknown, reason: flotillav1.ReasonSyncing, message: "The member is being read"}
	default:
		return verdict{status: metav1.ConditionFalse, reason: s.Reason, message: s.Message}
	}
}

// engagedAs is condition Ready of a member that is engaged. One that is of use for some kind is ready, with the reason
// why it is not for the others.
func engagedAs(s Snapshot) verdict {
	var off, on []string
	reason := flotillav1.ReasonConnected
	for _, kind := range ourKinds() {
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
		return good(reason, "The member is engaged")
	case len(on) == 0:
		return verdict{status: metav1.ConditionFalse, reason: reason, message: fmt.Sprintf(
			"The member answers, but %s is off there; see APIsServed and CachesSynced", text.List(off, 5))}
	default:
		return good(reason, fmt.Sprintf("The member is engaged; %s is off there, see APIsServed and CachesSynced", text.List(off, 5)))
	}
}

// recordedState is what an earlier process left in a MemberCluster.
type recordedState struct {
	uid      types.UID
	accepted bool
	frozen   bool
	ready    metav1.ConditionStatus
	since    time.Time
	// credentialReason is that of CredentialsAccepted, about a credential that ends then.
	credentialReason string
	expires          time.Time
}

// readRecorded reads it; object may be nil.
func readRecorded(object *flotillav1.MemberCluster) recordedState {
	if object == nil {
		return recordedState{}
	}
	r := recordedState{uid: types.UID(object.Status.UID)}
	r.frozen = apimeta.IsStatusConditionTrue(object.Status.Conditions, flotillav1.ConditionFrozen)
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
