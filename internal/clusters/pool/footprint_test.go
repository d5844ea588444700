// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
)

func TestFootprint(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	exceeded := make(chan error, 1)
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	f := &footprint{
		limits: transport.Limits{CachedObjects: 10, CachedBytes: 1 << 20}, clock: clk, lifetime: t.Context(),
		exceeded: func(err error) { exceeded <- err },
	}
	transform := f.counted(cache.TransformStripManagedFields())
	arrive := func(name string) {
		object, err := transform(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err == nil {
			err = store.Add(object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	recount := func() {
		for !clk.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clk.Step(recountPause)
		for f.counting.Load() {
			time.Sleep(time.Millisecond)
		}
	}
	for i := range 8 {
		arrive(fmt.Sprint(i))
	}
	if err := f.fill([]toolscache.Store{store}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		arrive("0")
	}
	recount()
	if bound := f.objects.Load(); bound != 8 || len(exceeded) > 0 {
		t.Errorf("changes were taken for objects: %d", bound)
	}
	for i := range 4 {
		arrive(fmt.Sprint("more-", i))
	}
	recount()
	if err := clusterstest.Await(t, "the end", exceeded); err == nil || !strings.Contains(err.Error(), "LimitExceeded: The member has more than 10 objects") {
		t.Errorf("got %v", err)
	}
}

func TestFootprint_counts_bytes(t *testing.T) {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, object := range []any{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"key": strings.Repeat("x", 1<<20)}},
		&flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"key": strings.Repeat("x", 1<<20)}}},
	} {
		if size := encodedSize(object); size < 1<<20 || size > 1<<20+1000 {
			t.Errorf("%T: %d bytes", object, size)
		}
		if err := store.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	f := &footprint{limits: transport.Limits{CachedObjects: 10, CachedBytes: 2 << 20}}
	if err := f.fill([]toolscache.Store{store}); err == nil || !strings.Contains(err.Error(), "larger than 2 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestFootprint_refuses_while_the_caches_fill(t *testing.T) {
	pod := func(i int) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}} }
	padded := pod(0)
	padded.Spec.Containers = make([]corev1.Container, 10_000)
	for name, tc := range map[string]struct {
		object func(i int) *corev1.Pod
		want   string
	}{
		"too many objects":          {object: pod, want: "more than 100 objects"},
		"the same object":           {object: func(int) *corev1.Pod { return pod(1) }, want: "more than 100 objects"},
		"objects without a name":    {object: func(int) *corev1.Pod { return &corev1.Pod{} }, want: "without a name"},
		"objects of empty elements": {object: func(int) *corev1.Pod { return padded }, want: "need more than 16 MiB of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			exceeded := make(chan error, 300)
			f := &footprint{
				limits: transport.Limits{CachedObjects: 100, CachedBytes: 8 << 20}, clock: clocktesting.NewFakeClock(time.Now()), lifetime: t.Context(),
				exceeded: func(err error) { exceeded <- err },
			}
			transform := f.counted(func(object any) (any, error) { return object, nil })
			for i := 0; i <= 200 && len(exceeded) == 0; i++ {
				_, _ = transform(tc.object(i))
			}
			if len(exceeded) == 0 {
				t.Fatal("nothing is refused")
			}
			if err := <-exceeded; !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFootprint_keeps_what_a_list_has_delivered_so_far(t *testing.T) {
	listing := true
	f := &footprint{
		limits: transport.Limits{CachedObjects: 100, CachedBytes: 8 << 20}, clock: clocktesting.NewFakeClock(time.Now()), lifetime: t.Context(),
		listing: func() bool { return listing },
	}
	transform := f.counted(func(object any) (any, error) { return object, nil })
	for i := range 50 {
		_, _ = transform(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}})
	}
	f.follow([]toolscache.Store{toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)})
	for _, want := range []int64{50, 0} {
		_ = f.count()
		if got := f.objects.Load(); got != want {
			t.Errorf("while a list is read, %t: the bound is %d objects, want %d", listing, got, want)
		}
		listing = false
	}
}

func TestMemorySize(t *testing.T) {
	for name, object := range map[string]func() any{
		"a Pod": func() any { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 100)}} },
		"containers": func() any {
			return &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 100)}}
		},
		"labels": func() any {
			labels := map[string]string{}
			for i := range 100 {
				labels[fmt.Sprint("label-", i)] = fmt.Sprint("value-", i)
			}
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		},
		"a Redis": func() any {
			return &flotillav1.Redis{Status: flotillav1.RedisStatus{Conditions: make([]metav1.Condition, 10)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The median of three times, because what other tests leave behind is collected meanwhile.
			const times = 1000
			var needed []int64
			for range 3 {
				objects := make([]any, times)
				before := measure().heap
				for i := range objects {
					objects[i] = object()
				}
				needed = append(needed, int64(measure().heap-before)/times)
				runtime.KeepAlive(objects)
			}
			slices.Sort(needed)
			if got, needs := memorySize(object()), needed[1]; got < needs*2/3 || got > needs*3/2 {
				t.Errorf("got %d bytes, it needs %d", got, needs)
			}
		})
	}
}

func BenchmarkMemorySize(b *testing.B) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 2)}, Status: corev1.PodStatus{Conditions: make([]corev1.PodCondition, 5)}}
	pod.Labels = map[string]string{"a": "b", "c": "d", "e": "f"}
	for b.Loop() {
		memorySize(pod)
	}
}
