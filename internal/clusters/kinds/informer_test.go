// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// uncounted is for informers without a footprint.
func uncounted(transform toolscache.TransformFunc) toolscache.TransformFunc { return transform }

// idleInformer is an informer of ConfigMaps that does not run: tests fill it.
func idleInformer(ctx context.Context, t *testing.T) *informer {
	t.Helper()
	made := NewInformer(ctx, uncounted)(&toolscache.ListWatch{}, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
	i, ok := made.(*informer)
	if !ok {
		t.Fatalf("newInformer makes a %T", made)
	}
	return i
}

// arrive does what the controller does with a new object.
func (i *informer) arrive(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := i.store.Add(object); err != nil {
		t.Error(err)
	}
	i.OnAdd(object, false)
	return object
}

// heard is a handler that keeps what it gets.
type heard struct {
	mu     sync.Mutex
	events []string
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// OnAdd implements toolscache.ResourceEventHandler.
func (h *heard) OnAdd(object any, isInInitialList bool) {
	h.add("add %s %t", object.(*corev1.ConfigMap).Name, isInInitialList)
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (h *heard) OnUpdate(_, after any) { h.add("update %s", after.(*corev1.ConfigMap).Name) }

// OnDelete implements toolscache.ResourceEventHandler.
func (h *heard) OnDelete(object any) { h.add("delete %s", object.(*corev1.ConfigMap).Name) }

func TestInformer_handlers_come_and_go(t *testing.T) {
	g := NewWithT(t)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	i := idleInformer(ctx, t)
	early, late := &heard{}, &heard{}
	join := func(handler *heard) toolscache.ResourceEventHandlerRegistration {
		registration, err := i.AddEventHandler(handler)
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(registration.HasSynced).Should(BeTrue())
		return registration
	}
	first := join(early)
	object := i.arrive(t, "one")
	join(late)
	i.OnUpdate(object, object)
	g.Expect(i.RemoveEventHandler(first)).To(Succeed())
	i.OnDelete(object)
	if diff := cmp.Diff([]string{"add one false", "update one"}, early.all()); diff != "" {
		t.Errorf("the handler that left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"add one true", "update one", "delete one"}, late.all()); diff != "" {
		t.Errorf("the handler that came late (-want +got):\n%s", diff)
	}
	end()
	g.Expect(i.IsStopped()).To(BeTrue())
	_, err := i.AddEventHandler(early)
	g.Expect(err).To(MatchError(ErrStopped))
}

// TestInformer_late_handlers_miss_nothing has handlers join while objects come: whether one is in the store or on its way,
// each handler gets it.
func TestInformer_late_handlers_miss_nothing(t *testing.T) {
	const objects, handlers = 500, 20
	g := NewWithT(t)
	i := idleInformer(t.Context(), t)
	var arriving sync.WaitGroup
	arriving.Go(func() {
		for n := range objects {
			i.arrive(t, fmt.Sprint(n))
		}
	})
	joined := make([]*heard, handlers)
	for n := range joined {
		joined[n] = &heard{}
		registration, err := i.AddEventHandler(joined[n])
		g.Expect(err).NotTo(HaveOccurred())
		<-registration.HasSyncedChecker().Done()
	}
	arriving.Wait()
	for n, handler := range joined {
		told := map[string]bool{}
		for _, event := range handler.all() {
			var name string
			var initial bool
			_, err := fmt.Sscanf(event, "add %s %t", &name, &initial)
			g.Expect(err).NotTo(HaveOccurred())
			told[name] = true
		}
		if len(told) != objects {
			t.Errorf("handler %d was told of %d objects", n, len(told))
		}
	}
}
