// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestHub_refuses_to_delete_what_is_protected deletes as a cluster administrator, as a dry run.
func TestHub_refuses_to_delete_what_is_protected(t *testing.T) {
	ctx, cluster := t.Context(), testenv.Start(t)
	install(t, cluster, hubBundle)
	protection := map[string]string{flotillav1.AnnotationDeletionProtection: "true"}
	namespace := func(name string, annotations map[string]string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	redis := func(namespace string, annotations map[string]string) client.Object {
		return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache", Annotations: annotations}}
	}
	pool := func(name string, annotations map[string]string) client.Object {
		return &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	tests := []struct {
		name    string
		object  client.Object
		refusal string
	}{
		{"a namespace that is protected", namespace("kept", protection), "from namespaces kept"},
		{"a namespace", namespace("open", nil), ""},
		{"a namespace that says false", namespace("said-no", map[string]string{flotillav1.AnnotationDeletionProtection: "false"}), ""},
		{"a Redis in a protected namespace", redis("kept", nil), "from namespace kept"},
		{"a Redis", redis("open", nil), ""},
		{"a Redis that is protected", redis("said-no", protection), "from redises cache"},
		{"a NodePool that is protected", pool("kept", protection), "from nodepools kept"},
		{"a NodePool", pool("open", map[string]string{"other": "true"}), ""},
	}
	for _, tc := range tests {
		must(t, cluster.Client.Create(ctx, tc.object))
	}
	refusal := func(object client.Object) string {
		err := cluster.Client.Delete(ctx, object, client.DryRunAll)
		if err != nil && !strings.Contains(err.Error(), "flotilla-protect") {
			t.Fatal(err)
		}
		if err == nil {
			return ""
		}
		return err.Error()
	}
	// A policy takes effect a moment after it was made.
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return refusal(tests[0].object) != "", nil
	})
	if err != nil {
		t.Fatalf("the policy does not take effect: %v", err)
	}
	for _, tc := range tests {
		got := refusal(tc.object)
		if (got == "") != (tc.refusal == "") || !strings.Contains(got, tc.refusal) {
			t.Errorf("deleting %s: %q, want %q", tc.name, got, tc.refusal)
		}
	}
	// Many at once are refused as well, as tools that prune delete them.
	if err := cluster.Client.DeleteAllOf(ctx, &flotillav1.Redis{}, client.InNamespace("kept"), client.DryRunAll); err == nil {
		t.Error("a collection with a protected Redis was deleted")
	}
	// What is refused is only the deletion: without the annotation it goes.
	protected := tests[5].object
	protected.SetAnnotations(nil)
	must(t, cluster.Client.Update(ctx, protected))
	if got := refusal(protected); got != "" {
		t.Errorf("the annotation is gone, and deleting is refused: %s", got)
	}
}
