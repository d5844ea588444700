// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// enter writes the registration and waits until the hub works with the member.
func (r *register) enter(ctx context.Context, secret *corev1.Secret) error {
	if err := r.Stage(ctx, "registration", func(ctx context.Context, _ func(string)) (string, error) {
		if err := r.hubSite.Create(ctx, secret); err != nil {
			return "", r.hubSite.Explain("creating the registration", err)
		}
		r.undo = append(r.undo, r.takeBackRegistration(secret))
		return fmt.Sprintf("Secret %s/%s", secret.Namespace, secret.Name), nil
	}); err != nil {
		return err
	}
	var seen flotillav1.MemberCluster
	deadline := r.Clock.Now().Add(r.timeout)
	for _, step := range append(slices.Clone(condition.Joining), flotillav1.ConditionReady) {
		if r.paused && step == flotillav1.ConditionClaimed {
			continue
		}
		err := r.Stage(ctx, step, func(ctx context.Context, doing func(string)) (string, error) {
			return r.await(ctx, step, deadline.Sub(r.Clock.Now()), &seen, doing)
		})
		if condition.Of(seen.Status.Conditions, flotillav1.ConditionClaimed).Status == metav1.ConditionTrue {
			// The hub works there now, so it is a member even if it does not become ready.
			r.undo = nil
		}
		if err != nil {
			return err
		}
	}
	r.undo = nil
	r.Notef("%s is a member. See it with: kubectl flotilla status", r.name)
	return nil
}

// await waits for a condition of the member.
func (r *register) await(ctx context.Context, kind string, left time.Duration, seen *flotillav1.MemberCluster, doing func(string)) (string, error) {
	var last metav1.Condition
	met, err := site.Wait(ctx, left, func(ctx context.Context) (bool, error) {
		if err := r.hubSite.Get(ctx, client.ObjectKey{Name: r.name}, seen); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		last = condition.Of(seen.Status.Conditions, kind)
		if last.Reason != "" {
			doing(last.Reason)
		}
		return last.Status == metav1.ConditionTrue, r.refused(seen)
	})
	switch {
	case met:
		return last.Reason, nil
	case err != nil:
		return "", r.hubSite.Explain("waiting for "+kind, err)
	case seen.Name == "":
		return "", console.Faultf("make sure that the manager runs, holds its Lease, and has namespace "+r.Registrations+" among its registration.sources",
			"no manager took the registration within %s", r.timeout)
	}
	worst := condition.FirstUnmet(seen)
	return "", console.Faultf("solve that, and see kubectl flotilla doctor", "after %s %s is %s: %s: %s", r.timeout, worst.Type, worst.Status, console.OrDash(worst.Reason), console.OrDash(worst.Message))
}

// refused returns an error when the hub has refused the registration, which waiting does not change.
func (r *register) refused(seen *flotillav1.MemberCluster) error {
	if state := condition.Accepted(seen); state.Status == metav1.ConditionFalse {
		return console.Faultf("correct that and register again", "the hub refuses the registration: %s: %s", state.Reason, state.Message)
	}
	if claimed := condition.Of(seen.Status.Conditions, flotillav1.ConditionClaimed); claimed.Status == metav1.ConditionFalse {
		return console.Faultf("correct that and register again", "the hub may not work there: %s: %s", claimed.Reason, claimed.Message)
	}
	return nil
}

// takeBackRegistration deletes the Secret and waits until the hub has released the member, for which it needs the credential.
func (r *register) takeBackRegistration(secret *corev1.Secret) func(context.Context) string {
	return func(ctx context.Context) string {
		if err := r.hubSite.Delete(ctx, secret, client.Preconditions{UID: new(secret.UID)}); ignoreGone(err) != nil {
			return text.Line(r.hubSite.Explain(fmt.Sprintf("deleting Secret %s/%s", secret.Namespace, secret.Name), err).Error())
		}
		if gone, err := awaitGone(ctx, r.hubSite, r.name, undoTimeout, nil); err != nil || !gone {
			return "the registration is deleted, but the hub has not let go of it yet"
		}
		return "the registration is deleted"
	}
}

// awaitGone waits until the hub has released a member.
func awaitGone(ctx context.Context, hub *site.Site, name string, timeout time.Duration, doing func(string)) (bool, error) {
	return site.Wait(ctx, timeout, func(ctx context.Context) (bool, error) {
		member := &flotillav1.MemberCluster{}
		err := hub.Get(ctx, client.ObjectKey{Name: name}, member)
		if err == nil && doing != nil {
			doing("waiting for the hub to let go")
		}
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// undoTimeout is how long one step of undoing may take.
const undoTimeout = time.Minute

// rollBack undoes what was done, also after an interruption.
func (r *register) rollBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*undoTimeout)
	defer cancel()
	r.Notef("Taking back what was done:")
	for _, undo := range slices.Backward(r.undo) {
		r.Notef("  %s %s", console.Paint(r.ErrOut, console.Yellow, "↶"), undo(ctx))
	}
}

// ignoreGone ignores the errors of deleting what does not exist any more.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
