// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package nodepool

import "time"

func init() { manyNodes, heartbeatTime = 1000, 10*time.Minute }
