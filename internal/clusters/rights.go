// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// right is something that the manager does in a member.
type right struct {
	verb, group, resource, subresource, namespace string
	// kind is the kind of ours that cannot do without; empty for what every kind needs.
	kind string
}

// String says it in words.
func (r right) String() string {
	resource := r.resource
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	if r.group != "" {
		resource += "." + r.group
	}
	return r.verb + " " + resource
}

// requiredRights lists what is asked for: reading every watched kind and, unless the member is paused, the writes without
// which nothing works. It is a sample; what is missing beyond it shows on the object concerned.
func requiredRights(paused bool) []right {
	var rights []right
	for _, kind := range watchedKinds() {
		rights = append(rights,
			right{verb: "list", group: kind.group, resource: kind.resource, kind: kind.of},
			right{verb: "watch", group: kind.group, resource: kind.resource, kind: kind.of})
	}
	if paused {
		return rights
	}
	ours := flotillav1.GroupVersion.Group
	return append(rights,
		right{verb: "patch", group: ours, resource: "redises", kind: kindRedis},
		right{verb: "patch", group: ours, resource: "redises", subresource: "status", kind: kindRedis},
		right{verb: "patch", group: ours, resource: "nodepools", kind: kindNodePool},
		right{verb: "patch", group: ours, resource: "nodepools", subresource: "status", kind: kindNodePool},
		right{verb: "patch", resource: "nodes", kind: kindNodePool},
		right{verb: "delete", resource: "pods", kind: kindRedis},
		right{verb: "create", resource: "services", kind: kindRedis},
		right{verb: "create", resource: "configmaps", kind: kindRedis},
		right{verb: "create", resource: "secrets", kind: kindRedis},
		right{verb: "create", group: appsv1.GroupName, resource: "statefulsets", kind: kindRedis},
		right{verb: "create", group: policyv1.GroupName, resource: "poddisruptionbudgets", kind: kindRedis},
		right{verb: "create", group: nodev1.GroupName, resource: "runtimeclasses", kind: kindNodePool},
		right{verb: "create", group: coordinationv1.GroupName, resource: "leases", namespace: claimNamespace},
	)
}

// denials are the rights that a member does not give, in words, by the kind of ours that is off for it. There are none with
// a kind that the registration does not ask for: that one is off too, and nobody misses it.
type denials map[string][]string

// missed are the kinds that are missed, and all rights that these need, sorted.
func (d denials) missed() (kinds, names []string) {
	for _, kind := range slices.Sorted(maps.Keys(d)) {
		if len(d[kind]) > 0 {
			kinds, names = append(kinds, kind), append(names, d[kind]...)
		}
	}
	return kinds, names
}

// deniedVerdict is condition APIsServed of a member where kinds are off.
func deniedVerdict(kinds, names []string) verdict {
	return verdict{status: "False", reason: flotillav1.ReasonForbidden, message: fmt.Sprintf(
		"The member does not allow the manager to %s, so %s is off there; apply config/member there", text.List(names, 5), text.List(kinds, 5))}
}

// checkRights asks for the rights that the manager needs. A right that is missing switches the kind off that needs it; a
// member is refused when no kind is left that it takes part in, or when a right is missing that every kind needs.
func (p *Pool) checkRights(ctx context.Context, api *memberAPI, registered *registration) (denials, error) {
	missing, err := missingRights(ctx, api, requiredRights(registered.paused))
	if err == nil && len(missing) > 0 {
		err = p.afterReady(ctx, api, func() error { missing, err = missingRights(ctx, api, missing); return err })
	}
	if err != nil {
		return nil, fmt.Errorf("asking for rights: %w", err)
	}
	denied, names, common := denials{}, make([]string, 0, len(missing)), false
	for _, r := range missing {
		names = append(names, r.String())
		if r.kind == "" {
			common = true
			continue
		}
		denied[r.kind] = append(denied[r.kind], r.String())
	}
	left := false
	for _, kind := range ourKinds() {
		asked := takesPart(registered.kinds, kind)
		_, off := denied[kind]
		left = left || asked && !off
		if off && !asked {
			denied[kind] = nil
		}
	}
	if common || !left {
		return nil, refuseForbidden(names)
	}
	return denied, nil
}

// refuseForbidden refuses a member for rights that are missing.
func refuseForbidden(names []string) *refusal {
	return refuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonForbidden, "The member does not allow the manager to "+text.List(names, 5)+"; apply config/member there")
}

// missingRights asks the member for each right, a few at a time.
func missingRights(ctx context.Context, api *memberAPI, rights []right) ([]right, error) {
	allowed := make([]bool, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, r := range rights {
		group.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: r.verb, Group: r.group, Version: "*", Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace,
				},
			}}
			if err := api.client.Create(ctx, review); err != nil && !isForbidden(err) {
				return err
			}
			allowed[i] = review.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []right
	for i, r := range rights {
		if !allowed[i] {
			missing = append(missing, r)
		}
	}
	return missing, nil
}
