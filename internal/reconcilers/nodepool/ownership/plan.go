// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// PlanInput is everything that the plan for a node depends on. All fields are required.
type PlanInput struct {
	Node *corev1.Node
	// Views are all pools of the member in order of precedence.
	Views []*View
	// Fought reports whether a key has been put back so often that it is left as it is for now.
	Fought func(Key) bool
	// MayEvict reports whether the node may receive NoExecute taints of a pool now.
	MayEvict func(*View) bool
	// Now is the time added to new NoExecute taints.
	Now time.Time
}

// Plan is what to write to a node, and why.
type Plan struct {
	// Joined and Left are the pools whose entry in the record is new or dropped.
	Joined, Left []*flotillav1.NodePool
	// EvictionsHeld is set when a NoExecute taint waits for the node's turn.
	EvictionsHeld bool
	// Outcomes are what the plan means for each pool that has to do with the node, by pool name.
	Outcomes map[string]*Outcome

	// labels and annotations are the changes; nil removes.
	labels, annotations map[string]*string
	// taints is the whole list; only meaningful if taintsChanged is set.
	taints        []corev1.Taint
	taintsChanged bool
	// record is the new annotation, empty for none; only meaningful if recordChanged is set.
	record        string
	recordChanged bool
}

// Outcome is what a plan means for one pool.
type Outcome struct {
	// Changes are sentences such as "add label example.com/team".
	Changes []string
	// Conflicts are keys that keep another value than the pool wants, Fights keys that are left as they are for now, and
	// Refused keys that no spec may contain.
	Conflicts, Fights, Refused []string
	// Healed are the keys that others changed and that are put back.
	Healed []Key
	// Loop are the pools, this one among them, that would join and leave the node forever by each other's labels.
	Loop []string
	// EvictionHeld is set when a NoExecute taint of the pool waits for the node's turn.
	EvictionHeld bool
	// TooLarge is set when the record would exceed its maximum size, so that nothing is written.
	TooLarge bool

	// recordChanges is set when the entry of the pool changes.
	recordChanges bool
}

// Done reports whether nothing remains to be done for the pool on the node, conflicts aside.
func (o Outcome) Done() bool {
	return len(o.Changes) == 0 && len(o.Fights) == 0 && len(o.Loop) == 0 && len(o.Refused) == 0 && !o.recordChanges && !o.EvictionHeld && !o.TooLarge
}

// Empty reports whether the plan writes nothing.
func (p Plan) Empty() bool {
	return len(p.labels) == 0 && len(p.annotations) == 0 && !p.taintsChanged && !p.recordChanged
}

// Patch returns the plan as a JSON merge patch. It is built by hand because the cached Node is trimmed, and applies only to
// the version of the Node that was planned for: spec.taints is one atomic list, and a newer one must not be replaced.
func (p Plan) Patch(node *corev1.Node) ([]byte, error) {
	annotations := maps.Clone(p.annotations)
	if p.recordChanged {
		if annotations == nil {
			annotations = map[string]*string{}
		}
		annotations[flotillav1.AnnotationNodeRecord] = nil
		if p.record != "" {
			annotations[flotillav1.AnnotationNodeRecord] = &p.record
		}
	}
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if len(p.labels) > 0 {
		metadata["labels"] = p.labels
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	patch := map[string]any{"metadata": metadata}
	if p.taintsChanged {
		// A nil slice is null, which removes the field.
		patch["spec"] = map[string]any{"taints": p.taints}
	}
	return json.Marshal(patch)
}

// appliedTo returns the node as the plan would change it. The node passed in is not modified.
func (p Plan) appliedTo(node *corev1.Node) *corev1.Node {
	after := *node
	after.Labels = changed(node.Labels, p.labels)
	after.Annotations = changed(node.Annotations, p.annotations)
	if p.recordChanged {
		delete(after.Annotations, flotillav1.AnnotationNodeRecord)
		if p.record != "" {
			after.Annotations[flotillav1.AnnotationNodeRecord] = p.record
		}
	}
	if p.taintsChanged {
		after.Spec.Taints = p.taints
	}
	return &after
}

// changed returns a copy of the values with the changes applied; nil removes.
func changed(values map[string]string, changes map[string]*string) map[string]string {
	after := maps.Clone(values)
	if after == nil {
		after = map[string]string{}
	}
	for name, value := range changes {
		if value == nil {
			delete(after, name)
			continue
		}
		after[name] = *value
	}
	return after
}
