// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

const (
	// heartbeatRounds is how often each node is heard of at least.
	heartbeatRounds = 1
	// writerName is who the controllers are for the API server.
	writerName = "flotilla-of-thousand"
)

var (
	// manyNodes is how many nodes the large pool has; drills have 1,000.
	manyNodes = 200
	// heartbeatTime is how long the nodes are heard of; drills lengthen it.
	heartbeatTime time.Duration
)

// sideBySide does something for every number, a few at a time.
func sideBySide(t *testing.T, count int, do func(int) error) {
	t.Helper()
	const workers = 8
	var working sync.WaitGroup
	for worker := range workers {
		working.Go(func() {
			for i := worker; i < count; i += workers {
				if err := do(i); err != nil {
					t.Errorf("number %d: %v", i, err)
					return
				}
			}
		})
	}
	working.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// thousand is a member of its own with many nodes, whose API server notes who writes.
type thousand struct{ *testenv.Cluster }

func newThousand(t *testing.T) thousand {
	t.Helper()
	m := thousand{testenv.Start(t)}
	// This many requests are not to wait for each other.
	config := *m.Config
	config.QPS = -1
	c, err := client.New(&config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	m.Client = c
	sideBySide(t, manyNodes, func(i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNumber(i), Labels: map[string]string{"flotilla.test/pool": "many"}}}
		if err := c.Create(context.Background(), node); err != nil {
			return err
		}
		patch := []byte(`{"status":{"allocatable":{"cpu":"4"},"capacity":{"cpu":"4"},"conditions":[{"type":"Ready","status":"True"}]}}`)
		return c.Status().Patch(context.Background(), node, client.RawPatch(types.StrategicMergePatchType, patch))
	})
	return m
}

func nodeNumber(i int) string { return fmt.Sprintf("many-%04d", i) }

// start runs the controllers with caches of their own until the test ends.
func (m thousand) start(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t, &testenv.Cluster{Config: m.User(t, writerName, "system:masters"), Client: m.Client})
	h.run()
	return h
}

// writes are what the controllers have written since the mark.
func (m thousand) writes(t *testing.T, mark int64) []testenv.Audited {
	t.Helper()
	return m.AuditedSince(t, mark, func(a testenv.Audited) bool { return a.IsWrite() && a.User.Username == writerName })
}

// applied waits until all nodes carry what the pool wants, and the status says so.
func (m thousand) applied(t *testing.T, h *harness) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		pool := h.pool("many")
		g.Expect(pool.Status.ObservedGeneration).To(Equal(pool.Generation))
		g.Expect(pool.Status.Status).To(Equal(int32(statusApplied)))
		g.Expect(pool.Status.UpdatedNodes).To(Equal(int32(manyNodes)))
	}).WithTimeout(2 * time.Minute).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// TestSetup_a_large_pool counts at the API server and in the metrics of the controllers what a large pool costs.
func TestSetup_a_large_pool(t *testing.T) {
	m := newThousand(t)
	pool := selecting("many", everything)
	pool.UID, pool.Generation = "", 0
	if err := m.Client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Run("a changed label is one patch for each node", func(t *testing.T) { changesOneLabel(t, m) })
	t.Run("after a restart nothing is written", func(t *testing.T) {
		mark, before := m.AuditMark(t), passes(t)
		h := m.start(t)
		NewWithT(t).Eventually(func() float64 { return passes(t) - before }).WithTimeout(time.Minute).Should(BeNumerically(">", manyNodes), "all nodes are looked at")
		resting(t)
		NewWithT(t).Expect(m.writes(t, mark)).To(BeEmpty())
		t.Run("and heartbeats cost nothing", func(t *testing.T) { beats(t, m, h) })
	})
}

func changesOneLabel(t *testing.T, m thousand) {
	t.Helper()
	g, h := NewWithT(t), m.start(t)
	m.applied(t, h)
	resting(t)
	mark, began := m.AuditMark(t), time.Now()
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"labels":{"`+labelKey.Name+`":"changed"}}}`))
	g.Expect(m.Client.Patch(t.Context(), h.pool("many"), change)).To(Succeed())
	m.applied(t, h)
	took := time.Since(began)
	resting(t)
	patched, status := map[string]int{}, 0
	for _, write := range m.writes(t, mark) {
		switch {
		case write.Verb == "patch" && write.ObjectRef.Resource == "nodes" && write.ResponseStatus.Code == 200:
			patched[write.ObjectRef.Name]++
		case strings.Contains(write.RequestURI, "/nodepools/many/status"):
			status++
		default:
			t.Errorf("not one of the writes that a changed label takes: %s %s, answered %d", write.Verb, write.RequestURI, write.ResponseStatus.Code)
		}
	}
	for name, times := range patched {
		if times != 1 {
			t.Errorf("node %s was patched %d times", name, times)
		}
	}
	g.Expect(patched).To(HaveLen(manyNodes))
	g.Expect(status).To(BeNumerically("<=", max(3, statusWrites(took))), "status writes")
	nodes := &corev1.NodeList{}
	g.Expect(m.Client.List(t.Context(), nodes, client.MatchingLabels{labelKey.Name: "changed"})).To(Succeed())
	g.Expect(nodes.Items).To(HaveLen(manyNodes))
}

// beats is what kubelets and agents write all day: heartbeats, images, annotations that no pool wants.
func beats(t *testing.T, m thousand, h *harness) {
	t.Helper()
	const pause = 20 * time.Second
	g, idle, mark, began := NewWithT(t), passes(t), m.AuditMark(t), time.Now()
	for round := 0; round < heartbeatRounds || time.Since(began) < heartbeatTime; round++ {
		sideBySide(t, manyNodes, func(i int) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNumber(i)}}
			at := began.Add(time.Duration(round+1) * time.Hour).UTC().Format(time.RFC3339)
			status := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q},{"type":"DiskPressure","status":"False","lastHeartbeatTime":%q}],
				"images":[{"names":["example.com/image:%d"],"sizeBytes":1}]}}`, at, at, round)
			if err := m.Client.Status().Patch(context.Background(), node, client.RawPatch(types.StrategicMergePatchType, []byte(status))); err != nil {
				return err
			}
			seen := fmt.Sprintf(`{"metadata":{"annotations":{"agent.example.com/seen":%q}}}`, at)
			return m.Client.Patch(context.Background(), node, client.RawPatch(types.MergePatchType, []byte(seen)))
		})
		if time.Since(began) < heartbeatTime {
			select {
			case <-time.After(pause):
			case <-t.Context().Done():
			}
		}
	}
	// The controllers have seen all of it.
	live := &corev1.NodeList{}
	g.Expect(m.Client.List(t.Context(), live)).To(Succeed())
	g.Eventually(func(g Gomega) {
		seen := &corev1.NodeList{}
		g.Expect(h.member.GetCache().List(t.Context(), seen, client.UnsafeDisableDeepCopy)).To(Succeed())
		versions := map[string]string{}
		for i := range seen.Items {
			versions[seen.Items[i].Name] = seen.Items[i].ResourceVersion
		}
		for i := range live.Items {
			g.Expect(versions).To(HaveKeyWithValue(live.Items[i].Name, live.Items[i].ResourceVersion))
		}
	}).Should(Succeed())
	g.Consistently(func() float64 { return passes(t) - idle }).WithTimeout(2*time.Second).Should(BeZero(), "passes after heartbeats")
	g.Expect(m.writes(t, mark)).To(BeEmpty(), "writes after heartbeats")
	g.Expect(h.pool("many").Status.Status).To(Equal(int32(statusApplied)))
	g.Expect(h.pool("many").Status.ReadyNodes).To(Equal(int32(manyNodes)))
}
