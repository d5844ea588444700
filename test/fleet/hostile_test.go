// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

// hostileMemory is how much more memory the manager may hold for all hostile members together, with the race detector.
const hostileMemory = 4 << 30

// hostile is a member that misbehaves.
type hostile struct {
	name  string
	begin func(*clusterstest.Server)
	// said are conditions, one of which is said of it.
	said []string
}

// hostileMembers has more members that misbehave than there are others, which do not notice. All of them are chosen.
func hostileMembers(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world, manager, before := f.world(t, registered...), f.manager, f.manager.memory(t)

	load := f.startLoad(t, registered...)
	members := hostiles(t)
	names := make([]string, 0, len(members))
	for _, member := range members {
		server := clusterstest.Start(t)
		member.begin(server)
		registration := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "flotilla-clusters", Name: member.name,
				Labels: map[string]string{flotillav1.LabelCluster: "true", "region": "nowhere"},
			},
			Data: map[string][]byte{flotillav1.KeyKubeconfig: server.Kubeconfig()},
		}
		f.put(t, registration)
		t.Cleanup(func() { _ = client.IgnoreNotFound(f.hub.Delete(context.Background(), registration)) })
		names = append(names, member.name)
	}
	for _, member := range members {
		g.Eventually(func() string { return f.condition(member.name, member.said[0]) }, 6*time.Minute, 200*time.Millisecond).Should(BeElementOf(member.said), member.name)
	}
	for _, name := range registered {
		expectReaction(t, f, name)
	}
	g.Eventually(func(g Gomega) {
		counts := f.hubRedis().Status.ClusterCounts
		g.Expect(counts.Desired).To(Equal(int32(len(registered) + len(members))))
		g.Expect(counts.Ready + counts.NotReady + counts.Unknown).To(Equal(counts.Desired))
		g.Expect(counts.Ready).To(Equal(int32(len(registered))))
		g.Expect(f.hubRedis().Status.ReadyReplicas).To(Equal(f.allReplicas()))
	}, 20*time.Second, 200*time.Millisecond).Should(Succeed())
	load.stop(t)
	held := manager.memory(t)
	t.Logf("The manager holds %d MiB, %d MiB without hostile members", held>>20, before>>20)
	g.Expect(held).To(BeNumerically("<", before+hostileMemory))

	f.withdraw(t, names...)
	for _, name := range registered {
		expectBack(t, f, name)
	}
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "nothing in the others changes")
	f.expectSameManager(t, manager)
}

// hostiles are a member for each way of misbehaving.
func hostiles(t *testing.T) []hostile {
	t.Helper()
	fault := func(fault clusterstest.Fault) func(*clusterstest.Server) {
		return func(s *clusterstest.Server) { s.Misbehave(t, fault) }
	}
	elsewhere := clusterstest.Start(t)
	return []hostile{
		{"hangs", fault(clusterstest.Hang()), []string{"Reachable False Timeout"}},
		{"slow", fault(clusterstest.Slow(2 * time.Second)), []string{"Reachable False Timeout"}},
		{"fails", fault(clusterstest.Status(http.StatusInternalServerError)), []string{"Reachable False ProbeFailed"}},
		{"redirects", fault(clusterstest.Redirect(elsewhere.URL())), []string{"Reachable False ProbeFailed"}},
		// Which of the limits it reaches first depends on how fast it can be read.
		{"endless", fault(clusterstest.Endless(false)), []string{"CachesSynced False LimitExceeded", "CachesSynced False SyncTimeout"}},
		{"bomb", fault(clusterstest.Endless(true)), []string{"CachesSynced False LimitExceeded"}},
		{"garbage", fault(clusterstest.Garbage("application/json", `{"items":[{`)), []string{"CachesSynced Unknown Syncing", "CachesSynced False SyncTimeout"}},
		{"other-kinds", func(s *clusterstest.Server) {
			for _, name := range []string{"redises", "nodepools"} {
				s.Remove(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name + ".flotilla.dev"}})
			}
		}, []string{"APIsServed False CRDMissing"}},
	}
}

// memory is how many bytes of memory the process holds.
func (p *process) memory(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kilobytes, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
