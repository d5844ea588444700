// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusters defines the vocabulary of member clusters: what is known about a member, how reconcilers find it, and
// the errors that they get while it cannot be worked with. It does no I/O. The packages below it do the work, and import
// each other in one direction only:
//
//	pool          maintains connection, cache and state of each member, and publishes MemberClusters
//	├── preflight     checks a member: version, identity, rights, CustomResourceDefinitions, claim
//	├── transport     the HTTP transport to a member: credentials, limits, breaker, parked watches
//	├── registration  parses registration Secrets; the only package that can reveal a credential
//	├── kinds         the cached kinds of a member and their form
//	├── events        events in members and on the hub
//	├── metrics       the series of each member
//	└── verdict       why a member is not engaged, as conditions
//	controller    runs reconcilers over all members: fair queue, gate, sources
//
// Reconcilers use this package, controller and events. Only cmd/manager imports pool.
package clusters
