// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The kinds of this package.
const (
	KindRedis         = "Redis"
	KindNodePool      = "NodePool"
	KindMemberCluster = "MemberCluster"
)

// Names that the manager, its manifests and kubectl flotilla share.
const (
	// SystemNamespace is the namespace of the manager on the hub, and of the claim and the hub's ServiceAccount in a
	// member.
	SystemNamespace = "flotilla-system"
	// RegistrationNamespace is the namespace of the registrations on the hub, unless configured otherwise.
	RegistrationNamespace = "flotilla-clusters"
	// HubServiceAccount is the identity of the hub in a member.
	HubServiceAccount = "flotilla-hub"
	// ClaimLease is the Lease in a member that names the hub that manages it.
	ClaimLease = "flotilla-hub"
	// ManagerLease is the Lease on the hub that the manager holds while it leads.
	ManagerLease = "flotilla-manager"
	// FreezeConfigMap is the ConfigMap on the hub that suspends all writes to the members that it selects.
	FreezeConfigMap = "flotilla-freeze"
)

// MinKubernetesVersion is the oldest version of Kubernetes that a member may run.
const MinKubernetesVersion = "1.30.0"
