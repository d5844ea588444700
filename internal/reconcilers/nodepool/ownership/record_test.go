// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestRecord_is_encoded_as_it_was_read(t *testing.T) {
	for name, text := range map[string]string{
		"none": "",
		"of the first version": `{"pools":{"a":{"uid":"uid-a","labels":{"example.com/team":{"v":"x","was":"old"}},` +
			`"annotations":{"example.com/team":{"v":"y"}},"taints":{"example.com/team:NoSchedule":{"v":"z","adopted":true}}}}}`,
		"with values that replaced those of pools, and taints owed": `{"pools":{"a":{"uid":"uid-a","labels":{"example.com/team":{"v":"x","was":"old","over":"b"}},` +
			`"owed":["example.com/drain:NoExecute","example.com/team:NoSchedule"]},"b":{"uid":"uid-b"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{flotillav1.AnnotationNodeRecord: text}}}
			if diff := cmp.Diff(text, recordOf(node).encode()); diff != "" {
				t.Errorf("encoded again (-want +got):\n%s", diff)
			}
		})
	}
}
