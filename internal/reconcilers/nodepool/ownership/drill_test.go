// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package ownership_test

func init() { randomHistories = 50_000 }
