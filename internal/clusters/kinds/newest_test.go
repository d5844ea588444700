// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestNewest_is_what_a_watch_follows(t *testing.T) {
	g := NewWithT(t)
	i := idleInformer(t.Context(), t)
	var carried Change
	through := i.selecting(&toolscache.ListWatch{WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
		carried = Newest(ctx)
		return watch.NewFake(), nil
	}}, "", nil)
	follows := func() Change {
		_, err := through.(*toolscache.ListWatch).WatchWithContext(t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return carried
	}
	at := func(name, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}}
	}
	g.Expect(follows()).To(BeZero(), "nothing was received")
	i.OnAdd(at("a", "7"), true)
	i.OnAdd(at("b", "5"), true)
	g.Expect(follows()).To(Equal(Change{Namespace: "default", Name: "a", Revision: 7}), "the newest, not the last")
	i.OnUpdate(at("b", "5"), at("b", "8"))
	g.Expect(follows()).To(Equal(Change{Namespace: "default", Name: "b", Revision: 8}))
	i.OnDelete(at("a", "12"))
	g.Expect(follows()).To(Equal(Change{Namespace: "default", Name: "a", Revision: 12, Deleted: true}))
	i.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/b", Obj: at("b", "99")})
	g.Expect(follows().Revision).To(BeEquivalentTo(12), "an object that a list lacks has no revision of its own")
	g.Expect(Newest(context.Background())).To(BeZero(), "a watch of somebody else")
}
