// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Open reports whether a change may still have something to do with the cluster. Of the others it matters only whether
// some are decided and done.
func (t Turn) Open(template string) bool {
	return t.Copy != nil && !t.Copy.Deleting && (!t.shown() || t.Copy.Rollout == template && !t.Copy.Settled())
}

// Done reports whether the cluster took the change and is ready.
func (t Turn) Done(template string) bool {
	return t.Copy != nil && !t.Copy.Deleting && t.shown() && t.Copy.Rollout == template && t.Copy.Settled()
}

// StandIns returns turns that stand for all those that are not open: Next decides the same with them.
func StandIns(template string, done, undecided bool) []Turn {
	var turns []Turn
	if done {
		ready := &metav1.Condition{Status: metav1.ConditionTrue}
		turns = append(turns, Turn{Decided: true, Copy: &Copy{Rollout: template, Ready: ready}})
	}
	if undecided {
		turns = append(turns, Turn{})
	}
	return turns
}
