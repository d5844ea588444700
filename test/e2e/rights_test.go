// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestRights makes sure that nothing here works only because someone is an administrator: neither the manager on the hub
// nor the credential with which it comes to the members.
func TestRights(t *testing.T) {
	w := connect(t)
	users := map[*cluster]string{&w.hub: "flotilla-manager"}
	for i := range w.members {
		users[&w.members[i]] = "flotilla-hub"
	}
	for c, account := range users {
		for what, attributes := range map[string]authorizationv1.ResourceAttributes{
			"do everything":     {Verb: "*", Group: "*", Resource: "*"},
			"list all Secrets":  {Verb: "list", Resource: "secrets"},
			"run commands":      {Verb: "create", Resource: "pods", Subresource: "exec"},
			"create Pods":       {Verb: "create", Resource: "pods"},
			"grant rights":      {Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
			"delete namespaces": {Verb: "delete", Resource: "namespaces"},
		} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:flotilla-system:" + account,
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:flotilla-system", "system:authenticated"},
				ResourceAttributes: &attributes,
			}}
			if err := c.Create(t.Context(), review); err != nil {
				t.Fatalf("asking %q what %s may do: %v", c.name, account, err)
			}
			if review.Status.Allowed {
				t.Errorf("%s: %s may %s", c.name, account, what)
			}
		}
	}
}
