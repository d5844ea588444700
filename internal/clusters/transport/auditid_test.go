// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

func TestAuditID(t *testing.T) {
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{UID: "3d0f", Generation: 7}}
	first, second := auditID(clusters.CausedBy(t.Context(), redis)), auditID(clusters.CausedBy(t.Context(), redis))
	for _, id := range []string{first, second} {
		if !regexp.MustCompile(`^flotilla-3d0f-7-[0-9a-z]+$`).MatchString(id) {
			t.Errorf("got %q", id)
		}
	}
	if first == second {
		t.Errorf("two writes have the same identifier %q", first)
	}
	unnamed := &flotillav1.Redis{}
	for _, ctx := range []context.Context{t.Context(), clusters.CausedBy(t.Context(), unnamed)} {
		if id := auditID(ctx); !regexp.MustCompile(`^flotilla-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(id) {
			t.Errorf("got %q for no object", id)
		}
	}
	longest := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strings.Repeat("u", 36)), Generation: 99_999}}
	// API servers cut what they answer with to 64 bytes.
	if id := auditID(clusters.CausedBy(t.Context(), longest)); len(id) > 64 {
		t.Errorf("%q is too long", id)
	}
}
