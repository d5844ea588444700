// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

// AcceptKubeconfig says why the pool would refuse a kubeconfig, by its bytes alone.
func AcceptKubeconfig(kubeconfig []byte, policy Policy) error {
	if _, refused := parseCredential(kubeconfig, &rules{policy: policy}); refused != nil {
		return refused
	}
	return nil
}

// Right is something that the manager asks a member for before it works there. Without it the kind is off, or the member
// is refused when Kind is empty.
type Right struct{ Verb, Group, Resource, Subresource, Namespace, Kind string }

// RequiredRights lists what the manager asks a member for.
func RequiredRights(paused bool) []Right {
	var rights []Right
	for _, r := range requiredRights(paused) {
		rights = append(rights, Right{Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Kind: r.kind})
	}
	return rights
}
