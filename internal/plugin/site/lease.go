// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Lease is the claim of a hub in a member, or the Lease of the manager on the hub.
type Lease struct{ *coordinationv1.Lease }

// Claim reads the claim in a member. With an error the claim is empty.
func (s *Site) Claim(ctx context.Context) (Lease, error) {
	return s.lease(ctx, flotillav1.ClaimLease, "reading the claim")
}

// ManagerLease reads the Lease of the manager on the hub. With an error it is empty.
func (s *Site) ManagerLease(ctx context.Context) (Lease, error) {
	return s.lease(ctx, flotillav1.ManagerLease, "reading the Lease of the manager")
}

func (s *Site) lease(ctx context.Context, name, doing string) (Lease, error) {
	lease := Lease{&coordinationv1.Lease{}}
	err := s.Get(ctx, client.ObjectKey{Namespace: flotillav1.SystemNamespace, Name: name}, lease.Lease)
	return lease, s.Explain(doing, err)
}

// HubID returns the id of the hub that holds a claim.
func (l Lease) HubID() string {
	hubID, _, _ := strings.Cut(ptr.Deref(l.Spec.HolderIdentity, ""), "/")
	return hubID
}

// Renewed returns when the Lease was renewed last; nil for never.
func (l Lease) Renewed() *metav1.Time {
	if l.Spec.RenewTime == nil {
		return nil
	}
	return &metav1.Time{Time: l.Spec.RenewTime.Time}
}

// HeldAt reports whether the holder has renewed the Lease in time.
func (l Lease) HeldAt(now time.Time) bool {
	if l.HubID() == "" || l.Spec.RenewTime == nil {
		return false
	}
	return now.Before(l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second))
}
