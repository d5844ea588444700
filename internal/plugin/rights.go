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
	"k8s.io/component-helpers/auth/rbac/validation"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// uncovered returns the rights in some rules that others do not cover. Paths, such as /healthz, do not count.
func uncovered(by, rules []rbacv1.PolicyRule, namespace string) []preflight.Right {
	_, single := validation.Covers(by, rules)
	var rights []preflight.Right
	for _, rule := range single {
		if len(rule.Resources) == 0 {
			continue
		}
		resource, sub, _ := strings.Cut(rule.Resources[0], "/")
		right := preflight.Right{Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Namespace: namespace}
		if len(rule.ResourceNames) > 0 {
			right.Name = rule.ResourceNames[0]
		}
		rights = append(rights, right)
	}
	return rights
}

// everyonesGroups are API groups whose reviews of oneself every user may create.
var everyonesGroups = []string{authorizationv1.GroupName, authenticationv1.GroupName}

// examineRights compares what the hub's credential may do in a member, which is reached already, with what config/member
// gives.
func (t *tool) examineRights(ctx context.Context, e *examination, ways *site.Ways, member *flotillav1.MemberCluster, from *site.Site) {
	if !from.ByRegistration {
		var err error
		if from, err = ways.ByRegistration(ctx, member); err != nil {
			e.failed(note, err)
			return
		}
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: flotillav1.SystemNamespace}}
	if err := from.Create(ctx, review); err != nil {
		e.failed(note, from.Explain("asking for the rights of the hub's credential", err))
		return
	}
	var rules []rbacv1.PolicyRule
	for _, rule := range review.Status.ResourceRules {
		rules = append(rules, rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
	}
	clusterWide, inSystem, err := manifests.Roles()
	if err != nil {
		e.failed(note, err)
		return
	}
	unlisted := append(uncovered(rules, clusterWide, ""), uncovered(rules, inSystem, flotillav1.SystemNamespace)...)
	kinds := registeredKinds(ctx, ways, member)
	// Some authorizers cannot list rights, so those that are not listed are asked for one by one, as the manager does.
	missing, err := preflight.MissingRights(ctx, from.API, slices.DeleteFunc(unlisted, func(r preflight.Right) bool {
		kind := ofKind(r.Group, r.Resource)
		return kind != "" && !clusters.TakesPart(kinds, kind)
	}))
	if err != nil {
		e.failed(note, from.Explain("asking for the rights of the hub's credential", err))
		return
	}
	if len(missing) > 0 {
		e.found(warning, "kubectl --context MEMBER apply --server-side -k config/member, unless they are given in some namespaces only (kubectl flotilla rbac)",
			"the hub's credential lacks rights of config/member: %s", inWords(missing))
	}
	more := slices.DeleteFunc(uncovered(append(clusterWide, inSystem...), rules, ""), func(r preflight.Right) bool {
		return slices.Contains(everyonesGroups, r.Group)
	})
	if len(more) > 0 {
		e.found(warning, "take them away: find the bindings with kubectl --context MEMBER get clusterrolebindings,rolebindings -A -o wide | grep "+flotillav1.HubServiceAccount+"; if the hub installs the schemas (members.crds: Install), it needs them: apply config/member/crd_installer.yaml",
			"the hub's credential has rights that it does not need: %s", inWords(more))
	} else if len(missing) == 0 {
		e.fine("rights as config/member gives them")
	}
}

// registeredKinds returns the kinds that a member takes part in; none if its registration does not say or cannot be read.
func registeredKinds(ctx context.Context, ways *site.Ways, member *flotillav1.MemberCluster) []string {
	secret, err := ways.Hub.Registration(ctx, member)
	if err != nil {
		return nil
	}
	if registered, found := registration.Of(secret); found {
		return registered.Kinds
	}
	return nil
}

// inWords lists rights for a message.
func inWords(rights []preflight.Right) string {
	var words []string
	for _, r := range rights {
		words = append(words, r.String())
	}
	slices.Sort(words)
	return text.List(slices.Compact(words), 8)
}
