// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import "time"

func init() { idleTime = 5 * time.Minute }
