// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the Flotilla API: Redis and NodePool, which are the same kinds on the hub and in every
// member, and MemberCluster, which represents a member on the hub.
//
// +kubebuilder:object:generate=true
// +groupName=flotilla.dev
package v1alpha1
