// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// grant is the right to do one thing with one resource, or with one object of it.
type grant struct{ verb, group, resource, name string }

// String says it in words.
func (g grant) String() string {
	text := g.verb + " " + g.resource
	if g.group != "" {
		text += "." + g.group
	}
	if g.name != "" {
		text += "/" + g.name
	}
	return text
}

// grantsOf takes rules apart.
func grantsOf(rules []rbacv1.PolicyRule) []grant {
	var grants []grant
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						grants = append(grants, grant{verb, group, resource, name})
					}
				}
			}
		}
	}
	return grants
}

// covers says whether one of the grants gives what another one does.
func covers(grants []grant, wanted grant) bool {
	matches := func(have, want string) bool { return have == "*" || have == want }
	return slices.ContainsFunc(grants, func(g grant) bool {
		return matches(g.verb, wanted.verb) && matches(g.group, wanted.group) && matches(g.resource, wanted.resource) && (g.name == "" || g.name == wanted.name)
	})
}

// everyonesGroups are those whose reviews of oneself everybody may ask for.
var everyonesGroups = []string{authorizationv1.GroupName, authenticationv1.GroupName}

// examineRights compares what the hub's credential may do in a member with what config/member gives.
func (t *tool) examineRights(ctx context.Context, e *examination, into *ways, member *flotillav1.MemberCluster) {
	from, err := into.byRegistration(ctx, member)
	if err == nil {
		err = from.mustBe(ctx, member)
	}
	if err != nil {
		e.failed(note, err)
		return
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: systemNamespace}}
	if err := from.Create(ctx, review); err != nil {
		e.failed(note, from.explain("asking for the rights of the hub's credential", err))
		return
	}
	var rules []rbacv1.PolicyRule
	for _, rule := range review.Status.ResourceRules {
		rules = append(rules, rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
	}
	held := grantsOf(rules)
	clusterWide, inSystem, err := memberRoles()
	if err != nil {
		e.failed(note, err)
		return
	}
	all := grantsOf(append(clusterWide, inSystem...))
	if lacking := t.lacking(held, all, t.kindsOf(ctx, into, member)); len(lacking) > 0 && !review.Status.Incomplete {
		e.found(warning, "kubectl --context MEMBER apply --server-side -k config/member, unless they are given in some namespaces only (kubectl flotilla rbac)",
			"the hub's credential lacks rights of config/member: %s", text.List(lacking, 8))
	}
	if surplus := surplusOf(held, all); len(surplus) > 0 {
		e.found(warning, "take them away: find the bindings with kubectl --context MEMBER get clusterrolebindings,rolebindings -A -o wide | grep "+serviceAccount+"; for members.crds: Install, config/member/crd_installer.yaml is meant",
			"the hub's credential has rights that it does not need: %s", text.List(surplus, 8))
		return
	}
	e.fine("rights as config/member gives them")
}

// kindsOf are the kinds that a member takes part in.
func (t *tool) kindsOf(ctx context.Context, into *ways, member *flotillav1.MemberCluster) []string {
	secret, err := into.hub.registration(ctx, member)
	if err != nil || secret.Annotations[flotillav1.AnnotationKinds] == "" {
		return []string{fleet.Redis.Name, fleet.NodePool.Name}
	}
	var kinds []string
	for kind := range strings.SplitSeq(secret.Annotations[flotillav1.AnnotationKinds], ",") {
		kinds = append(kinds, strings.TrimSpace(kind))
	}
	return kinds
}

// lacking are the rights that kinds need and that are not held.
func (t *tool) lacking(held, needed []grant, kinds []string) []string {
	var lacking []string
	for _, g := range needed {
		kind := ofKind(g.group, g.resource)
		if (kind == "" || slices.Contains(kinds, kind)) && !covers(held, g) {
			lacking = append(lacking, g.String())
		}
	}
	slices.Sort(lacking)
	return slices.Compact(lacking)
}

// surplusOf are the rights that are held and not needed.
func surplusOf(held, needed []grant) []string {
	var surplus []string
	for _, g := range held {
		if !slices.Contains(everyonesGroups, g.group) && !covers(needed, g) {
			surplus = append(surplus, g.String())
		}
	}
	slices.Sort(surplus)
	return slices.Compact(surplus)
}
