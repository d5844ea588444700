// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// enter writes the registration and waits until the hub works with the member.
func (r *register) enter(ctx context.Context, secret *corev1.Secret) error {
	if err := r.stage(ctx, "registration", func(ctx context.Context, _ func(string)) (string, error) {
		if err := r.hubSite.Create(ctx, secret); err != nil {
			return "", r.hubSite.explain("creating the registration", err)
		}
		r.undo = append(r.undo, r.takeBackRegistration(secret))
		return fmt.Sprintf("Secret %s/%s", secret.Namespace, secret.Name), nil
	}); err != nil {
		return err
	}
	var seen flotillav1.MemberCluster
	deadline := r.clock.Now().Add(r.timeout)
	for _, step := range []string{
		flotillav1.ConditionCredentialsAccepted, flotillav1.ConditionReachable, flotillav1.ConditionAPIsServed,
		flotillav1.ConditionClaimed, flotillav1.ConditionCachesSynced, flotillav1.ConditionReady,
	} {
		if r.paused && step == flotillav1.ConditionClaimed {
			continue
		}
		err := r.stage(ctx, step, func(ctx context.Context, doing func(string)) (string, error) {
			return r.await(ctx, step, deadline.Sub(r.clock.Now()), &seen, doing)
		})
		if condition(seen.Status.Conditions, flotillav1.ConditionClaimed).Status == metav1.ConditionTrue {
			// The hub has begun to work there: it is a member, however it fares.
			r.undo = nil
		}
		if err != nil {
			return err
		}
	}
	r.undo = nil
	r.say("%s is a member. See it with: kubectl flotilla status", r.name)
	return nil
}

// await waits for a condition of the member.
func (r *register) await(ctx context.Context, kind string, left time.Duration, seen *flotillav1.MemberCluster, doing func(string)) (string, error) {
	var last metav1.Condition
	met, err := poll(ctx, left, func(ctx context.Context) (bool, error) {
		if err := r.hubSite.Get(ctx, client.ObjectKey{Name: r.name}, seen); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		last = condition(seen.Status.Conditions, kind)
		if last.Reason != "" {
			doing(last.Reason)
		}
		return last.Status == metav1.ConditionTrue, r.refused(seen)
	})
	switch {
	case met:
		return last.Reason, nil
	case err != nil:
		return "", r.hubSite.explain("waiting for "+kind, err)
	case seen.Name == "":
		return "", faultf("make sure that the manager runs, holds its Lease, and has namespace "+r.registrations+" among its registration.sources",
			"no manager took the registration within %s", r.timeout)
	}
	worst := firstUnmet(seen)
	return "", faultf("solve that, and see kubectl flotilla doctor", "after %s %s is %s: %s: %s", r.timeout, worst.Type, worst.Status, or(worst.Reason), or(worst.Message))
}

// refused returns an error when the hub has refused the registration for good, so that waiting is of no use.
func (r *register) refused(seen *flotillav1.MemberCluster) error {
	accepted := condition(seen.Status.Conditions, flotillav1.ConditionCredentialsAccepted)
	if accepted.Status == metav1.ConditionFalse {
		return faultf("correct that and register again", "the hub refuses the registration: %s: %s", accepted.Reason, accepted.Message)
	}
	claimed := condition(seen.Status.Conditions, flotillav1.ConditionClaimed)
	if claimed.Status == metav1.ConditionFalse {
		return faultf("correct that and register again", "the hub may not work there: %s: %s", claimed.Reason, claimed.Message)
	}
	return nil
}

// firstUnmet is the condition that the others wait for.
func firstUnmet(member *flotillav1.MemberCluster) metav1.Condition {
	for _, kind := range []string{
		flotillav1.ConditionCredentialsAccepted, flotillav1.ConditionReachable, flotillav1.ConditionAPIsServed,
		flotillav1.ConditionClaimed, flotillav1.ConditionCachesSynced,
	} {
		if found := apimeta.FindStatusCondition(member.Status.Conditions, kind); found != nil && found.Status == metav1.ConditionFalse {
			return *found
		}
	}
	return condition(member.Status.Conditions, flotillav1.ConditionReady)
}

// takeBackRegistration deletes the Secret and waits until the hub has let go, because it needs the credential for that.
func (r *register) takeBackRegistration(secret *corev1.Secret) func(context.Context) string {
	return func(ctx context.Context) string {
		if err := r.hubSite.Delete(ctx, secret, client.Preconditions{UID: new(secret.UID)}); ignoreGone(err) != nil {
			return text.Line(r.hubSite.explain(fmt.Sprintf("deleting Secret %s/%s", secret.Namespace, secret.Name), err).Error())
		}
		if gone, err := r.awaitGone(ctx, r.hubSite, r.name, undoTimeout, nil); err != nil || !gone {
			return "the registration is deleted, but the hub has not let go of it yet"
		}
		return "the registration is deleted"
	}
}

// awaitGone waits until the hub has let go of a member.
func (t *tool) awaitGone(ctx context.Context, hub *site, name string, timeout time.Duration, doing func(string)) (bool, error) {
	return poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		member := &flotillav1.MemberCluster{}
		err := hub.Get(ctx, client.ObjectKey{Name: name}, member)
		if err == nil && doing != nil {
			doing("waiting for the hub to let go")
		}
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// undoTimeout is how long taking back may take.
const undoTimeout = time.Minute

// rollBack takes back what was done, also after an interruption.
func (r *register) rollBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*undoTimeout)
	defer cancel()
	r.say("Taking back what was done:")
	for _, undo := range slices.Backward(r.undo) {
		r.say("  %s %s", paint(r.ErrOut, yellow, "↶"), undo(ctx))
	}
}
