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

// identify returns what tells one attempt to write the copy from another: what is sent, when does not matter,
// and the schema that takes it.
func (p *copyPass) identify(desired *unstructured.Unstructured) string {
	hash := fnv.New128a()
	annotations := desired.GetAnnotations()
	for _, key := range historyKeys {
		delete(annotations, key)
	}
	// Writing to a hash does not fail, and what is encoded came from JSON.
	_ = json.NewEncoder(hash).Encode([]any{desired.Object["spec"], annotations, desired.GetLabels(), p.definitions})
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// attemptedBefore reports whether this very copy has been sent before and the member stored something else, and has not
// changed it since. A cache may show the copy as it was before that.
func (p *copyPass) attemptedBefore(found fleet.Object, desired *unstructured.Unstructured) (fleet.Outcome, bool) {
	before := p.Table.Get(p.key, p.name)
	again := before.Reason == flotillav1.ReasonFieldDropped && before.Attempt.Sent == p.identify(desired) &&
		before.Attempt.UID == found.GetUID() && found.GetGeneration() <= before.Attempt.Generation
	return before, again
}

// refuseDropped says that the member stored something else than what was sent. Nothing is sent again before the hub
// object, the copy or the member's schema changes: writers that correct each other never end.
func (p *copyPass) refuseDropped(fields []string, attempt fleet.Attempt) {
	p.tell(fleet.Outcome{Reason: flotillav1.ReasonFieldDropped, Attempt: attempt, Message: fmt.Sprintf(
		"The cluster did not store %s as it was sent: its CRD or an admission webhook drops or changes that", fleet.Join(fields))})
}
