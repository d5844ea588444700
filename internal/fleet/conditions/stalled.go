// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// wait describes something that can only continue after a person acts.
type wait struct{ reason, message string }

// waits returns the waits that precede the message of Ready, the most important one first.
func (f Facts) waits() []wait {
	var waits []wait
	if len(f.removalHeld()) > 0 {
		waits = append(waits, wait{flotillav1.ReasonRemovalHeld, "Removal " + f.confirmation()})
	}
	if f.Deleting {
		return waits
	}
	switch {
	case f.Reverted != nil:
		waits = append(waits, wait{flotillav1.ReasonRolloutReverted, "Rollout reverted: " + lowerFirst(f.Reverted.Revert.Message)})
	case f.Halt != "":
		waits = append(waits, wait{flotillav1.ReasonRolloutHalted, "Rollout halted: " + lowerFirst(f.Halt)})
	}
	if f.InvalidOverride != nil {
		waits = append(waits, wait{flotillav1.ReasonOverrideInvalid, sanitize.Clip(text.Sentence(f.InvalidOverride))})
	}
	return waits
}

// Halt returns why the rollout has stopped, or "" if it has not. entries are those of the clusters that are not well, sorted
// by name.
func Halt(w fleet.Wave, entries []fleet.Entry) string {
	if !w.Halted {
		return ""
	}
	var failed []string
	for _, name := range w.Failed {
		i, found := slices.BinarySearchFunc(entries, name, func(e fleet.Entry, name string) int { return strings.Compare(e.Name, name) })
		if found && entries[i].Reason != "" {
			name = nameWithReason(entries[i])
		} else if _, unseen := slices.BinarySearch(w.Unseen, name); unseen {
			name += " (cannot be observed)"
		}
		failed = append(failed, name)
	}
	return fmt.Sprintf("Not ready in time: %s; not changed: %s", text.Names(failed), text.Names(w.Held))
}

// sentences joins the messages of waits and another message, which may be empty.
func sentences(waits []wait, message string) string {
	var parts []string
	for _, wait := range waits {
		parts = append(parts, wait.message)
	}
	if message != "" {
		parts = append(parts, message)
	}
	for i := range parts {
		if i > 0 {
			parts[i] = lowerFirst(parts[i])
		}
	}
	return strings.Join(parts, "; ")
}

// stalled returns the condition Stalled, and whether it applies.
func (f Facts) stalled() (metav1.Condition, bool) {
	waits := f.waits()
	if !f.Deleting {
		switch {
		case f.Invalid != nil:
			waits = []wait{{flotillav1.ReasonPlacementInvalid, sanitize.Clip(text.Sentence(f.Invalid))}}
		case !f.HasPlacement:
			waits = []wait{{flotillav1.ReasonNoPlacement, "Set spec.placement to choose the clusters that get a copy"}}
		}
		for _, reason := range flotillav1.StallingReasons() {
			stuck := f.names(func(e fleet.Entry) bool { return stays(e) && e.Ready == metav1.ConditionFalse && e.Reason == reason }, nameWithReason)
			if len(stuck) > 0 {
				waits = append(waits, wait{reason, "Not ready until a person acts: " + text.Names(stuck)})
			}
		}
	}
	if len(waits) == 0 {
		return metav1.Condition{}, false
	}
	return metav1.Condition{
		Type: flotillav1.ConditionStalled, Status: metav1.ConditionTrue, Reason: waits[0].reason, Message: sentences(waits, ""),
	}, true
}

// lowerFirst converts the first letter to lower case, so that a sentence can follow another one.
func lowerFirst(message string) string {
	if message == "" {
		return ""
	}
	return strings.ToLower(message[:1]) + message[1:]
}
