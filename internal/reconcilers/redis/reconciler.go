// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

const (
	// kind is how registrations name what a member takes part in.
	kind = "Redis"
	// conflictDelay lets the cache see what the conflict was about.
	conflictDelay = 500 * time.Millisecond
	// unseenDelay is for what no watch tells and a Redis waits for: Secrets and events are not watched, nor are objects that
	// lack our label.
	unseenDelay = 30 * time.Second
	// passwordDelay is how often the Secret of a Redis that is well is read. A kubelet takes about as long to tell the Pods.
	passwordDelay = time.Minute
	// refusedDelay is how often a refused growth of volumes is tried again.
	refusedDelay = 10 * time.Minute
)

// Reconciler makes each Redis of each member what its spec says.
type Reconciler struct {
	Members  clusters.Directory
	Recorder clusters.Recorder
	Clock    clock.PassiveClock

	answers answers
}

// Reconcile does one pass over one Redis of one member.
func (r *Reconciler) Reconcile(ctx context.Context, req clusters.Request) (ctrl.Result, error) {
	snapshot, registered := r.Members.Snapshot(req.ClusterName)
	if !registered || !snapshot.Writable() || !snapshot.Serves(kind) {
		return ctrl.Result{}, nil
	}
	member, err := r.Members.Member(req.ClusterName)
	if err != nil {
		var notReady *clusters.NotReadyError
		if errors.As(err, &notReady) || errors.Is(err, multicluster.ErrClusterNotFound) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("finding cluster %q: %w", req.ClusterName, err)
	}
	redis := &flotillav1.Redis{}
	if err := member.GetClient().Get(ctx, req.NamespacedName, redis); err != nil {
		if apierrors.IsNotFound(err) {
			r.answers.keep(req, nil)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ctx = clusters.CausedBy(ctx, redis)
	if redis.DeletionTimestamp != nil {
		removed, err := finalize(ctx, member, redis)
		if len(removed) > 0 {
			r.Recorder.Record(req.ClusterName, redis, removedEvent(removed))
		}
		return settle(ctrl.Result{}, err)
	}
	if err := ensureFinalizer(ctx, member.GetClient(), redis); err != nil {
		return settle(ctrl.Result{}, err)
	}
	return r.pass(ctx, req, member, redis)
}

// pass observes, plans, applies and reports.
func (r *Reconciler) pass(ctx context.Context, req clusters.Request, member cluster.Cluster, redis *flotillav1.Redis) (ctrl.Result, error) {
	clusterName := req.ClusterName
	s, err := observe(ctx, member, redis, r.Clock.Now())
	if err != nil {
		return settle(ctrl.Result{}, r.reportUnseen(ctx, clusterName, member.GetClient(), redis, err))
	}
	s.answers = r.answers.of(req)
	var done outcome
	p := planFor(s)
	if p.createSecret {
		if err := generateSecret(ctx, member, s); err != nil {
			return settle(ctrl.Result{}, r.reportUnseen(ctx, clusterName, member.GetClient(), redis, err))
		}
		done.secretCreated = true
		p = planFor(s)
	}
	failure := apply(ctx, member, s, p, &done)
	if p.compared {
		p.altered = append(p.altered, done.altered...)
		p.stopAltered()
		r.answers.keep(req, p.altered)
	}
	if failure == nil && p.forgetForce {
		failure = forgetForce(ctx, member.GetClient(), redis)
	}

	before := *redis.Status.DeepCopy()
	after, err := r.storable(clusterName, report(before, s, p, failure))
	if err != nil {
		return settle(ctrl.Result{}, err)
	}
	told := deeds(s, done, before.Selector != "" && before.ObservedGeneration == redis.Generation)
	err = writeStatus(ctx, member.GetClient(), redis, after)
	if err == nil {
		told = append(told, transitions(s, before, after)...)
	}
	for _, event := range told {
		r.Recorder.Record(clusterName, redis, event)
	}
	if err != nil {
		return settle(ctrl.Result{}, err)
	}
	delay := recheck(s, p)
	if len(done.altered) > 0 {
		// Where the object already was that answer, no watch tells that it is settled.
		delay = conflictDelay
	}
	return settle(ctrl.Result{RequeueAfter: delay}, failure)
}

// reportUnseen says in the status that the member forbids to see or write what a Redis consists of, and returns the
// error to retry with. About anything else nothing new is known.
func (r *Reconciler) reportUnseen(ctx context.Context, clusterName multicluster.ClusterName, member client.Client, redis *flotillav1.Redis, failure error) error {
	reason, message := refusal(failure)
	if reason == "" || terminating(failure) {
		return failure
	}
	before := *redis.Status.DeepCopy()
	after := *before.DeepCopy()
	condition := is(flotillav1.ConditionReady, false, reason, message)
	set(&after.Conditions, condition, &state{redis: redis, now: r.Clock.Now()})
	if err := writeStatus(ctx, member, redis, after); err != nil {
		return err
	}
	if conditionOf(before, flotillav1.ConditionReady).Reason != reason {
		r.Recorder.Record(clusterName, redis, event(corev1.EventTypeWarning, reason, "Reconcile", nil, "%s", message))
	}
	return failure
}

// storable leaves out what the member's schema does not know, which would be found missing in every pass.
func (r *Reconciler) storable(clusterName multicluster.ClusterName, status flotillav1.RedisStatus) (flotillav1.RedisStatus, error) {
	snapshot, _ := r.Members.Snapshot(clusterName)
	return clusters.Storable(snapshot, kind, status)
}

// writeStatus writes the status if it says something new. The lock keeps a pass that has worked on an old object from
// telling the same transition twice.
func writeStatus(ctx context.Context, member client.Client, redis *flotillav1.Redis, after flotillav1.RedisStatus) error {
	if equality.Semantic.DeepEqual(redis.Status, after) {
		return nil
	}
	before := redis.DeepCopy()
	redis.Status = after
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := member.Status().Patch(ctx, redis, patch, client.FieldOwner(fieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// recheck says when to look again without being woken; zero for never.
func recheck(s *state, p plan) time.Duration {
	delay := p.rollout.recheck
	sooner := func(other time.Duration) {
		if delay == 0 || other < delay {
			delay = other
		}
	}
	if wait := waited(s); wait > 0 {
		sooner(wait)
	}
	if len(p.altered) > 0 {
		sooner(answerLife)
	}
	if slices.ContainsFunc(s.pods, func(p pod) bool { return p.probed }) {
		sooner(unseenDelay)
	}
	switch {
	case p.stop != nil && p.stop.reason != flotillav1.ReasonConfigRejected || len(s.foreign) > 0:
		sooner(unseenDelay)
	case s.growthRefused != "":
		sooner(refusedDelay)
	case s.spec.Auth.Mode == flotillav1.RedisAuthPassword:
		sooner(passwordDelay)
	}
	return delay
}

// settle turns errors that are part of life into another try: somebody was faster, or the namespace is going.
func settle(result ctrl.Result, err error) (ctrl.Result, error) {
	switch {
	case terminating(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	case err != nil:
		return ctrl.Result{}, err
	default:
		return result, nil
	}
}

// terminating tells whether the API server refuses new objects because their namespace is being deleted.
func terminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
