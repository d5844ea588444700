// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/text"
)

func runtimeClassEvent(reason, note string) *clusters.Event {
	return &clusters.Event{Type: corev1.EventTypeNormal, Reason: reason, Action: "Apply", Note: note}
}

func cleanup(reason, note string) clusters.Event {
	return clusters.Event{Type: corev1.EventTypeNormal, Reason: reason, Action: "Cleanup", Note: note}
}

func warning(reason, action, note string) clusters.Event {
	return clusters.Event{Type: corev1.EventTypeWarning, Reason: reason, Action: action, Note: clean(note, maxNote)}
}

// maxNote is the limit of events.
const maxNote = 1000

// namesShown is how many names a message lists.
const namesShown = 3

// enumerate lists names for a message: "a, b, c and 2 more".
func enumerate(names []string) string {
	return text.List(slices.Compact(slices.Sorted(slices.Values(names))), namesShown)
}

// clean makes what a member says fit for a condition: one line without a period, at most that many bytes.
func clean(said string, most int) string {
	return strings.TrimSuffix(strings.TrimSpace(text.Cut(text.Line(said), most)), ".")
}

// nodeCount is a number of nodes for a message: "1 node", "2 nodes".
func nodeCount(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
