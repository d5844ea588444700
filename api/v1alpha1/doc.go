// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the Flotilla API: Redis and NodePool, the same kinds on
// the hub and in every member, and MemberCluster, what the hub knows about a member.
//
// +kubebuilder:object:generate=true
// +groupName=flotilla.dev
package v1alpha1
