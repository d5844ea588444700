// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

var hub *testenv.Cluster

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	os.Exit(testenv.Main(m, &hub))
}

const patience = 60 * time.Second

type roundTripper func(*http.Request) (*http.Response, error)

func (fn roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return fn(req) }

// run starts a manager until the test ends or stop is called. Its writes are counted.
func run(t *testing.T, setup func(ctrl.Manager) error) (manager ctrl.Manager, writes *atomic.Int64, stop func()) {
	t.Helper()
	selected, err := Cached()
	if err != nil {
		t.Fatal(err)
	}
	writes = &atomic.Int64{}
	counting := rest.CopyConfig(hub.Config)
	counting.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodGet {
				writes.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	manager, err = ctrl.NewManager(counting, ctrl.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&appsv1.ControllerRevision{}: selected}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := setup(manager); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	if !manager.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches were not filled")
	}
	return manager, writes, stop
}

func redisWith(namespace, image string) *flotillav1.Redis {
	return &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache"},
		Spec:       flotillav1.RedisSpec{Image: image, Placement: &flotillav1.Placement{Clusters: []string{"eu-1"}}},
	}
}

// edit changes an object of the hub.
func edit(t *testing.T, redis *flotillav1.Redis, change func(*flotillav1.Redis)) {
	t.Helper()
	before := redis.DeepCopy()
	change(redis)
	if err := hub.Client.Patch(context.Background(), redis, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// revisions returns the revisions of an object, the newest first.
func revisions(object fleet.Object) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := hub.Client.List(context.Background(), &list, client.InNamespace(fleet.RevisionNamespace(object)), client.MatchingLabels(fleet.RevisionLabels(object)))
	fleet.SortRevisions(list.Items)
	return list.Items, err
}

// images returns the images in the revisions of an object, the newest first.
func images(redis *flotillav1.Redis) func() ([]string, error) {
	return func() ([]string, error) {
		items, err := revisions(redis)
		found := make([]string, 0, len(items))
		for i := range items {
			spec, err := fleet.RevisionSpec(&items[i])
			if err != nil {
				return nil, err
			}
			found = append(found, fmt.Sprint(spec["image"]))
		}
		return found, err
	}
}

func TestHistory_keeps_the_last_specs(t *testing.T) {
	g := NewWithT(t)
	redis := redisWith(hub.Namespace(t), "redis:0")
	g.Expect(hub.Client.Create(context.Background(), redis)).To(Succeed())
	_, _, stop := run(t, Setup)
	g.Eventually(images(redis), patience).Should(Equal([]string{"redis:0"}))
	items, err := revisions(redis)
	g.Expect(err).NotTo(HaveOccurred())
	owner := metav1.GetControllerOf(&items[0])
	g.Expect(owner).NotTo(BeNil())
	g.Expect(owner.UID).To(Equal(redis.UID))
	g.Expect(owner.Kind).To(Equal(fleet.Redis.Name))
	g.Expect(items[0].Revision).To(Equal(int64(1)))

	// Neither the choice of clusters nor how changes spread is part of it.
	edit(t, redis, func(r *flotillav1.Redis) {
		r.Spec.Placement.Clusters, r.Spec.Placement.Rollout = []string{"us-1"}, &flotillav1.Rollout{Paused: true}
	})
	edit(t, redis, func(r *flotillav1.Redis) { r.Spec.Image = "redis:1" })
	g.Eventually(images(redis), patience).Should(Equal([]string{"redis:1", "redis:0"}))

	// Going back gives the spec a new number, also after a restart.
	stop()
	edit(t, redis, func(r *flotillav1.Redis) { r.Spec.Image = "redis:0" })
	_, writes, _ := run(t, Setup)
	g.Eventually(images(redis), patience).Should(Equal([]string{"redis:0", "redis:1"}))
	items, err = revisions(redis)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(items[0].Revision).To(Equal(redis.Generation))
	g.Expect(writes.Load()).To(Equal(int64(1)), "one revision gets a new number")

	want := []string{"redis:0", "redis:1"}
	for i := range fleet.MaxRevisions {
		image := fmt.Sprint("redis:2.", i)
		edit(t, redis, func(r *flotillav1.Redis) { r.Spec.Image = image })
		want = slices.Insert(want, 0, image)
		g.Eventually(images(redis), patience).Should(Equal(want[:min(len(want), fleet.MaxRevisions)]))
	}
	g.Expect(writes.Load()).To(Equal(int64(1+fleet.MaxRevisions+2)), "ten are created, and two are deleted")
}

func TestHistory_keeps_what_is_recorded_of_a_pool_beside_the_manager(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	pool := &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "history"},
		Spec: flotillav1.NodePoolSpec{
			NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"pool": "history"}},
			Placement:    &flotillav1.Placement{Clusters: []string{"eu-1"}},
		},
	}
	unplaced := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "unplaced"}, Spec: flotillav1.NodePoolSpec{NodeSelector: pool.Spec.NodeSelector}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flotillav1.SystemNamespace}}
	g.Expect(client.IgnoreAlreadyExists(hub.Client.Create(ctx, namespace))).To(Succeed())
	for _, object := range []client.Object{unplaced, pool} {
		g.Expect(hub.Client.Create(ctx, object)).To(Succeed())
		t.Cleanup(func() { g.Expect(hub.Client.Delete(ctx, object)).To(Succeed()) })
	}
	run(t, Setup)
	g.Eventually(func() (int, error) { items, err := revisions(pool); return len(items), err }, patience).Should(Equal(1))
	g.Expect(revisions(unplaced)).To(BeEmpty())
}

func TestReconcile_tries_again_what_the_hub_refuses(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	manager, _, _ := run(t, addIndex)
	namespace := hub.Namespace(t)
	redis := redisWith(namespace, "redis:0")
	g.Expect(hub.Client.Create(ctx, redis)).To(Succeed())
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(redis)}
	_, err := manager.GetCache().GetInformer(ctx, redis)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error { return manager.GetClient().Get(ctx, request.NamespacedName, &flotillav1.Redis{}) }, patience).Should(Succeed())

	reader, err := client.New(hub.User(t, "nobody"), client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	reconciler := &Reconciler{Kind: fleet.Redis, Hub: writingAs{manager.GetClient(), reader}}
	g.Expect(reconciler.Reconcile(ctx, request)).To(Equal(ctrl.Result{RequeueAfter: fleet.RefusedDelay}))

	reconciler.Hub = manager.GetClient()
	g.Expect(reconciler.Reconcile(ctx, request)).To(Equal(ctrl.Result{}))
	g.Expect(images(redis)()).To(Equal([]string{"redis:0"}))
	g.Eventually(func() error {
		var list appsv1.ControllerRevisionList
		if err := manager.GetClient().List(ctx, &list, client.InNamespace(namespace)); err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d revisions (%w)", len(list.Items), err)
		}
		if list.Items[0].Data.Raw != nil || !strings.HasPrefix(list.Items[0].Name, "redis-cache-") {
			return fmt.Errorf("the cache has %+v", list.Items[0])
		}
		return nil
	}, patience).Should(Succeed())
}

// writingAs creates objects as somebody else.
type writingAs struct {
	client.Client
	writer client.Client
}

func (w writingAs) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return w.writer.Create(ctx, object, options...)
}
