// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"slices"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// everyNamespace stands for all namespaces of the hub, and for its cluster-scoped objects.
const everyNamespace = "*"

// readNamespaces reads who may place in a member; nil when the registration does not say. An empty list is nobody.
func readNamespaces(annotations map[string]string) []string {
	list, said := annotations[flotillav1.AnnotationAllowedNamespaces]
	if !said {
		return nil
	}
	return append([]string{}, splitList(list)...)
}

// tenants resolves what a registration says; nil is everybody. Cluster-scoped objects belong to no tenant: who may make
// them on the hub may place them, unless tenancy is enforced, which takes the word of the registration for everything.
func (p *Pool) tenants(namespaces []string) []string {
	switch {
	case slices.Contains(namespaces, everyNamespace), namespaces == nil && !p.cfg.EnforceTenancy:
		return nil
	case p.cfg.EnforceTenancy:
		return append([]string{}, namespaces...)
	default:
		return append([]string{""}, namespaces...)
	}
}
