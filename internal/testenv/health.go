// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Health is what GitOps tools take the state of an object for.
type Health string

// The states that our objects can be in.
const (
	// Current is as the spec says; a tool that waits goes on.
	Current Health = "Current"
	// InProgress is on its way; a tool goes on waiting, and fails when its time is over.
	InProgress Health = "InProgress"
	// Failed will not get there.
	Failed Health = "Failed"
	// Terminating is being deleted.
	Terminating Health = "Terminating"
)

// HealthOf says what kstatus, by which Flux and kpt decide whether something is done, makes of
// an object of a kind that it does not know: a deletion, then a generation that is not observed, then the conditions
// Reconciling and Stalled, then Ready. What has none of them is taken for done, a status that nobody has written included.
func HealthOf(object runtime.Object) (Health, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", fmt.Errorf("reading %T: %w", object, err)
	}
	u := unstructured.Unstructured{Object: content}
	if u.GetDeletionTimestamp() != nil {
		return Terminating, nil
	}
	observed, found, err := unstructured.NestedInt64(content, "status", "observedGeneration")
	if err != nil {
		return "", fmt.Errorf("reading status.observedGeneration of %T: %w", object, err)
	}
	if found && u.GetGeneration() != 0 && observed != u.GetGeneration() {
		return InProgress, nil
	}
	conditions, _, err := unstructured.NestedSlice(content, "status", "conditions")
	if err != nil {
		return "", fmt.Errorf("reading status.conditions of %T: %w", object, err)
	}
	status := map[string]string{}
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok {
			status[fmt.Sprint(condition["type"])] = fmt.Sprint(condition["status"])
		}
	}
	ready, hasReady := status["Ready"]
	switch {
	case status["Reconciling"] == string(metav1.ConditionTrue):
		return InProgress, nil
	case status["Stalled"] == string(metav1.ConditionTrue):
		return Failed, nil
	case hasReady && ready != string(metav1.ConditionTrue):
		return InProgress, nil
	default:
		return Current, nil
	}
}
