// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// checkHub makes sure that the hub can take the registration and does not have it yet.
func (r *register) checkHub(ctx context.Context, _ func(string)) (string, error) {
	var err error
	if r.hubSite, err = r.hub(); err != nil {
		return "", err
	}
	existing := &flotillav1.MemberCluster{}
	err = r.hubSite.Get(ctx, client.ObjectKey{Name: r.name}, existing)
	switch {
	case err == nil:
		return "", faultf(fmt.Sprintf("kubectl flotilla rotate %s renews its credential, kubectl flotilla unregister %s ends it", r.name, r.name),
			"a member %q is already registered, at %s, with Secret %s/%s", r.name, existing.Status.Endpoint, existing.Spec.SecretRef.Namespace, existing.Spec.SecretRef.Name)
	case !apierrors.IsNotFound(err):
		return "", r.hubSite.explain("reading MemberClusters", err)
	}
	try := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.registrations, Name: r.name}}
	err = r.hubSite.Create(ctx, try, client.DryRunAll)
	switch {
	case apierrors.IsAlreadyExists(err):
		return "", faultf("give the member another name, or delete the Secret", "the Secret %s/%s exists already", r.registrations, r.name)
	case apierrors.IsNotFound(err):
		return "", faultf("apply config/hub there, or set --registration-namespace", "%s has no namespace %q", r.hubSite.called, r.registrations)
	case err != nil:
		return "", r.hubSite.explain("trying to create the registration", err)
	}
	return "reachable, has no member " + r.name, nil
}

// checkMember makes sure that the member can be one, and that we may do there what is to be done.
func (r *register) checkMember(ctx context.Context, doing func(string)) (string, error) {
	var err error
	if r.member, err = r.memberByContext(r.context); err != nil {
		return "", err
	}
	if r.uid, err = r.member.identity(ctx); err != nil {
		return "", err
	}
	if err := r.checkIdentity(ctx); err != nil {
		return "", err
	}
	if err := r.checkClaim(ctx); err != nil {
		return "", err
	}
	version, err := r.member.version(ctx)
	if err != nil {
		return "", err
	}
	if !r.skipManifests {
		doing("trying the manifests")
		objects, err := memberManifests()
		if err == nil {
			err = tryMemberManifests(ctx, r.member, objects)
		}
		if err != nil {
			return "", err
		}
	}
	return "reachable, Kubernetes " + version, nil
}

// checkIdentity makes sure that the cluster is neither the hub nor a member already.
func (r *register) checkIdentity(ctx context.Context) error {
	if r.hubSite == nil {
		return nil
	}
	hubUID, err := r.hubSite.identity(ctx)
	if err != nil {
		return err
	}
	if hubUID == r.uid {
		return faultf("choose the context of another cluster", "%s is the hub itself, which is no member", r.member.called)
	}
	members, err := r.hubSite.members(ctx)
	if err != nil {
		return err
	}
	for i := range members {
		if types.UID(members[i].Status.UID) == r.uid {
			return faultf("a cluster is one member; kubectl flotilla unregister "+members[i].Name+" ends that one",
				"%s is already registered as %q", r.member.called, members[i].Name)
		}
	}
	return nil
}

// checkClaim makes sure that no hub works with the member, and that it is none itself.
func (r *register) checkClaim(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	err := r.member.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: serviceAccount}, lease)
	if client.IgnoreNotFound(err) != nil {
		return r.member.explain("reading the claim", err)
	}
	if hubID, alive := r.claimant(lease); err == nil && alive && hubID != r.takeOver {
		return faultf(fmt.Sprintf("unregister it there, or pass --take-over=%s", hubID),
			"%s is claimed by hub %q, which renewed its claim %s ago", r.member.called, hubID, r.ago(&metav1.Time{Time: lease.Spec.RenewTime.Time}))
	}
	list := &flotillav1.MemberClusterList{}
	err = r.member.List(ctx, list, client.Limit(1))
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && len(list.Items) > 0 {
		return faultf("choose the context of another cluster", "%s has MemberClusters and so is a hub itself", r.member.called)
	}
	return r.member.explain("looking for MemberClusters", err)
}

// claimant returns the id of the hub that holds a claim, and whether it has renewed it in time.
func (t *tool) claimant(lease *coordinationv1.Lease) (hubID string, alive bool) {
	hubID, _, _ = strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "/")
	if hubID == "" || lease.Spec.RenewTime == nil {
		return hubID, false
	}
	end := lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	return hubID, t.clock.Now().Before(end)
}
