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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
)

const (
	// kind is the name of the kind in registrations.
	kind = flotillav1.KindRedis
	// conflictDelay gives the cache time to receive the conflicting write.
	conflictDelay = 500 * time.Millisecond
	// unseenDelay is the interval for checking what is not watched: Secrets, events, and objects without the label.
	unseenDelay = 30 * time.Second
	// passwordDelay is the interval for reading the Secret of a Redis that is ready. Kubelets take about as long to update
	// Pods.
	passwordDelay = time.Minute
	// refusedDelay is the interval for retrying a refused growth of volumes.
	refusedDelay = 10 * time.Minute
)

// Reconciler reconciles the Redises of all members.
type Reconciler struct {
	Members  clusters.Directory
	Recorder clusters.Recorder
	Clock    clock.PassiveClock

	answers answers
}

// Reconcile runs one pass for one Redis of one member.
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
			leaders.forget(req)
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
	events := deeds(s, done, before.Selector != "" && before.ObservedGeneration == redis.Generation)
	err = writeStatus(ctx, member.GetClient(), redis, after)
	if err == nil {
		events = append(events, transitions(s, before, after)...)
		leaders.note(req, s, after)
	}
	for _, event := range events {
		r.Recorder.Record(clusterName, redis, event)
	}
	if err != nil {
		return settle(ctrl.Result{}, err)
	}
	delay := recheck(s, p)
	if len(done.altered) > 0 {
		// If the object already was that answer, no watch event follows.
		delay = conflictDelay
	}
	return settle(ctrl.Result{RequeueAfter: delay}, failure)
}

// reportUnseen writes to the status that the member forbids access to objects of a Redis, and returns the error for a
// retry. Nothing new is known about anything else.
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

// storable removes fields that the member's schema lacks, because they would differ in every pass.
func (r *Reconciler) storable(clusterName multicluster.ClusterName, status flotillav1.RedisStatus) (flotillav1.RedisStatus, error) {
	snapshot, _ := r.Members.Snapshot(clusterName)
	return clusters.Storable(snapshot, kind, status)
}

// writeStatus writes the status if it has changed. The lock prevents a pass with an outdated object from recording the
// same transition twice.
func writeStatus(ctx context.Context, member client.Client, redis *flotillav1.Redis, after flotillav1.RedisStatus) error {
	before := *redis
	redis.Status = after
	err := statuspatch.Write(ctx, member, &before, redis, statuspatch.SameVersion, client.FieldOwner(fieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// recheck returns when to reconcile again without an event; zero means never.
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

// settle retries expected errors: conflicts, and namespaces that are being deleted.
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

// terminating reports whether the API server refuses new objects because their namespace is being deleted.
func terminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
