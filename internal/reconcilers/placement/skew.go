// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// lacking returns the fields of a kind that a member's schema lacks.
func lacking(snapshot clusters.Snapshot, kind fleet.Kind) []fleet.MissingField {
	missing := snapshot.Lacks[kind.Name]
	fields := make([]fleet.MissingField, 0, len(missing))
	for _, field := range missing {
		fields = append(fields, fleet.MissingField(field))
	}
	return fields
}

// identify returns a hash that distinguishes attempts to write the copy: it depends on what is sent, except for times,
// and on the member's schema.
func (p *copyPass) identify(desired *unstructured.Unstructured) string {
	hash := fnv.New128a()
	annotations := desired.GetAnnotations()
	for _, key := range historyKeys {
		delete(annotations, key)
	}
	// Writing to a hash does not fail, and the content was decoded from JSON.
	_ = json.NewEncoder(hash).Encode([]any{desired.Object["spec"], annotations, desired.GetLabels(), p.definitions})
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// attemptedBefore reports whether this copy was sent before, the member stored something else, and the copy has not
// changed since. The cache may still have the copy as it was before.
func (p *copyPass) attemptedBefore(found fleet.Object, desired *unstructured.Unstructured) (fleet.Outcome, bool) {
	before := p.Table.Get(p.key, p.name)
	again := before.Reason == flotillav1.ReasonFieldDropped && before.Attempt.Sent == p.identify(desired) &&
		before.Attempt.UID == found.GetUID() && found.GetGeneration() <= before.Attempt.Generation
	return before, again
}

// refuseDropped reports that the member stored something other than what was sent. Nothing is sent again until the hub
// object, the copy or the member's schema changes, because two writers could otherwise overwrite each other endlessly.
func (p *copyPass) refuseDropped(fields []string, attempt fleet.Attempt) {
	p.reportWithEvent(fleet.Outcome{Reason: flotillav1.ReasonFieldDropped, Attempt: attempt, Message: fmt.Sprintf(
		"The cluster did not store %s as sent: its CRD or an admission webhook drops or changes it", text.Names(fields))})
}
