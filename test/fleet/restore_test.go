// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		if component == "etcd" {
			f.awaitEtcd(t, cluster)
		}
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
	f.expectConverged(t, f.registered()...)
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
	f.expectConverged(t, f.registered()...)
	f.settled(t, name)
	g.Expect(cmp.Diff(world, f.world(t, name))).To(BeEmpty(), "the member is as it was")
	f.expectSameManager(t, manager)
}

// ofPool is where the record on a node says which pool wrote it: one that is made again is another one.
var ofPool = regexp.MustCompile(`"uid":"[^"]*"`)

// lasting is the part of a member's world that is not owned by objects of our kinds: nodes, and what holds data.
func (f *fleet) lasting(t *testing.T, name string) map[string]string {
	t.Helper()
	kept := f.world(t, name)
	maps.DeleteFunc(kept, func(what, _ string) bool {
		return !slices.ContainsFunc([]string{"-node-", "PersistentVolumeClaim", "Secret"}, func(word string) bool { return strings.Contains(what, word) })
	})
	for what, is := range kept {
		kept[what] = ofPool.ReplaceAllString(is, "")
	}
	return kept
}

// kindsRemovedFromMember deletes the kinds from a member, whose owner brings them back: nodes keep their keys, data and
// password stay.
func kindsRemovedFromMember(t *testing.T, f *fleet) {
	const name = "member-2"
	g := NewWithT(t)
	f.expectConverged(t, f.registered()...)
	f.settled(t, name)
	before := f.lasting(t, name)
	f.removeKinds(t, f.members[name])
	f.expectTold(t, name, "APIsServed False "+flotillav1.ReasonCRDMissing, "ClusterRefused")
	g.Expect(conditionStatus(f.memberCluster(name).Status.Conditions, flotillav1.ConditionReady)).To(Equal("False"))
	g.Expect(cmp.Diff(before, f.lasting(t, name))).To(BeEmpty(), "nodes, data and password stay")
	expectReaction(t, f, "member-1")

	f.prepareMember(t, name)
	f.expectJoined(t, name)
	// What the Redis of before consisted of is in the way until the garbage collector, which looks for new kinds every 30 s,
	// has found out that its owner is gone.
	g.Eventually(func() string { return conditionStatus(f.hubRedis().Status.Conditions, flotillav1.ConditionFullyReady) }, 2*time.Minute, time.Second).Should(Equal("True"))
	expectBack(t, f, name)
	f.expectConverged(t, name)
	f.settled(t, name)
	g.Expect(cmp.Diff(before, f.lasting(t, name))).To(BeEmpty(), "nodes, data and password are as they were")
}

// kindsInstalledInMember deletes the kinds from a member, and the manager brings them back.
func kindsInstalledInMember(t *testing.T, f *fleet) {
	const name = "member-3"
	g := NewWithT(t)
	f.stopManager(t)
	f.manager = f.runManager(t, "hub", hubID, "--members-crds=Install")
	f.kubectl(t, name, "apply", "-f", f.root+"/config/member/crd_installer.yaml")
	f.expectConverged(t, f.registered()...)
	f.settled(t, name)
	before, old := f.lasting(t, name), f.memberRedis(name).UID
	f.removeKinds(t, f.members[name])
	g.Eventually(func(g Gomega) {
		now := f.memberRedis(name).UID
		g.Expect(now).NotTo(BeEmpty())
		g.Expect(now).NotTo(Equal(old))
	}, 90*time.Second, 200*time.Millisecond).Should(Succeed(), "the manager brings kinds and copies back")
	f.expectJoined(t, name)
	// What the Redis of before consisted of is in the way until the garbage collector, which looks for new kinds every 30 s,
	// has found out that its owner is gone.
	g.Eventually(func() string { return conditionStatus(f.hubRedis().Status.Conditions, flotillav1.ConditionFullyReady) }, 2*time.Minute, time.Second).Should(Equal("True"))
	expectBack(t, f, name)
	f.expectConverged(t, name)
	expectReaction(t, f, name)
	f.settled(t, name)
	g.Expect(cmp.Diff(before, f.lasting(t, name))).To(BeEmpty(), "nodes, data and password are as they were")
	f.stopManager(t)
	f.startManager(t)
}

// kindsRemovedFromHub deletes the kinds from the hub: the copies stay, and are taken up when kinds and objects are back.
func kindsRemovedFromHub(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world, asked := f.world(t, registered...), map[string]audit{}
	for _, name := range registered {
		asked[name] = f.audit(t, name)
	}
	// A policy keeps them while there are members. Who means it lifts that.
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "redises.flotilla.dev"}}
	g.Eventually(func() error { return f.hub.Delete(f.ctx, crd, client.DryRunAll) }, 10*time.Second, 100*time.Millisecond).Should(MatchError(ContainSubstring("flotilla-keep")))
	f.kubectl(t, "hub", "delete", "validatingadmissionpolicybinding", "flotilla-keep")
	g.Eventually(func() error { return f.hub.Delete(f.ctx, crd, client.DryRunAll) }, 10*time.Second, 100*time.Millisecond).Should(Succeed())
	f.removeKinds(t, f.hub)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "nothing is removed from any member")

	f.install(t, "hub")
	f.bringBack(t)
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "the copies are taken up as they were")
	for _, name := range registered {
		g.Expect(asked[name].requests(t, func(r request) bool { return r.write() && r.Verb == "delete" })).To(BeEmpty())
	}
}

// bringBack creates the hub's objects as Git would, as soon as the kinds are served, and waits for the fleet to be well.
func (f *fleet) bringBack(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	pool := webPool()
	pool.Spec.Labels["example.com/revision"] = "last"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, pool, cacheRedis(),
	} {
		g.Eventually(func() error {
			object.SetResourceVersion("")
			return client.IgnoreAlreadyExists(f.hub.Create(f.ctx, object))
		}, 20*time.Second, 200*time.Millisecond).Should(Succeed())
	}
	g.Eventually(func(g Gomega) {
		redis := f.hubRedis()
		g.Expect(conditionStatus(redis.Status.Conditions, "FullyReady")).To(Equal("True"))
		g.Expect(redis.Status.PlacedIn).To(HaveLen(f.count))
		g.Expect(f.hubPool().Status.PlacedIn).To(HaveLen(f.count))
	}, 60*time.Second, 200*time.Millisecond).Should(Succeed())
}

// awaitEtcd waits until etcd can be reached. An API server that comes too early gives up, and nothing here starts it again.
func (f *fleet) awaitEtcd(t *testing.T, cluster string) {
	t.Helper()
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(f.pid(t, cluster, "etcd")), "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(line), "--listen-client-urls=http://")
	if !found {
		t.Fatalf("etcd of %q listens nowhere: %q", cluster, line)
	}
	address, _, _ := strings.Cut(after, "\x00")
	NewWithT(t).Eventually(func() error {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			err = connection.Close()
		}
		return err
	}, 60*time.Second, 100*time.Millisecond).Should(Succeed(), "etcd of %s listens", cluster)
}
