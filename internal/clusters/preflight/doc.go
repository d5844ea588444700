// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether the manager may and can work in a member: its version and identity, the kinds that it
// serves and their CustomResourceDefinitions, the permissions that it grants, and the claim of this hub.
//
// A Checker runs before a member is engaged. Its findings become conditions of the MemberCluster. The same functions
// check again while the member is engaged, because permissions and definitions change.
package preflight
