// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kinds defines what is cached of a member, and in which form.
//
// Watched lists the kinds, each with the Flotilla kind that it is watched for. Objects are trimmed to what reconcilers
// read, and equal strings are shared, before they are cached. The informers call the handlers of all controllers
// directly, without goroutines in between. A kind that is off in a member is not cached there; see Without.
package kinds
