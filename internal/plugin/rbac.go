// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

func newRBAC(t *tool) *cobra.Command {
	var kinds, namespaces []string
	c := &cobra.Command{
		Use:   "rbac [--kinds KINDS] [--namespaces NAMESPACES]",
		Short: "Print the smallest manifest that gives the hub what it needs in a member",
		Long: `Print a manifest for a member that gives fewer rights than config/member: only for some kinds, or with rights to write in
some namespaces only. No cluster is contacted.

With --kinds the registration must name the same kinds: register --kinds, or annotation flotilla.dev/kinds.
With --namespaces a Redis can be made in these namespaces only. The rights to read stay, because the manager watches the
whole member, and so do the rights that it requires of every member. All other rights, such as those to passwords and to
change and delete objects, are limited to the namespaces. The namespaces must exist, because the right to create them is
omitted.

Apply it with a context of the member, then: kubectl flotilla register NAME --skip-manifests --kinds KINDS ...`,
		Example: `  kubectl flotilla rbac --kinds Redis --namespaces shop,pay | kubectl --context eu-1-admin apply -f -`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return t.rbac(kinds, namespaces) },
	}
	c.Flags().StringSliceVar(&kinds, "kinds", fleet.KindNames, "Kinds that the member takes part in")
	c.Flags().StringSliceVar(&namespaces, "namespaces", nil, "Namespaces where Redis may be made; all if empty")
	_ = c.RegisterFlagCompletionFunc("kinds", cobra.FixedCompletions(fleet.KindNames, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (t *tool) rbac(kinds, namespaces []string) error {
	for _, kind := range kinds {
		if err := console.CheckOneOf("kind", kind, fleet.KindNames); err != nil {
			return err
		}
	}
	if len(namespaces) > 0 && !slices.Contains(kinds, fleet.Redis.Name) {
		return console.Faultf("leave it out, or add Redis to --kinds", "--namespaces is about Redis; a NodePool has no namespace")
	}
	objects, err := manifests.Member()
	if err != nil {
		return err
	}
	printer := printers.NewTypeSetter(site.Scheme()).ToPrinter(&printers.YAMLPrinter{})
	for _, object := range objects {
		if !isFor(object, kinds) {
			continue
		}
		printed := []runtime.Object{object}
		if object.GetKind() == "ClusterRole" {
			printed = narrow(object, kinds, namespaces)
		}
		for _, object := range printed {
			if err := printer.PrintObj(object, t.Out); err != nil {
				return fmt.Errorf("printing: %w", err)
			}
		}
	}
	return nil
}

// isFor reports whether a member that takes part in kinds needs an object. The policy is about NodePools; every member needs
// all schemas.
func isFor(object *unstructured.Unstructured, kinds []string) bool {
	switch object.GetKind() {
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return slices.Contains(kinds, fleet.NodePool.Name)
	}
	return true
}

// narrow limits a ClusterRole to kinds, and moves what can be limited to namespaces into Roles.
func narrow(object *unstructured.Unstructured, kinds, namespaces []string) []runtime.Object {
	role := &rbacv1.ClusterRole{}
	// A ClusterRole that the API server accepts decodes.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
		return []runtime.Object{object}
	}
	var within []rbacv1.PolicyRule
	kept := make([]rbacv1.PolicyRule, 0, len(role.Rules))
	for _, rule := range role.Rules {
		for _, single := range forKinds(rule, kinds) {
			if len(namespaces) == 0 {
				kept = append(kept, single)
				continue
			}
			wide, narrowed := split(single)
			if len(wide.Verbs) > 0 {
				kept = append(kept, wide)
			}
			if len(narrowed.Verbs) > 0 {
				within = append(within, narrowed)
			}
		}
	}
	role.Rules = joinRules(kept)
	results := []runtime.Object{role}
	for _, namespace := range namespaces {
		if len(within) == 0 {
			break
		}
		meta := metav1.ObjectMeta{Namespace: namespace, Name: role.Name}
		results = append(results,
			&rbacv1.Role{ObjectMeta: meta, Rules: joinRules(within)},
			&rbacv1.RoleBinding{
				ObjectMeta: meta,
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: flotillav1.SystemNamespace, Name: flotillav1.HubServiceAccount}},
			})
	}
	return results
}

// ofKind returns the kind that a resource is needed for, or nothing when both need it. The rights that the manager requires
// say so, except for Secrets, which hold the passwords of Redis.
func ofKind(group, resource string) string {
	resource, _, _ = strings.Cut(resource, "/")
	if group == corev1.GroupName && resource == "secrets" {
		return fleet.Redis.Name
	}
	for _, right := range preflight.RequiredRights(false) {
		if right.Group == group && right.Resource == resource {
			return right.Kind
		}
	}
	return ""
}

// forKinds reduces a rule to what kinds need, resource by resource.
func forKinds(rule rbacv1.PolicyRule, kinds []string) []rbacv1.PolicyRule {
	if len(rule.Resources) == 0 {
		return []rbacv1.PolicyRule{rule}
	}
	var kept []rbacv1.PolicyRule
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if kind := ofKind(group, resource); kind != "" && !slices.Contains(kinds, kind) {
				continue
			}
			single := rule.DeepCopy()
			single.APIGroups, single.Resources = []string{group}, []string{resource}
			single.ResourceNames = definitionsOf(single.ResourceNames, kinds)
			if resource == "namespaces" && !slices.Contains(kinds, fleet.Redis.Name) {
				single.Verbs = []string{"get"}
			}
			kept = append(kept, *single)
		}
	}
	return kept
}

// definitionsOf omits the definitions of kinds that a member does not take part in. The manager reads both, and works
// without the right to read one.
func definitionsOf(names, kinds []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(placedKinds, func(kind fleet.Kind) bool { return name == kind.CRD && !slices.Contains(kinds, kind.Name) })
	})
}

// split returns which verbs of a rule for one resource must hold in the whole member, and which can be limited to
// namespaces. What the manager requires must hold everywhere, because it regards the kind as forbidden otherwise.
func split(rule rbacv1.PolicyRule) (wide, within rbacv1.PolicyRule) {
	wide, within = *rule.DeepCopy(), *rule.DeepCopy()
	if len(rule.Resources) == 0 {
		within.Verbs = nil
		return wide, within
	}
	group, resource := rule.APIGroups[0], rule.Resources[0]
	whole, sub, _ := strings.Cut(resource, "/")
	switch {
	case group == corev1.GroupName && whole == "namespaces":
		wide.Verbs, within.Verbs = []string{"get"}, nil
		return wide, within
	case ofKind(group, resource) != fleet.Redis.Name:
		within.Verbs = nil
		return wide, within
	}
	wide.Verbs, within.Verbs = nil, nil
	for _, verb := range rule.Verbs {
		asked := slices.ContainsFunc(preflight.RequiredRights(false), func(right preflight.Right) bool {
			return right.Group == group && right.Resource == whole && right.Subresource == sub && right.Verb == verb && right.Namespace == ""
		})
		if asked || whole == "redises" && group == flotillav1.GroupVersion.Group && verb == "get" {
			wide.Verbs = append(wide.Verbs, verb)
		} else {
			within.Verbs = append(within.Verbs, verb)
		}
	}
	return wide, within
}

// joinRules joins the resources of rules with the same group, verbs and names.
func joinRules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var joined []rbacv1.PolicyRule
	for _, rule := range rules {
		i := slices.IndexFunc(joined, func(other rbacv1.PolicyRule) bool {
			return len(rule.Resources) > 0 && slices.Equal(other.APIGroups, rule.APIGroups) && slices.Equal(other.Verbs, rule.Verbs) && slices.Equal(other.ResourceNames, rule.ResourceNames)
		})
		if i < 0 {
			joined = append(joined, rule)
			continue
		}
		joined[i].Resources = append(joined[i].Resources, rule.Resources...)
	}
	return joined
}
