// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Restart is what a change of the spec does to Pods that run.
type Restart string

// The kinds of restart.
const (
	// RestartNone leaves them alone.
	RestartNone Restart = ""
	// RestartOneByOne replaces them one at a time, the primary last.
	RestartOneByOne Restart = "OneByOne"
	// RestartTogether replaces all of them at once, because old and new ones cannot replicate from each other.
	RestartTogether Restart = "Together"
)

// RestartFor says what a change from one spec to another does, by the hash that Pods are compared by.
func RestartFor(before, after *flotillav1.Redis) Restart {
	old, next := spec(before), spec(after)
	switch was, is := podHash(&old, ""), podHash(&next, ""); {
	case was == is:
		return RestartNone
	case follows(is, was):
		return RestartOneByOne
	default:
		return RestartTogether
	}
}
