// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

const memberName = multicluster.ClusterName("eu-1")

var shared *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &shared)) }

// harness is one real member with its cache, and a recorder.
type harness struct {
	t      *testing.T
	api    client.Client
	member cluster.Cluster
	// members contains member as memberName.
	members *clusterstest.Directory
	clock   *clocktesting.FakePassiveClock
	nodes   *NodeReconciler
	pools   *PoolReconciler
	wire    *wire
	ledger  *Ledger
	mu      sync.Mutex
	events  []clusters.Event
	regards []string
}

func newHarness(t *testing.T, control *testenv.Cluster) *harness {
	t.Helper()
	h := &harness{t: t, api: control.Client, clock: clocktesting.NewFakePassiveClock(time.Now()), wire: &wire{}, ledger: NewLedger()}
	config := rest.CopyConfig(control.Config)
	if control == shared {
		// In production the rights and policies of a member hold.
		config = control.AsHub(t)
	}
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return h.wire.around(next) })
	managed, err := labels.Parse(flotillav1.LabelNodePool)
	if err != nil {
		t.Fatal(err)
	}
	h.member, err = cluster.New(config, func(o *cluster.Options) {
		o.Scheme = testenv.Scheme()
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			&nodev1.RuntimeClass{}: {Label: managed}, &corev1.Node{}: {Transform: kinds.Trim(&corev1.Node{})},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.member.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	for _, obj := range []client.Object{&corev1.Node{}, &flotillav1.NodePool{}, &nodev1.RuntimeClass{}} {
		if _, err := h.member.GetCache().GetInformer(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	if !h.member.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches are not synced")
	}
	h.members = clusterstest.NewDirectory(clusterstest.Ready(memberName))
	h.members.Engage(memberName, h.member)
	h.nodes = &NodeReconciler{Members: h.members, Clock: h.clock, Ledger: h.ledger, bell: &bell{}}
	h.pools = &PoolReconciler{Members: h.members, Recorder: h, Clock: h.clock, Ledger: h.ledger}
	return h
}

// Record implements clusters.Recorder.
func (h *harness) Record(_ multicluster.ClusterName, regarding client.Object, event clusters.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event)
	h.regards = append(h.regards, regarding.GetName())
}

// reasons returns the reasons of the events about a pool, in order.
func (h *harness) reasons(poolName string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var reasons []string
	for i, event := range h.events {
		if h.regards[i] == poolName {
			reasons = append(reasons, event.Reason)
		}
	}
	slices.Sort(reasons)
	return reasons
}

// round is one pass over a pool and over each node, a little later than the one before.
func (h *harness) round(poolNames ...string) error {
	ctx := context.Background()
	h.clock.SetTime(h.clock.Now().Add(passInterval + time.Millisecond))
	for _, poolName := range poolNames {
		if _, err := h.pools.Reconcile(ctx, request(memberName, poolName)); err != nil {
			return err
		}
	}
	nodes := &corev1.NodeList{}
	if err := h.api.List(ctx, nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if _, err := h.nodes.Reconcile(ctx, request(memberName, node.Name)); err != nil {
			return err
		}
	}
	return nil
}

// until makes rounds until the check holds. A round that fails is made again, as the queue would.
func (h *harness) until(poolName string, check func(g Gomega)) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func(g Gomega) {
		_ = h.round(poolName)
		check(g)
	}).WithPolling(20 * time.Millisecond).Should(Succeed())
}

// applied makes rounds until the pool says that all is applied.
func (h *harness) applied(poolName string, updated int32) *flotillav1.NodePool {
	h.t.Helper()
	h.until(poolName, func(g Gomega) {
		pool := h.pool(poolName)
		g.Expect(pool.Status.ObservedGeneration).To(Equal(pool.Generation))
		g.Expect(pool.Status.Status).To(Equal(int32(statusApplied)), "%+v", pool.Status.Conditions)
		g.Expect(pool.Status.UpdatedNodes).To(Equal(updated))
	})
	return h.pool(poolName)
}

// quiet checks that rounds write nothing once the caches have caught up.
func (h *harness) quiet(poolName string) {
	h.t.Helper()
	h.until(poolName, func(g Gomega) {
		before := h.wire.count("")
		for range 3 {
			g.Expect(h.round(poolName)).To(Succeed())
		}
		g.Expect(h.wire.count("") - before).To(BeZero())
	})
}

func (h *harness) pool(name string) *flotillav1.NodePool {
	h.t.Helper()
	pool := &flotillav1.NodePool{}
	h.get(name, pool)
	return pool
}

func (h *harness) node(name string) *corev1.Node {
	h.t.Helper()
	node := &corev1.Node{}
	h.get(name, node)
	return node
}

func (h *harness) get(name string, obj client.Object) {
	h.t.Helper()
	if err := h.api.Get(context.Background(), client.ObjectKey{Name: name}, obj); err != nil {
		h.t.Fatal(err)
	}
}

// create makes the pool and takes it and its RuntimeClass away at the end of the test.
func (h *harness) create(pool *flotillav1.NodePool) {
	h.t.Helper()
	ctx := context.Background()
	pool.UID, pool.Generation = "", 0
	if err := h.api.Create(ctx, pool); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = h.api.Delete(ctx, &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}})
		_ = h.api.Patch(ctx, &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}},
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		_ = h.api.Delete(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: flotillav1.RuntimeClassPrefix + pool.Name}})
	})
	h.cached(pool)
}

// cached waits until the cache has the object as it is on the API server, or knows that it is gone.
func (h *harness) cached(obj client.Object) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func(g Gomega) {
		live, err := testenv.Scheme().New(mustGVK(obj))
		g.Expect(err).NotTo(HaveOccurred())
		seen := live.DeepCopyObject().(client.Object)
		liveErr := h.api.Get(context.Background(), client.ObjectKeyFromObject(obj), live.(client.Object))
		seenErr := h.member.GetCache().Get(context.Background(), client.ObjectKeyFromObject(obj), seen)
		g.Expect(seenErr == nil).To(Equal(liveErr == nil))
		g.Expect(seen.GetResourceVersion()).To(Equal(live.(client.Object).GetResourceVersion()))
	}).WithPolling(5 * time.Millisecond).Should(Succeed())
}

func (h *harness) update(obj client.Object, change func()) {
	h.t.Helper()
	h.get(obj.GetName(), obj)
	before := obj.DeepCopyObject().(client.Object)
	change()
	if err := h.api.Patch(context.Background(), obj, client.MergeFrom(before)); err != nil {
		h.t.Fatal(err)
	}
	h.cached(obj)
}

func (h *harness) delete(obj client.Object) {
	h.t.Helper()
	if err := h.api.Delete(context.Background(), obj); err != nil {
		h.t.Fatal(err)
	}
	h.cached(obj)
}

func condition(pool *flotillav1.NodePool, conditionType string) metav1.Condition {
	if found := apimeta.FindStatusCondition(pool.Status.Conditions, conditionType); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// wire counts accepted writes and lets a test act just before one.
type wire struct {
	mu     sync.Mutex
	writes []string
	reads  []string
	// before may answer a write in place of the API server, beforeRead a read.
	before, beforeRead func(request string) *http.Response
}

// unanswered stands for a request without an answer in time.
var unanswered = &http.Response{}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (w *wire) around(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		call := req.Method + " " + req.URL.Path
		w.mu.Lock()
		before := w.before
		if req.Method == http.MethodGet {
			before = w.beforeRead
			w.reads = append(w.reads, call)
		}
		w.mu.Unlock()
		if before != nil {
			switch answer := before(call); answer {
			case nil:
			case unanswered:
				return nil, context.DeadlineExceeded
			default:
				answer.Request = req
				return answer, nil
			}
		}
		answer, err := next.RoundTrip(req)
		if err == nil && answer.StatusCode < http.StatusBadRequest && req.Method != http.MethodGet {
			w.mu.Lock()
			w.writes = append(w.writes, call)
			w.mu.Unlock()
		}
		return answer, err
	})
}

// intercept sets what happens before each write.
func (w *wire) intercept(before func(write string) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// interceptReads sets what happens before each read.
func (w *wire) interceptReads(before func(read string) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beforeRead = before
}

// readCount returns how many reads contain the text.
func (w *wire) readCount(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(w.reads), func(read string) bool { return !strings.Contains(read, text) }))
}

// count returns how many accepted writes contain the text.
func (w *wire) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, write := range w.writes {
		if strings.Contains(write, text) {
			n++
		}
	}
	return n
}

func forbidden() *http.Response {
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no rights on nodes.","reason":"Forbidden","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewBufferString(body)),
	}
}
