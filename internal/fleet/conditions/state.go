// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// State summarises a hub object for metrics.
type State string

const (
	// StateReady means that every chosen cluster is visible and ready.
	StateReady State = "Ready"
	// StateUnknown means that all visible clusters are ready, and that some clusters are not visible.
	StateUnknown State = "Unknown"
	// StateProgressing means that a cluster is not ready, and that a change is in progress.
	StateProgressing State = "Progressing"
	// StateDegraded means that a cluster is not ready, and that no change is in progress.
	StateDegraded State = "Degraded"
)

// States returns all states.
func States() []State { return []State{StateReady, StateProgressing, StateDegraded, StateUnknown} }

// StateOf returns the state for the conditions of a hub object. An unknown condition does not count as good.
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
