// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestClip(t *testing.T) {
	tests := map[string]string{
		"plain":                    "plain",
		"two\nlines\t":             "two lines",
		"bell\x07 and \xff\xfe":    "bell and",
		"right-to-left \u202e end": "right-to-left end",
	}
	for text, want := range tests {
		if got := Clip(text); got != want {
			t.Errorf("Clip(%q) = %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{strings.Repeat("é", 4000), strings.Repeat("x", 4000), strings.Repeat("\xf0\x9f\x92", 500)} {
		if got := Clip(text); len(got) > maxMessageBytes || !utf8.ValidString(got) {
			t.Errorf("a long text became %d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}

func TestSums(t *testing.T) {
	if Sum(math.MaxInt32, 5) != math.MaxInt32 || Sum(-7, 5) != 5 || Sum(2, 3) != 5 {
		t.Error("counters must not overflow or go below zero")
	}
	list := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("-1Gi"), "": resource.MustParse("1"), "a\nb": resource.MustParse("1")}
	sum := AddResources(Resources(list), list)
	if sum.Cpu().String() != "8" || !sum.Memory().IsZero() || len(sum) != 2 {
		t.Errorf("sum is %v", sum)
	}
	for i := range 100 {
		list[corev1.ResourceName(fmt.Sprintf("example.com/r-%02d", i))] = resource.MustParse("1")
	}
	if got := Resources(list); len(got) != maxResourceNames {
		t.Errorf("%d resource names, want %d", len(got), maxResourceNames)
	}
	groups := AddGroups([]flotillav1.NodeGroup{{Name: "b", NodeCount: 1}}, []flotillav1.NodeGroup{{Name: "b", NodeCount: 2, ReadyNodes: -1}, {Name: "a"}, {Name: strings.Repeat("x", 64)}})
	if diff := cmp.Diff([]flotillav1.NodeGroup{{Name: "a"}, {Name: "b", NodeCount: 3}}, groups); diff != "" {
		t.Error(diff)
	}
}

func TestWhen(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	if When(metav1.Time{}) != nil || When(metav1.NewTime(time.Unix(1<<40, 0))) != nil {
		t.Error("a time that cannot be written must not be published")
	}
	if got := When(metav1.NewTime(noon.Add(time.Millisecond))); got == nil || !got.Time.Equal(noon) {
		t.Errorf("got %v", got)
	}
}
