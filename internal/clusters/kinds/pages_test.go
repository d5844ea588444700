// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestInPages(t *testing.T) {
	trimmed, pages := 0, 0
	serve := func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Limit != pageSize || options.ResourceVersion != "" || trimmed != pages*pageSize {
			t.Errorf("page %d is requested by %+v when %d objects are trimmed", pages, options, trimmed)
		}
		if want := map[bool]string{false: fmt.Sprint(pages)}[pages == 0]; options.Continue != want {
			t.Errorf("page %d continues %q", pages, options.Continue)
		}
		list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: make([]corev1.Node, pageSize)}
		for i := range list.Items {
			list.Items[i].Name = fmt.Sprint(pages*pageSize + i)
		}
		if pages++; pages < 3 {
			list.Continue = fmt.Sprint(pages)
		}
		return list, nil
	}
	trim := func(object any) (any, error) { trimmed++; return trimNode(object) }
	all, err := inPages(serve, trim)(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	meta, _ := apimeta.ListAccessor(all)
	items, _ := apimeta.ExtractList(all)
	if len(items) != 3*pageSize || meta.GetResourceVersion() != "7" || meta.GetContinue() != "" {
		t.Errorf("%d objects, %+v", len(items), meta)
	}
	for i, item := range items {
		if node, ok := item.(*corev1.Node); !ok || node.Name != fmt.Sprint(i) {
			t.Fatalf("object %d is %v", i, item)
		}
	}
	broken := errors.New("no")
	for name, tc := range map[string]struct{ list, trim error }{"the second page": {list: broken}, "an object": {trim: broken}} {
		calls := 0
		_, err := inPages(func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if calls++; calls > 1 {
				return nil, tc.list
			}
			return &corev1.NodeList{ListMeta: metav1.ListMeta{Continue: "x"}, Items: make([]corev1.Node, 1)}, nil
		}, func(object any) (any, error) { return object, tc.trim })(t.Context(), metav1.ListOptions{})
		if !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
