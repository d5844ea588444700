// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestInformer_selects_and_trims(t *testing.T) {
	g, ctx := NewWithT(t), context.Background()
	namespace := realMember.Namespace(t)
	create := func(name string, labels map[string]string) *corev1.ConfigMap {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		g.Expect(realMember.Client.Create(ctx, object)).To(Succeed())
		return object
	}
	create("listed-without-label", nil)
	object := create("listed", selected())
	member := syncedCluster(t, realMember, namespace)
	cached := func() []string {
		list := &corev1.ConfigMapList{}
		g.Expect(member.GetCache().List(ctx, list)).To(Succeed())
		var names []string
		for _, item := range list.Items {
			g.Expect(item.ManagedFields).To(BeEmpty())
			names = append(names, item.Name)
		}
		slices.Sort(names)
		return names
	}
	g.Expect(cached()).To(Equal([]string{"listed"}))
	create("watched-without-label", nil)
	create("watched", selected())
	g.Eventually(cached).Should(Equal([]string{"listed", "watched"}))

	before := object.DeepCopy()
	delete(object.Labels, flotillav1.LabelRedis)
	g.Expect(realMember.Client.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
	g.Eventually(cached).Should(Equal([]string{"watched"}))
}

// recoveringCluster is a cluster that tests let recover.
type recoveringCluster struct {
	cluster.Cluster

	mu  sync.Mutex
	fns []func()
}

func (c *recoveringCluster) OnRecovered(ctx context.Context, fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fns = append(c.fns, func() {
		if ctx.Err() == nil {
			fn()
		}
	})
}

func (c *recoveringCluster) recover() {
	c.mu.Lock()
	fns := slices.Clone(c.fns)
	c.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}

// selected is what a ConfigMap carries that is cached.
func selected() map[string]string { return map[string]string{flotillav1.LabelRedis: "cart"} }

// syncedCluster starts the caches of a control plane with one kind in them.
func syncedCluster(t *testing.T, env *testenv.Cluster, namespace string) *recoveringCluster {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	member, err := cluster.New(env.Config, func(options *cluster.Options) {
		options.Scheme = testenv.Scheme()
		options.Cache.ReaderFailOnMissingInformer = true
		options.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
		options.Cache.NewInformer = kinds.NewInformer(ctx, func(transform toolscache.TransformFunc) toolscache.TransformFunc { return transform })
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := member.Start(ctx); err != nil {
			t.Errorf("running the caches: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if _, err := member.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	if !member.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches are not synced")
	}
	return &recoveringCluster{Cluster: member}
}

func newTestQueue(t *testing.T) *fairQueue {
	queue := newFairQueue("source-test", 4, workqueue.NewTypedItemExponentialFailureRateLimiter[clusters.Request](time.Millisecond, time.Second))
	t.Cleanup(queue.ShutDown)
	return queue
}

// taken ends the next n requests and returns their names and priorities, sorted.
func taken(g Gomega, queue *fairQueue, n int) []string {
	g.Eventually(queue.Len).Should(Equal(n))
	var got []string
	for range n {
		request, priority, _ := queue.GetWithPriority()
		queue.Done(request)
		got = append(got, fmt.Sprint(request.ClusterName, " ", request.Name, " ", priority))
	}
	slices.Sort(got)
	return got
}

func TestWatch(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	env := realMember
	namespace := env.Namespace(t)
	create := func(name string) *corev1.ConfigMap {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: selected()}, Data: map[string]string{"leadsTo": name},
		}
		g.Expect(env.Client.Create(ctx, object)).To(Succeed())
		return object
	}
	first, second := create("first"), create("second")
	member := syncedCluster(t, env, namespace)
	queue := newTestQueue(t)

	// The requests are named after the data, so that an update may lead from one to another.
	toData := func(_ context.Context, clusterName multicluster.ClusterName, from cluster.Cluster, object *corev1.ConfigMap) []clusters.Request {
		if from != member {
			t.Errorf("the map function gets another cluster: %v", from)
		}
		return []clusters.Request{clusterstest.Request(clusterName, object.Data["leadsTo"])}
	}
	dataChanged := func(before, after *corev1.ConfigMap) bool { return before.Data["leadsTo"] != after.Data["leadsTo"] }
	src, engage, err := Watch(&corev1.ConfigMap{}, toData, dataChanged).ForCluster("eu-1", member)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(engage).To(BeTrue())
	engagement, disengage := context.WithCancel(ctx)
	defer disengage()
	g.Expect(src.Start(engagement, queue)).To(Succeed())

	low := fmt.Sprint(handler.LowPriority)
	g.Expect(taken(g, queue, 2)).To(Equal([]string{"eu-1 first " + low, "eu-1 second " + low}), "the initial list is to wait behind changes")

	create("third")
	g.Expect(taken(g, queue, 1)).To(Equal([]string{"eu-1 third 0"}), "a new object is fresh")

	first.Data["leadsTo"] = "elsewhere"
	g.Expect(env.Client.Update(ctx, first)).To(Succeed())
	g.Expect(taken(g, queue, 2)).To(Equal([]string{"eu-1 elsewhere 0", "eu-1 first 0"}), "an update queues what the old and the new object lead to")

	// The label is filtered out, and the deletion after it is seen, so nothing is still on its way.
	second.Labels["unimportant"] = "true"
	g.Expect(env.Client.Update(ctx, second)).To(Succeed())
	g.Expect(env.Client.Delete(ctx, second)).To(Succeed())
	g.Expect(taken(g, queue, 1)).To(Equal([]string{"eu-1 second 0"}), "a deletion is fresh and comes once")

	member.recover()
	g.Expect(taken(g, queue, 2)).To(Equal([]string{"eu-1 elsewhere " + low, "eu-1 third " + low}), "a recovery queues all objects")

	disengage()
	member.recover()
	g.Expect(env.Client.Delete(ctx, first)).To(Succeed())
	g.Eventually(func() error {
		return member.GetClient().Get(ctx, client.ObjectKeyFromObject(first), &corev1.ConfigMap{})
	}).ShouldNot(Succeed())
	g.Consistently(queue.Len).Within(100*time.Millisecond).Should(BeZero(), "nothing comes after the engagement")
	g.Expect(src.Start(engagement, queue)).To(Succeed(), "starting after the engagement must not end the controller")
}

// refusingCluster is a cluster whose cache gives no informer.
type refusingCluster struct {
	cluster.Cluster

	err error
}

func (c refusingCluster) GetCache() cache.Cache { return refusingCache{err: c.err} }

type refusingCache struct {
	cache.Cache

	err error
}

func (c refusingCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, c.err
}

func TestWatch_informer_is_refused(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct{ err, want error }{
		"a kind that is not cached is not watched": {err: fmt.Errorf("getting: %w", &cache.ErrResourceNotCached{})},
		"anything else is told":                    {err: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			src, _, err := Watch(&corev1.ConfigMap{}, ToSelf, nil).ForCluster("eu-1", refusingCluster{err: tc.err})
			if err != nil {
				t.Fatal(err)
			}
			if err := src.Start(context.Background(), newTestQueue(t)); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestWatch_handler(t *testing.T) {
	object := func(name, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}}
	}
	tests := map[string]struct {
		do   func(toolscache.ResourceEventHandler)
		want []string
	}{
		"re-list of an unchanged object": {do: func(h toolscache.ResourceEventHandler) { h.OnUpdate(object("one", "1"), object("one", "1")) }},
		"update without a filter": {
			do:   func(h toolscache.ResourceEventHandler) { h.OnUpdate(object("one", "1"), object("one", "2")) },
			want: []string{"eu-1 one 0"},
		},
		"tombstone": {
			do: func(h toolscache.ResourceEventHandler) {
				h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/one", Obj: object("one", "1")})
			},
			want: []string{"eu-1 one 0"},
		},
		"tombstone without an object": {
			do: func(h toolscache.ResourceEventHandler) {
				h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/one"})
			},
		},
		"object of another type": {do: func(h toolscache.ResourceEventHandler) { h.OnAdd(&corev1.Pod{}, false) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			queue := newTestQueue(t)
			watch := &memberWatch[*corev1.ConfigMap]{memberSource: &memberSource[*corev1.ConfigMap]{toRequests: ToSelf[*corev1.ConfigMap]}, clusterName: "eu-1"}
			tc.do(watch.handler(context.Background(), queue))
			if diff := cmp.Diff(tc.want, taken(NewWithT(t), queue, len(tc.want))); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := clusterstest.NewDirectory()
		src := OnChange(members, func(_ context.Context, clusterName multicluster.ClusterName) []clusters.Request {
			return []clusters.Request{clusterstest.Request(clusterName, "copy"), clusterstest.Request("", "roll-up-of-"+string(clusterName))}
		})
		members.Set(clusterstest.Ready("early"))
		members.Set(clusterstest.Away("early"))

		queue := newFairQueue("change-test", 4, workqueue.NewTypedItemExponentialFailureRateLimiter[clusters.Request](time.Second, time.Minute))
		defer queue.ShutDown()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := src.Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		next := func(n int) []string {
			var got []string
			for range n {
				request, priority, _ := queue.GetWithPriority()
				queue.Done(request)
				got = append(got, fmt.Sprintf("%s/%s %d", request.ClusterName, request.Name, priority))
			}
			slices.Sort(got)
			return got
		}
		if diff := cmp.Diff([]string{"/roll-up-of-early 0", "early/copy -100"}, next(queue.Len())); diff != "" {
			t.Errorf("changes before the start (-want +got):\n%s", diff)
		}
		members.Set(clusterstest.Ready("late"))
		members.Remove("early")
		synctest.Wait()
		want := []string{"/roll-up-of-early 0", "/roll-up-of-late 0", "early/copy -100", "late/copy -100"}
		if diff := cmp.Diff(want, next(queue.Len())); diff != "" {
			t.Errorf("changes after the start (-want +got):\n%s", diff)
		}
		cancel()
		synctest.Wait()
		members.Set(clusterstest.Ready("after"))
		synctest.Wait()
		if queue.Len() != 0 {
			t.Error("something is queued after the end")
		}
	})
}
