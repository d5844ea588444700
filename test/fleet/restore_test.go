// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// snapshot keeps what a cluster's etcd holds now. The files are those that a power cut at this moment would leave.
func (f *fleet) snapshot(t *testing.T, cluster string) (path string) {
	t.Helper()
	path = filepath.Join(f.dir, "config", cluster+".snapshot")
	f.signal(t, cluster, "etcd", syscall.SIGSTOP)
	defer f.signal(t, cluster, "etcd", syscall.SIGCONT)
	f.command(t, "rm", "-rf", path)
	f.command(t, "cp", "-a", filepath.Join(f.clusterDir(cluster), "etcd"), path)
	return path
}

// restore puts a cluster back to a snapshot, with everything of its control plane started anew.
func (f *fleet) restore(t *testing.T, cluster, path string) {
	t.Helper()
	files, err := filepath.Glob(f.pidFile(cluster, "*"))
	if err != nil {
		t.Fatal(err)
	}
	restarts := map[string]func(*testing.T){}
	for _, file := range files {
		component := strings.TrimSuffix(filepath.Base(file), ".pid")
		restarts[component] = f.kill(t, cluster, component)
	}
	data := filepath.Join(f.clusterDir(cluster), "etcd")
	f.command(t, "rm", "-rf", data)
	f.command(t, "cp", "-a", path, data)
	for _, component := range []string{"etcd", apiServer} {
		restarts[component](t)
		delete(restarts, component)
	}
	f.awaitReady(t, cluster)
	for _, restart := range restarts {
		restart(t)
	}
}

// memberRestored puts a member back to an old snapshot.
func memberRestored(t *testing.T, f *fleet) {
	const name = "member-2"
	g := NewWithT(t)
	f.expectConverged(t, f.memberNames()[:3]...)
	f.settled(t, name)
	world := f.world(t, name)
	snapshot := f.snapshot(t, name)
	g.Expect(f.setRevision(f.ctx, "after-the-snapshot")).To(Succeed())
	g.Eventually(func() error { return f.hasRevision(f.ctx, "after-the-snapshot", name) }, loadPatience(), 100*time.Millisecond).Should(Succeed())
	for range 5 {
		healService(t, f, name)
	}
	manager, asked := f.manager, f.audit(t, name)
	f.restore(t, name, snapshot)
	g.Eventually(func() error { return f.hasRevision(f.ctx, "after-the-snapshot", name) }, 60*time.Second, 200*time.Millisecond).Should(Succeed(), "the member gets what it has lost")
	expectBack(t, f, name)
	expectReaction(t, f, name)
	lists := map[string]int{}
	for _, asked := range asked.requests(t, request.relist) {
		path, _, _ := strings.Cut(asked, "?")
		lists[path]++
	}
	g.Expect(lists).NotTo(BeEmpty(), "everything is listed again")
	for path, times := range lists {
		g.Expect(times).To(Equal(1), "%s is listed once", path)
	}
	f.expectConverged(t, f.memberNames()[:3]...)
	f.settled(t, name)
	g.Expect(cmp.Diff(world, f.world(t, name))).To(BeEmpty(), "the member is as it was")
	f.expectSameManager(t, manager)
}

// kindsRemovedFromMember deletes the kinds from a member: nodes keep their keys, data and password stay.
func kindsRemovedFromMember(t *testing.T, f *fleet) {
	const name = "member-2"
	g, member := NewWithT(t), f.members[name]
	f.expectConverged(t, f.memberNames()[:3]...)
	f.settled(t, name)
	// Objects of the Redis itself are owned by it and go with it; what holds data, and the nodes, do not.
	lasting := func() map[string]string {
		kept := map[string]string{}
		for what, is := range f.world(t, name) {
			for _, word := range []string{"-node-", "PersistentVolumeClaim", "Secret"} {
				if strings.Contains(what, word) {
					kept[what] = is
				}
			}
		}
		return kept
	}
	before := lasting()
	f.removeKinds(t, member)
	g.Eventually(func(g Gomega) {
		conditions := f.memberCluster(name).Status.Conditions
		served := apimeta.FindStatusCondition(conditions, flotillav1.ConditionAPIsServed)
		g.Expect(served).NotTo(BeNil())
		g.Expect(string(served.Status) + " " + served.Reason).To(Equal("False " + flotillav1.ReasonCRDMissing))
		g.Expect(conditionStatus(conditions, flotillav1.ConditionReady)).To(Equal("False"))
	}, 60*time.Second, 200*time.Millisecond).Should(Succeed())
	g.Expect(cmp.Diff(before, lasting())).To(BeEmpty(), "nodes, data and password stay")
	expectReaction(t, f, "member-1")

	f.prepareMember(t, name)
	g.Eventually(func() string { return conditionStatus(f.memberCluster(name).Status.Conditions, "Ready") }, 60*time.Second, 200*time.Millisecond).Should(Equal("True"))
	expectBack(t, f, name)
	f.expectConverged(t, name)
	g.Expect(cmp.Diff(before, lasting())).To(BeEmpty(), "nodes, data and password are as they were")
}
