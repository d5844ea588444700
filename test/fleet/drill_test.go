// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
)

func init() { idleTime = 5 * time.Minute }

// TestDrill runs what takes too long for every day, on a fleet of its own. What its scenarios show is in the list of TestFleet.
func TestDrill(t *testing.T) {
	runScenarios(t, start(t, 3), []scenario{
		{"MembersJoin", membersJoin},
		{"ObjectsArePlacedAndAddedUp", placedAndAddedUp},
		{"EveryMemberGoesAwayInEveryWay", everyOutage},
		{"HubGoesAwayInEveryWay", everyHubOutage},
		{"HostileMembersBesideTheOthers", hostileMembers},
		{"HubIsAwayForLong", hubAwayForLong},
		{"ManagerIsKilledOften", func(t *testing.T, f *fleet) { managerKilled(t, f, 20) }},
		{"MemberIsRestored", memberRestored},
		{"HubIsRebuiltEmpty", hubRebuilt},
		{"KindsRemovedFromTheHub", kindsRemovedFromHub},
		{"KindsRemovedFromAMember", kindsRemovedFromMember},
		{"KindsInstalledInAMember", kindsInstalledInMember},
	})
}

// stopped is how an API server goes away whose machine hangs: connections are accepted and nothing is answered.
var stopped = outage{name: "Stopped", noticed: 45 * time.Second, resumes: true, begin: func(t *testing.T, f *fleet, cluster string) func(*testing.T) {
	f.signal(t, cluster, apiServer, syscall.SIGSTOP)
	return func(t *testing.T) { f.signal(t, cluster, apiServer, syscall.SIGCONT) }
}}

func everyOutage(t *testing.T, f *fleet) {
	for _, name := range f.registered() {
		for _, o := range []outage{killed, stopped, cutOff} {
			t.Run(name+o.name, func(t *testing.T) { memberAway(t, f, name, o) })
		}
	}
}

func everyHubOutage(t *testing.T, f *fleet) {
	for _, o := range []outage{killed, stopped, cutOff} {
		lasting := hubOutageLasting
		if !o.resumes {
			// Until an API server that is started again answers takes the rest of the time.
			lasting -= 15 * time.Second
		}
		t.Run(o.name, func(t *testing.T) { hubAway(t, f, o, lasting) })
	}
}

// longHubOutage is much longer than the manager keeps its Lease.
const longHubOutage = 10 * time.Minute

// hubAwayForLong has the hub go away: the manager ends, and is started again and again as a kubelet would until the hub
// is back.
func hubAwayForLong(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world, first := f.world(t, registered...), f.manager
	end, over := killed.start(t, f, "hub"), time.Now().Add(longHubOutage)
	g.Eventually(first.running, 75*time.Second, time.Second).Should(BeFalse(), "the manager ends when it has lost its Lease")
	g.Consistently(func() string {
		f.keepRunning(t)
		return cmp.Diff(world, f.world(t, registered...))
	}, time.Until(over), 5*time.Second).Should(BeEmpty(), "nothing in any member changes")
	logged := len(f.managerLog())
	end()
	// Whoever comes next sees the Lease of who was there before, and waits until it must have run out. What is published
	// stays as it was until then.
	g.Eventually(func() string {
		f.keepRunning(t)
		return f.managerLog()[logged:]
	}, 3*time.Minute, time.Second).Should(ContainSubstring("Successfully acquired lease"))
	f.expectConverged(t, registered...)
	for _, name := range registered {
		expectBack(t, f, name)
		expectReaction(t, f, name)
	}
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "everything is as before the outage")
}

// keepRunning starts the manager again when it has ended.
func (f *fleet) keepRunning(t *testing.T) {
	t.Helper()
	if !f.manager.running() {
		f.startManager(t)
	}
}

// hubRebuilt takes everything from the hub, its identity included, and brings it back as Git would.
func hubRebuilt(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world, asked := f.world(t, registered...), map[string]audit{}
	for _, name := range registered {
		asked[name] = f.audit(t, name)
	}
	f.killManager()
	empty := filepath.Join(t.TempDir(), "etcd")
	g.Expect(os.Mkdir(empty, 0o700)).To(Succeed())
	f.restore(t, "hub", empty)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "nothing in any member changes")

	f.install(t, "hub")
	for name, region := range f.regions() {
		f.register(t, name, region)
	}
	f.startManager(t)
	// The claims are of the hub that was, until they run out.
	for _, name := range registered {
		g.Eventually(func() string { return conditionStatus(f.memberCluster(name).Status.Conditions, "Ready") }, 5*time.Minute, time.Second).Should(Equal("True"))
	}
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "copies without an object on the hub stay")
	f.bringBack(t)
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "the copies are taken up as they were")
	for _, name := range registered {
		g.Expect(asked[name].requests(t, func(r request) bool {
			return r.write() && (r.Verb == "delete" || r.ObjectRef.Resource == "nodes")
		})).To(BeEmpty(), "nothing is deleted and no node is touched")
	}
}
