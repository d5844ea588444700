// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// scenario is a part of an administrator's day.
type scenario struct {
	name string
	run  func(*testing.T, *fleet)
}

// begun is when a scenario was begun.
type begun struct {
	name string
	at   time.Time
}

// TestFleet runs its scenarios one after the other on one fleet, as an administrator's day would. TestDrill runs those that
// take longer, and TestPlacementDrill those that want more members. What is promised, and which scenario shows it:
//
//	member black-holed at start                   MemberIsDeadAtStart
//	member black-holed, stopped, killed later     MemberGoesAwayAndReturns; drill: EveryMemberGoesAwayInEveryWay
//	a member of three dead, the others well       both of these
//	members that are slow, lie, flood, redirect   drill: HostileMembersBesideTheOthers; one by one: the tests of internal/clusters
//	Secret that executes, reads files, is garbage BadRegistrationsAreRefused
//	Secret that leads where it may not            RegistrationsAreRefusedForWhatTheyLeadTo
//	good Secret that turns bad                    BadContentKeepsTheCredentialInUse
//	token rotated under load, the old one revoked TokenRotatesUnderLoad; 1,000 nodes: drill: TokenRotatesInTheMiddleOfAChange
//	hub away for 40 seconds                       HubGoesAwayAndReturns; drill: HubGoesAwayInEveryWay
//	hub away for ten minutes                      drill: HubIsAwayForLong
//	hub rebuilt empty with the same id            drill: HubIsRebuiltEmpty
//	hub killed while 200 objects are placed       drill: HubIsKilledWhileObjectsArePlaced
//	our kinds deleted on the hub                  drill: KindsRemovedFromTheHub
//	our kinds deleted in a member                 drill: KindsRemovedFromAMember, KindsInstalledInAMember
//	MemberCluster deleted by hand                 MemberClusterDeletedByHandComesBack
//	member restored from an old snapshot          drill: MemberIsRestored
//	restored from one that is seconds old         drill: TestFence
//	manager killed at any point                   ManagerIsKilled; drill: ManagerIsKilledOften
//	manager stopped, another one takes over       drill: TestFence
//	hub restored beside itself                    drill: TestFence
//	two hubs on one member                        AnotherHubIsRefused
//	Pod, Service deleted in a member              DeletedPodAndServiceComeBack
//	RuntimeClass, label, taint deleted there      DeletedInTheMemberComesBack
//	namespace of a copy deleted there             NamespaceDeletedInTheMember
//	label dropped from a registration             LabelDroppedFromARegistration
//	a bad spec for all                            BadSpecHaltsAtOneMember
//	a change that stops an API server             ChangeThatCutsAMemberOffReachesOne
//	parts and data that are not wanted any more   WhatIsNotWantedAnyMoreGoes
//	registration made and deleted at run time     MemberJoinsAndLeavesAtRunTime
//	drained, frozen                               DrainRemovesTheCopies, FreezeStopsAllWrites
//	alerts and the dashboard                      drill: TestMonitoringDrill
//	what docs/placement.md, conditions.md show    ExamplesOfTheDocumentation
//	every version of every object, to watchers    EveryVersionOfEveryObjectWasRight, at the end of each run
//	rights: those of the manifests, all needed    EveryRightWasNeededAndNoneWasMissing
//	nothing changes                               NothingIsWrittenWhileNothingChanges; drill: for five minutes
func TestFleet(t *testing.T) {
	runScenarios(t, start(t, 3), []scenario{
		{"MembersJoin", membersJoin},
		{"ExamplesOfTheDocumentation", documented},
		{"ObjectsArePlacedAndAddedUp", placedAndAddedUp},
		{"DeletedPodAndServiceComeBack", healing},
		{"NodesJoinAndLeaveAPool", nodesJoinAndLeave},
		{"MemberJoinsAndLeavesAtRunTime", joinAndLeave},
		{"BadRegistrationsAreRefused", badRegistrations},
		{"MemberGoesAwayAndReturns", func(t *testing.T, f *fleet) { memberAway(t, f, "member-2", killed) }},
		{"MemberIsDeadAtStart", memberDeadAtStart},
		{"HubGoesAwayAndReturns", hubGoesAway},
		{"TokenRotatesUnderLoad", tokenRotates},
		{"BadContentKeepsTheCredentialInUse", badContentAfterGood},
		{"MemberClusterDeletedByHandComesBack", memberClusterDeletedByHand},
		{"DeletedInTheMemberComesBack", deletedInTheMember},
		{"NamespaceDeletedInTheMember", namespaceDeletedInTheMember},
		{"FreezeStopsAllWrites", frozen},
		{"LabelDroppedFromARegistration", labelDropped},
		{"DrainRemovesTheCopies", drained},
		{"BadSpecHaltsAtOneMember", badSpecHalts},
		{"ChangeThatCutsAMemberOffReachesOne", changeCutsOff},
		{"WhatIsNotWantedAnyMoreGoes", leftovers},
		{"RightsOnFinalizersAreTaken", rightsOnFinalizersTaken},
		{"ManagerIsKilled", func(t *testing.T, f *fleet) { managerKilled(t, f, 1) }},
		{"AnotherHubIsRefused", anotherHub},
		{"RegistrationsAreRefusedForWhatTheyLeadTo", refusedByEnvironment},
		{"NodePoolsAndTheirNodes", nodePools},
		{"NothingIsWrittenWhileNothingChanges", idle},
		{"DeletionOnTheHubCleansTheMembers", deletion},
		{"EveryRightWasNeededAndNoneWasMissing", rightsWereRight},
	})
}

// runScenarios ends with the first that fails, because those after it build on it.
func runScenarios(t *testing.T, f *fleet, scenarios []scenario) {
	t.Helper()
	seen := f.watchVersions(t)
	for _, scenario := range scenarios {
		f.began = append(f.began, begun{scenario.name, time.Now()})
		if !t.Run(scenario.name, func(t *testing.T) { scenario.run(t, f) }) {
			f.tellState(t)
			t.Fatalf("%s failed; the scenarios after it build on it", scenario.name)
		}
	}
	t.Run("EveryVersionOfEveryObjectWasRight", seen.expectRight)
}

func membersJoin(t *testing.T, f *fleet) {
	g := NewWithT(t)
	for _, name := range f.registered() {
		g.Eventually(func(g Gomega) {
			mc := f.memberCluster(name)
			g.Expect(conditionStatus(mc.Status.Conditions, "Ready")).To(Equal("True"), "MemberCluster %s: %+v", name, mc.Status.Conditions)
			g.Expect(mc.Status.KubernetesVersion).To(Equal("v1.36.3"))
			g.Expect(mc.Status.UID).NotTo(BeEmpty())
			g.Expect(mc.Status.Summary).NotTo(BeNil())
			g.Expect(mc.Status.Summary.NodesReady).To(Equal("5/5"))
		}, 60*time.Second, 200*time.Millisecond).Should(Succeed())
	}
}

func placedAndAddedUp(t *testing.T, f *fleet) {
	g := NewWithT(t)
	g.Expect(client.IgnoreAlreadyExists(f.hub.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))).To(Succeed())
	for _, name := range f.registered() {
		for _, node := range f.nodes(name)[:2] {
			f.labelNode(t, name, node.Name, "example.com/group", "web")
		}
	}
	g.Expect(client.IgnoreAlreadyExists(f.hub.Create(f.ctx, webPool()))).To(Succeed())
	g.Expect(client.IgnoreAlreadyExists(f.hub.Create(f.ctx, cacheRedis()))).To(Succeed())

	g.Eventually(func(g Gomega) {
		redis := f.hubRedis()
		g.Expect(conditionStatus(redis.Status.Conditions, "Ready")).To(Equal("True"))
		g.Expect(redis.Status.ObservedGeneration).To(Equal(redis.Generation))
		g.Expect(*redis.Status.ClusterCounts).To(Equal(f.allReady()))
		g.Expect(redis.Status.DesiredReplicas).To(Equal(f.allReplicas()), "member-2 has an override")
		g.Expect(redis.Status.ReadyReplicas).To(Equal(f.allReplicas()))
		pool := f.hubPool()
		g.Expect(conditionStatus(pool.Status.Conditions, "Ready")).To(Equal("True"))
		g.Expect(pool.Status.NodeCount).To(Equal(f.allNodes()))
		g.Expect(pool.Status.ReadyNodes).To(Equal(f.allNodes()))
		g.Expect(pool.Status.Status).To(Equal(int32(200)))
	}, 60*time.Second, 200*time.Millisecond).Should(Succeed())

	var sum int32
	for _, name := range f.registered() {
		redis := f.memberRedis(name)
		sum += redis.Status.ReadyReplicas
		want := int32(3)
		if name == "member-2" {
			want = 2
		}
		g.Expect(*redis.Spec.Replicas).To(Equal(want), "the override belongs to member-2")
		g.Expect(redis.Spec.Placement).To(BeNil(), "a copy carries no placement")
		g.Expect(redis.OwnerReferences).To(BeEmpty(), "a copy has no owner on the hub")
	}
	g.Expect(sum).To(Equal(f.hubRedis().Status.ReadyReplicas), "the hub adds up what the members say")
}

func healing(t *testing.T, f *fleet) {
	g := NewWithT(t)
	member := f.members["member-1"]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache-1"}}
	g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	before := pod.UID
	// A simulated Pod is back before anyone can look: hold it up by leaving it no node.
	f.cordon(t, "member-1", true)
	g.Expect(member.Delete(f.ctx, pod)).To(Succeed())
	g.Eventually(func(g Gomega) {
		redis := f.hubRedis()
		g.Expect(redis.Status.ReadyReplicas).To(Equal(int32(7)), "the roll-up goes down")
		g.Expect(redis.Status.ClusterCounts.Ready).To(Equal(int32(2)))
		g.Expect(redis.Status.ClusterCounts.NotReady).To(Equal(int32(1)))
	}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
	f.cordon(t, "member-1", false)
	g.Eventually(func(g Gomega) {
		g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.UID).NotTo(Equal(before))
		g.Expect(f.hubRedis().Status.ReadyReplicas).To(Equal(f.allReplicas()), "the roll-up goes up again")
		g.Expect(f.eventReasons(member, "Redis", "cache")).To(ContainElement("PodRecreated"))
		g.Expect(f.eventReasons(f.hub, "Redis", "cache")).To(ContainElement("PodRecreated"))
	}, 30*time.Second, 200*time.Millisecond).Should(Succeed())

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache-primary"}}
	g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
	address := service.Spec.ClusterIP
	g.Expect(member.Delete(f.ctx, service)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
		g.Expect(service.Spec.ClusterIP).To(Equal(address))
		g.Expect(f.eventReasons(member, "Redis", "cache")).To(ContainElement("ServiceRecreated"))
		g.Expect(f.eventReasons(f.hub, "Redis", "cache")).To(ContainElement("ServiceRecreated"))
	}, 20*time.Second, 200*time.Millisecond).Should(Succeed())
}

func nodesJoinAndLeave(t *testing.T, f *fleet) {
	g := NewWithT(t)
	const name = "member-1"
	member := f.members[name]
	node := f.nodes(name)[3]
	foreign := corev1.Taint{Key: "other.example.com/busy", Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule}
	node.Spec.Taints = append(node.Spec.Taints, foreign)
	g.Expect(member.Update(f.ctx, &node)).To(Succeed())
	f.labelNode(t, name, node.Name, "other.example.com/team", "mine")
	original := f.node(name, node.Name)

	within := reactionTime()
	f.labelNode(t, name, node.Name, "example.com/group", "web")
	g.Eventually(func(g Gomega) {
		now := f.node(name, node.Name)
		g.Expect(now.Labels).To(HaveKeyWithValue("example.com/team", "web"))
		g.Expect(now.Spec.Taints).To(ContainElements(foreign, corev1.Taint{Key: "example.com/dedicated", Value: "web", Effect: corev1.TaintEffectPreferNoSchedule}))
		g.Expect(f.memberPool(name).Status.NodeCount).To(Equal(int32(3)))
		g.Expect(f.hubPool().Status.NodeCount).To(Equal(int32(7)))
	}, within, 50*time.Millisecond).Should(Succeed())
	want := f.sumAllocatable()
	g.Eventually(func() string { return f.hubPool().Status.Allocatable.Cpu().String() }, within, 50*time.Millisecond).Should(Equal(want))

	f.labelNode(t, name, node.Name, "example.com/group", "")
	g.Eventually(func(g Gomega) {
		now := f.node(name, node.Name)
		g.Expect(cmp.Diff(original.Labels, now.Labels)).To(BeEmpty(), "labels are as before")
		g.Expect(cmp.Diff(original.Spec.Taints, now.Spec.Taints)).To(BeEmpty(), "taints are as before")
		g.Expect(cmp.Diff(original.Annotations, now.Annotations)).To(BeEmpty(), "annotations are as before")
		g.Expect(f.memberPool(name).Status.NodeCount).To(Equal(int32(2)))
		g.Expect(f.hubPool().Status.NodeCount).To(Equal(f.allNodes()))
	}, within, 50*time.Millisecond).Should(Succeed())
}

func idle(t *testing.T, f *fleet) {
	f.settle(t)
	f.expectNoWrites(t, idleTime, nil)
	f.expectNoWrites(t, 15*time.Second, func() {
		f.stopManager(t)
		f.startManager(t)
	})
}

func deletion(t *testing.T, f *fleet) {
	g := NewWithT(t)
	g.Expect(f.hub.Delete(f.ctx, webPool())).To(Succeed())
	g.Expect(f.hub.Delete(f.ctx, cacheRedis())).To(Succeed())
	g.Eventually(func(g Gomega) {
		f.confirmHeld(webPool(), cacheRedis())
		g.Expect(apierrors.IsNotFound(f.hub.Get(f.ctx, client.ObjectKeyFromObject(webPool()), &flotillav1.NodePool{}))).To(BeTrue(), "the NodePool is gone from the hub")
		g.Expect(apierrors.IsNotFound(f.hub.Get(f.ctx, client.ObjectKeyFromObject(cacheRedis()), &flotillav1.Redis{}))).To(BeTrue(), "the Redis is gone from the hub")
		for _, name := range f.registered() {
			for _, node := range f.nodes(name) {
				g.Expect(node.Labels).NotTo(HaveKey("example.com/team"))
				g.Expect(node.Annotations).NotTo(HaveKey(flotillav1.AnnotationNodeRecord))
				for _, taint := range node.Spec.Taints {
					g.Expect(taint.Key).NotTo(Equal("example.com/dedicated"))
				}
			}
			sets := &appsv1.StatefulSetList{}
			g.Expect(f.members[name].List(f.ctx, sets, client.InNamespace(namespace))).To(Succeed())
			g.Expect(sets.Items).To(BeEmpty())
		}
	}, 30*time.Second, 200*time.Millisecond).Should(Succeed())
}
