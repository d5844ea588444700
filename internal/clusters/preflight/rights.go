// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Right is a permission that the manager needs in a member.
type Right struct {
	Verb, Group, Resource, Subresource, Namespace, Name string
	// Kind is the kind that is off without the permission. If it is empty, the member is refused instead.
	Kind string
}

// String returns verb and resource, and the name of an object if the permission is limited to it.
func (r Right) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += "/" + r.Name
	}
	return r.Verb + " " + resource
}

// RequiredRights returns the permissions to check: reading every watched kind and, unless the member is paused, the
// essential writes. It is a sample; others that are missing surface on the affected object.
func RequiredRights(paused bool) []Right {
	var rights []Right
	for _, kind := range kinds.Watched() {
		rights = append(rights,
			Right{Verb: "list", Group: kind.Group, Resource: kind.Resource, Kind: kind.Of},
			Right{Verb: "watch", Group: kind.Group, Resource: kind.Resource, Kind: kind.Of})
	}
	if paused {
		return rights
	}
	ours := flotillav1.GroupVersion.Group
	return append(rights,
		Right{Verb: "patch", Group: ours, Resource: "redises", Kind: flotillav1.KindRedis},
		Right{Verb: "patch", Group: ours, Resource: "redises", Subresource: "status", Kind: flotillav1.KindRedis},
		Right{Verb: "patch", Group: ours, Resource: "nodepools", Kind: flotillav1.KindNodePool},
		Right{Verb: "patch", Group: ours, Resource: "nodepools", Subresource: "status", Kind: flotillav1.KindNodePool},
		Right{Verb: "patch", Resource: "nodes", Kind: flotillav1.KindNodePool},
		Right{Verb: "delete", Resource: "pods", Kind: flotillav1.KindRedis},
		Right{Verb: "create", Resource: "services", Kind: flotillav1.KindRedis},
		Right{Verb: "create", Resource: "configmaps", Kind: flotillav1.KindRedis},
		Right{Verb: "create", Resource: "secrets", Kind: flotillav1.KindRedis},
		Right{Verb: "create", Group: appsv1.GroupName, Resource: "statefulsets", Kind: flotillav1.KindRedis},
		Right{Verb: "create", Group: policyv1.GroupName, Resource: "poddisruptionbudgets", Kind: flotillav1.KindRedis},
		Right{Verb: "create", Group: nodev1.GroupName, Resource: "runtimeclasses", Kind: flotillav1.KindNodePool},
		Right{Verb: "create", Group: coordinationv1.GroupName, Resource: "leases", Namespace: ClaimNamespace},
	)
}

// deniedVerdict returns condition APIsServed of a member where kinds are off.
func deniedVerdict(kinds, names []string) verdict.Verdict {
	return verdict.Verdict{Status: "False", Reason: flotillav1.ReasonForbidden, Message: fmt.Sprintf(
		"The member does not allow the manager to %s, so %s is off there; apply config/member there", text.List(names, 5), text.List(kinds, 5))}
}

// CheckRights checks the permissions that the manager needs. A missing permission turns off the kind that needs it. The
// member is refused if every kind that it takes part in is off, or if a permission is missing that all kinds need.
func CheckRights(ctx context.Context, api *API, registered *registration.Registration) (kinds.Denials, error) {
	missing, err := MissingRights(ctx, api, RequiredRights(registered.Paused))
	if err != nil {
		return nil, err
	}
	denied, names, common := kinds.Denials{}, make([]string, 0, len(missing)), false
	for _, r := range missing {
		names = append(names, r.String())
		if r.Kind == "" {
			common = true
			continue
		}
		denied[r.Kind] = append(denied[r.Kind], r.String())
	}
	left := false
	for _, kind := range clusters.OurKinds() {
		asked := clusters.TakesPart(registered.Kinds, kind)
		_, off := denied[kind]
		left = left || asked && !off
		if off && !asked {
			denied[kind] = nil
		}
	}
	if common || !left {
		return nil, RefuseForbidden(names)
	}
	return denied, nil
}

// RefuseForbidden refuses a member because permissions are missing.
func RefuseForbidden(names []string) *verdict.Refusal {
	return verdict.RefuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonForbidden, "The member does not allow the manager to "+text.List(names, 5)+"; apply config/member there")
}

// MissingRights returns the permissions that the member denies.
func MissingRights(ctx context.Context, api *API, rights []Right) ([]Right, error) {
	missing, err := missingRights(ctx, api, rights)
	if err == nil && len(missing) > 0 {
		err = afterReady(ctx, api, func() error { missing, err = missingRights(ctx, api, missing); return err })
	}
	if err != nil {
		return nil, fmt.Errorf("asking for rights: %w", err)
	}
	return missing, nil
}

// missingRights checks each permission with the member, a few at a time.
func missingRights(ctx context.Context, api *API, rights []Right) ([]Right, error) {
	allowed := make([]bool, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, r := range rights {
		group.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: r.Verb, Group: r.Group, Version: "*", Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
				},
			}}
			if err := api.Client.Create(ctx, review); err != nil && !verdict.IsForbidden(err) {
				return err
			}
			allowed[i] = review.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []Right
	for i, r := range rights {
		if !allowed[i] {
			missing = append(missing, r)
		}
	}
	return missing, nil
}
