// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// overtaken is by how many writes a member that was restored is ahead of its own past when the manager is let in.
	overtaken = 50
	// noticing is how long it may take until a restored member is as the hub wants it.
	noticing = 90 * time.Second
)

// memberRestored puts members back to snapshots that are seconds old, while the manager is cut off, and has them write
// until their revisions have overtaken those that the manager knows. Without a refilled cache it would miss what was lost.
// Every other time the claim is renewed after the snapshot, and is therefore older afterwards.
func (f *fence) memberRestored(t *testing.T) {
	leader, standby := f.pair(t, "hub")
	for i := range f.rounds {
		if !f.restoreRound(t, i+1, f.registered()[i%f.count], leader) {
			// The next round begins with caches that are right.
			f.quit(t, standby, leader)
			leader, standby = f.pair(t, "hub")
		}
	}
	f.quit(t, standby, leader)
}

// lostPast is what a member is put back to, and what it forgets with that.
type lostPast struct {
	snapshot string
	// deleted is an object whose copy is in the snapshot and was deleted later, created is one whose copy was made later,
	// and revision is what nodes got later.
	deleted, created *flotillav1.NodePool
	revision         flotillav1.LabelValue
	// renewal says whether the claim was renewed after the snapshot.
	renewal string
}

// makePast takes a snapshot of a member in the middle of the manager's work, and waits for changes after it.
func (f *fence) makePast(t *testing.T, round int, name string, leader *contender) lostPast {
	t.Helper()
	g, writing := NewWithT(t), f.note(t)
	p := lostPast{
		deleted: ownPool("deleted", round, name), created: ownPool("created", round, name),
		revision: flotillav1.LabelValue(fmt.Sprint("restored-", round)), renewal: "the claim was not renewed in between",
	}
	stop := f.churn(t, "hub", f.hub)
	defer stop()
	g.Expect(f.hub.Create(f.ctx, p.deleted)).To(Succeed())
	f.expectCopy(t, name, p.deleted, true)
	f.awaitWrites(t, writing, leader, time.Minute)

	renewed := f.renewed(t, name)
	p.snapshot = f.snapshot(t, name)
	g.Expect(f.hub.Create(f.ctx, p.created)).To(Succeed())
	g.Expect(f.hub.Delete(f.ctx, p.deleted)).To(Succeed())
	f.expectCopy(t, name, p.created, true)
	f.expectCopy(t, name, p.deleted, false)
	if round%2 == 1 {
		g.Eventually(func() time.Time { return f.renewed(t, name) }, 90*time.Second, 200*time.Millisecond).Should(BeTemporally(">", renewed))
	}
	stop()
	g.Expect(f.setRevision(f.ctx, p.revision)).To(Succeed())
	g.Eventually(func() error { return f.hasRevision(f.ctx, p.revision, name) }, loadPatience(), 100*time.Millisecond).Should(Succeed())
	if f.renewed(t, name) != renewed {
		p.renewal = "the claim was renewed in between"
	}
	return p
}

// restoreRound reports whether the member is as the hub wants it.
func (f *fence) restoreRound(t *testing.T, round int, name string, leader *contender) bool {
	t.Helper()
	g, writing := NewWithT(t), f.note(t)
	past := f.makePast(t, round, name, leader)
	before, cut, logged := f.resourceVersion(t, name), time.Now(), leader.logged()
	f.lines[name].Refuse()
	f.restore(t, name, past.snapshot)
	f.drive(t, name, before+overtaken)
	f.lines[name].Restore(t)
	back := time.Now()

	var problems []string
	if err := f.awaitWanted(name, past); err != nil {
		problems = append(problems, fmt.Sprintf("%s is not as the hub wants it %v after it is back (%s): %v", name, noticing, past.renewal, err))
	}
	took, noticed := time.Since(back), "not noticed"
	if leader.says("went back to an earlier state", logged) {
		noticed = "noticed"
	}
	problems = append(problems, f.clearUp(t, name, past)...)
	shown := f.show(t, writing)
	for _, member := range f.registered() {
		g.Expect(shown.last[member]).To(Equal(leader.pid()), "%s writes to %s", leader.name, member)
	}
	f.report(t, row{attack: "member restored", round: round, took: took, gap: shown.gap, told: fmt.Sprintf(
		"%s, cut off at revision %d for %v; %s; %s", name, before, back.Sub(cut).Round(100*time.Millisecond), past.renewal, noticed)},
		append(problems, shown.problems...))
	return len(problems) == 0
}

// ownPool is a NodePool for one member, and for no node.
func ownPool(what string, round int, member string) *flotillav1.NodePool {
	name := fmt.Sprintf("%s-%d", what, round)
	return &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flotillav1.NodePoolSpec{
		Placement:    &flotillav1.Placement{Clusters: []string{member}},
		NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/fence": flotillav1.LabelValue(name)}},
	}}
}

// hasCopy reports whether a member has the copy of an object.
func (f *fence) hasCopy(name string, of client.Object) (bool, error) {
	err := f.members[name].Get(f.ctx, client.ObjectKeyFromObject(of), &flotillav1.NodePool{})
	return err == nil, client.IgnoreNotFound(err)
}

// expectCopy waits until a member has the copy of an object, or has it no more. Without a copy, an object that was deleted
// is gone from the hub, too.
func (f *fence) expectCopy(t *testing.T, name string, of client.Object, want bool) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		has, err := f.hasCopy(name, of)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(has).To(Equal(want))
		err = f.hub.Get(f.ctx, client.ObjectKeyFromObject(of), &flotillav1.NodePool{})
		g.Expect(apierrors.IsNotFound(err)).To(Equal(!want))
	}, time.Minute, 100*time.Millisecond).Should(Succeed(), "copy of %s in %s: %v", of.GetName(), name, want)
}

// awaitWanted waits until the manager has seen how the restored member is and has given it what the hub wants: the copy
// that the snapshot lacks, the latest labels on nodes, and a summary that counts what came back.
func (f *fence) awaitWanted(name string, past lostPast) error {
	wanted := func() error {
		for _, copied := range []*flotillav1.NodePool{past.created, past.deleted} {
			// One that came back stays: no object on the hub accounts for it, and absence is never a reason to delete.
			if err := f.members[name].Get(f.ctx, client.ObjectKeyFromObject(copied), &flotillav1.NodePool{}); err != nil {
				return err
			}
		}
		if err := f.hasRevision(f.ctx, past.revision, name); err != nil {
			return err
		}
		pools, mc := &flotillav1.NodePoolList{}, f.memberCluster(name)
		if err := f.members[name].List(f.ctx, pools); err != nil {
			return err
		}
		if conditionStatus(mc.Status.Conditions, flotillav1.ConditionReady) != "True" || mc.Status.Summary == nil {
			return fmt.Errorf("the MemberCluster is not ready: %v", mc.Status.Conditions)
		}
		if total := mc.Status.Summary.NodePools.Total; int(total) != len(pools.Items) {
			return fmt.Errorf("the MemberCluster counts %d NodePools, the member has %d", total, len(pools.Items))
		}
		return nil
	}
	var err error
	for deadline := time.Now().Add(noticing); time.Now().Before(deadline); f.wait(200 * time.Millisecond) {
		if err = wanted(); err == nil {
			return nil
		}
	}
	return err
}

// clearUp has the hub want what came back, and then none of it, and returns what stays.
func (f *fence) clearUp(t *testing.T, name string, past lostPast) (problems []string) {
	t.Helper()
	g := NewWithT(t)
	again := ownPool("", 0, name)
	again.Name, again.Spec.NodeSelector = past.deleted.Name, past.deleted.Spec.NodeSelector
	g.Expect(f.hub.Create(f.ctx, again)).To(Succeed())
	g.Eventually(func() []string {
		pool := &flotillav1.NodePool{}
		_ = f.hub.Get(f.ctx, client.ObjectKeyFromObject(again), pool)
		return pool.Status.PlacedIn
	}, time.Minute, 100*time.Millisecond).Should(ContainElement(name))
	for _, pool := range []*flotillav1.NodePool{again, past.created} {
		g.Expect(f.hub.Delete(f.ctx, pool)).To(Succeed())
	}
	for _, pool := range []*flotillav1.NodePool{again, past.created} {
		has := true
		for deadline := time.Now().Add(noticing); has && time.Now().Before(deadline); f.wait(200 * time.Millisecond) {
			has, _ = f.hasCopy(name, pool)
		}
		if has {
			problems = append(problems, fmt.Sprintf("the copy of %s is in %s still, %v after the object was deleted", pool.Name, name, noticing))
		}
	}
	return problems
}

// renewed is when the claim on a member was renewed last.
func (f *fence) renewed(t *testing.T, name string) time.Time {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := f.members[name].Get(f.ctx, client.ObjectKey{Namespace: "flotilla-system", Name: "flotilla-hub"}, lease); err != nil {
		t.Fatal(err)
	}
	return lease.Spec.RenewTime.Time
}

// resourceVersion is the revision of a member.
func (f *fence) resourceVersion(t *testing.T, name string) uint64 {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := f.members[name].List(f.ctx, list, client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	return parseVersion(t, list.ResourceVersion)
}

func parseVersion(t *testing.T, version string) uint64 {
	t.Helper()
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// drive writes to a member until its revision is as high as given.
func (f *fence) drive(t *testing.T, name string, revision uint64) {
	t.Helper()
	g := NewWithT(t)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "drive-"}}
	g.Expect(f.members[name].Create(f.ctx, object)).To(Succeed())
	for i := 0; parseVersion(t, object.ResourceVersion) < revision; i++ {
		object.Data = map[string]string{"write": strconv.Itoa(i)}
		g.Expect(f.members[name].Update(f.ctx, object)).To(Succeed())
	}
	g.Expect(f.members[name].Delete(f.ctx, object)).To(Succeed())
}
