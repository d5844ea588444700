// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// State is how a hub object is, in one word for metrics.
type State string

const (
	// StateReady says that every chosen cluster can be seen and is ready.
	StateReady State = "Ready"
	// StateUnknown says that those that can be seen are ready, and that others cannot be seen.
	StateUnknown State = "Unknown"
	// StateProgressing says that a cluster is not ready, and that something is on its way.
	StateProgressing State = "Progressing"
	// StateDegraded says that a cluster is not ready, and that nothing is on its way.
	StateDegraded State = "Degraded"
)

// States are all states.
func States() []State { return []State{StateReady, StateProgressing, StateDegraded, StateUnknown} }

// StateOf reads the state from the conditions of a hub object. What is not known is not counted as good.
func StateOf(conditions []metav1.Condition) State {
	switch {
	case apimeta.IsStatusConditionTrue(conditions, flotillav1.ConditionFullyReady):
		return StateReady
	case !apimeta.IsStatusConditionFalse(conditions, flotillav1.ConditionReady):
		return StateUnknown
	case apimeta.IsStatusConditionTrue(conditions, flotillav1.ConditionProgressing):
		return StateProgressing
	default:
		return StateDegraded
	}
}
