// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// maxNote is the maximum length of the note of an event.
	maxNote = 1000
	// maxSingleEvents is the maximum number of nodes with an event each; a single event covers more nodes.
	maxSingleEvents = 10
	// namesShown is the maximum number of names in a message.
	namesShown = 3
)

func runtimeClassEvent(reason, format string, args ...any) clusters.Event {
	return clusters.Event{Type: corev1.EventTypeNormal, Reason: reason, Action: "Apply", Note: fmt.Sprintf(format, args...)}
}

func cleanupEvent(reason, note string) clusters.Event {
	return clusters.Event{Type: corev1.EventTypeNormal, Reason: reason, Action: "Cleanup", Note: note}
}

func warning(reason, action, note string) clusters.Event {
	return clusters.Event{Type: corev1.EventTypeWarning, Reason: reason, Action: action, Note: text.Clause(note, maxNote)}
}

// events returns the events that report the news, in order of the nodes' names.
func (n news) events() []clusters.Event {
	return slices.Concat(
		nodeEvents(n.joined, "Joined", "Join", func(node string, _ []string) string {
			return fmt.Sprintf("Node %s joined the pool", node)
		}, "%d nodes joined the pool: %s"),
		nodeEvents(n.left, "Left", "Leave", func(node string, _ []string) string {
			return fmt.Sprintf("Node %s left the pool", node)
		}, "%d nodes left the pool: %s"),
		nodeEvents(n.healed, "Healed", "Heal", func(node string, keys []string) string {
			return fmt.Sprintf("Restored keys of node %s that someone else had changed: %s", node, enumerate(keys))
		}, "Restored keys of %d nodes that someone else had changed: %s"),
	)
}

// nodeEvents returns one event per node or, for many nodes, a single event.
func nodeEvents(nodes map[string]nodeNews, reason, action string, note func(node string, keys []string) string, summary string) []clusters.Event {
	names := slices.Sorted(maps.Keys(nodes))
	event := clusters.Event{Type: corev1.EventTypeNormal, Action: action}
	if len(names) > maxSingleEvents {
		event.Reason, event.Note = "Nodes"+reason, text.Clause(fmt.Sprintf(summary, len(names), enumerate(names)), maxNote)
		return []clusters.Event{event}
	}
	events := make([]clusters.Event, 0, len(names))
	for _, name := range names {
		event.Reason, event.Note = "Node"+reason, text.Clause(note(name, nodes[name].keys), maxNote)
		event.Related = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: nodes[name].uid}}
		events = append(events, event)
	}
	return events
}

// enumerate lists names for a message: "a, b, c and 2 more".
func enumerate(names []string) string {
	return text.List(slices.Compact(slices.Sorted(slices.Values(names))), namesShown)
}

// nodeCount returns a number of nodes for a message: "1 node", "2 nodes".
func nodeCount(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
