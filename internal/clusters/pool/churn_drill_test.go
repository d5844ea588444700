// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package pool

func init() { churnMembers, churnEngages = 1000, 1 }
