// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redisspec

import (
	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Restart is the effect of a change of the spec on running Pods.
type Restart string

// The kinds of restart.
const (
	// RestartNone keeps them.
	RestartNone Restart = ""
	// RestartOneByOne replaces them one at a time, the primary last.
	RestartOneByOne Restart = "OneByOne"
	// RestartTogether replaces all of them at once, because old and new ones cannot replicate from each other.
	RestartTogether Restart = "Together"
)

// RestartFor returns the effect of a change from one spec to another, based on the hashes of Pods.
func RestartFor(before, after *flotillav1.Redis) Restart {
	old, next := Of(before), Of(after)
	switch was, is := PodHash(&old, ""), PodHash(&next, ""); {
	case was == is:
		return RestartNone
	case Follows(is, was):
		return RestartOneByOne
	default:
		return RestartTogether
	}
}
