// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	claimNamespace = "flotilla-system"
	claimName      = "flotilla-hub"
	// maxHolder is how much of an identity that someone else wrote into the Lease is quoted.
	maxHolder = 63
)

// claim is how a hub says in a member that the member is its own: a Lease that it renews. Teams of the member read there
// when the hub was last seen.
type claim struct {
	hubID    string
	instance string
	duration time.Duration
	clock    clock.PassiveClock
}

// holder is the identity in the Lease.
func (c claim) holder() string { return c.hubID + "/" + c.instance }

// hold takes or renews the claim. It returns a *refusal, and has written nothing, when someone else holds it.
func (c claim) hold(ctx context.Context, member client.Client, takeOver string) error {
	lease := &coordinationv1.Lease{}
	err := member.Get(ctx, client.ObjectKey{Namespace: claimNamespace, Name: claimName}, lease)
	if apierrors.IsNotFound(err) {
		return c.create(ctx, member)
	}
	if err != nil {
		return fmt.Errorf("reading the claim: %w", err)
	}
	if refused := c.contest(lease, takeOver); refused != nil {
		return refused
	}
	now := metav1.NewMicroTime(c.clock.Now())
	if ptr.Deref(lease.Spec.HolderIdentity, "") != c.holder() {
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = new(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = new(c.holder())
	lease.Spec.LeaseDurationSeconds = new(int32(c.duration / time.Second))
	lease.Spec.RenewTime = &now
	// The update carries the resourceVersion that was read, so that of two hubs only one can take it.
	if err := member.Update(ctx, lease); err != nil {
		return fmt.Errorf("renewing the claim: %w", err)
	}
	return nil
}

// contest says whether someone else holds the claim.
func (c claim) contest(lease *coordinationv1.Lease, takeOver string) *refusal {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	hubID, instance, _ := strings.Cut(holder, "/")
	switch {
	case holder == "" || holder == c.holder() || (takeOver != "" && hubID == takeOver):
		return nil
	case hubID != c.hubID:
		return refuseMember(flotillav1.ConditionClaimed, flotillav1.ReasonClaimedByAnotherHub, fmt.Sprintf(
			"The member is claimed by hub %q; annotate the registration with %s: %q to take it over",
			text.Cut(hubID, maxHolder), flotillav1.AnnotationTakeOver, text.Cut(hubID, maxHolder)))
	case c.expired(lease):
		return nil
	default:
		return refuseMember(flotillav1.ConditionClaimed, flotillav1.ReasonSuperseded,
			fmt.Sprintf("The member is claimed by another instance %q of this hub; stop one of the two, or give them different ids", text.Cut(instance, maxHolder)))
	}
}

// expired says whether the holder has not renewed in time.
func (c claim) expired(lease *coordinationv1.Lease) bool {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	end := lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
	return c.clock.Now().After(end)
}

// create makes the Lease, and its namespace when that is missing.
func (c claim) create(ctx context.Context, member client.Client) error {
	now := metav1.NewMicroTime(c.clock.Now())
	lease := func() *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: claimNamespace, Name: claimName},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity:       new(c.holder()),
				LeaseDurationSeconds: new(int32(c.duration / time.Second)),
				AcquireTime:          &now,
				RenewTime:            &now,
				LeaseTransitions:     ptr.To[int32](0),
			},
		}
	}
	err := member.Create(ctx, lease())
	if apierrors.IsNotFound(err) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: claimNamespace}}
		if err := member.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating namespace %q: %w", claimNamespace, err)
		}
		err = member.Create(ctx, lease())
	}
	if err != nil {
		return fmt.Errorf("creating the claim: %w", err)
	}
	return nil
}

// release gives the claim up if this hub holds it.
func (c claim) release(ctx context.Context, member client.Client) error {
	lease := &coordinationv1.Lease{}
	err := member.Get(ctx, client.ObjectKey{Namespace: claimNamespace, Name: claimName}, lease)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != c.holder() {
		return nil
	}
	preconditions := client.Preconditions{UID: new(lease.UID), ResourceVersion: new(lease.ResourceVersion)}
	return client.IgnoreNotFound(member.Delete(ctx, lease, preconditions))
}
