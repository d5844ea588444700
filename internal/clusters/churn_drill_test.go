// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package clusters

func init() { churnMembers, churnEngages = 1000, 1 }
