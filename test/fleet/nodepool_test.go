// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// colorKey is the label by which the pools of these scenarios find their nodes.
	colorKey = "example.com/color"
	// shadeKey and onlyKey are the label and the taint that they set.
	shadeKey = "example.com/shade"
	onlyKey  = "example.com/only"
	// controlPlaneKey marks nodes that pools leave alone.
	controlPlaneKey = "node-role.kubernetes.io/control-plane"
	// finalizersOff is the patch of a person who is tired of waiting.
	finalizersOff = `{"metadata":{"finalizers":null}}`
)

// writersTime is how long other writers are beside a pool; drills lengthen it.
var writersTime = 15 * time.Second

// nodePools is the life of NodePools and of their nodes.
func nodePools(t *testing.T, f *fleet) {
	for _, s := range []scenario{
		{"NodesMoveBetweenPools", nodesMove},
		{"NodesOfTheControlPlaneAreLeftAlone", controlPlaneIsLeftAlone},
		{"PoolCreatedAgainTakesOver", poolCreatedAgain},
		{"PoolIsDeletedWithoutItsNode", poolWithoutItsNode},
		{"PoolIsDeletedWhileItsMemberIsAway", poolDeletedWhileMemberIsAway},
		{"OthersWriteBesideIt", othersWriteBeside},
		{"RightsOnNodesAreTaken", rightsOnNodesTaken},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, f) }) {
			return
		}
	}
}

// nodesMove has a node go from pool to pool: by its label, by a selector, by being in two at once.
func nodesMove(t *testing.T, f *fleet) {
	const member, name = "member-2", "member-2-node-4"
	g := NewWithT(t)
	before := f.node(member, name)
	t.Cleanup(func() { f.labelNode(t, member, name, colorKey, "") })
	for _, pool := range []string{"blue", "green"} {
		f.addPool(t, member, colorPool(pool, nil))
		f.expectPool(t, member, pool, 0, 200)
	}
	f.labelNode(t, member, name, colorKey, "blue")
	f.expectShade(t, member, name, "blue/blue")
	f.expectPool(t, member, "blue", 1, 200)

	f.labelNode(t, member, name, colorKey, "green")
	f.expectShade(t, member, name, "green/green")
	f.expectPool(t, member, "blue", 0, 200)
	f.expectPool(t, member, "green", 1, 200)
	g.Eventually(func() []string { return f.eventsOf(f.members[member], "blue") }, 20*time.Second, 200*time.Millisecond).Should(ContainElements("NodeJoined", "NodeLeft"))
	g.Eventually(func() []string { return f.eventsOf(f.members[member], "green") }, 20*time.Second, 200*time.Millisecond).Should(ContainElement("NodeJoined"))
	pool := &flotillav1.NodePool{}
	g.Expect(f.members[member].Get(f.ctx, client.ObjectKey{Name: "blue"}, pool)).To(Succeed())
	g.Expect(pool.Status.Allocatable.Cpu().String()).To(Equal("0"), "an emptied pool shows zeros")
	g.Expect(pool.Finalizers).To(BeEmpty(), "a pool without nodes can go at once")

	// Two pools have the node. The one of more weight wins, and the other says so; then the other gets its turn.
	f.addPool(t, member, colorPool("any", func(spec *flotillav1.NodePoolSpec) {
		spec.NodeSelector = &flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{Key: colorKey, Operator: metav1.LabelSelectorOpExists}}}
		spec.Annotations = map[string]flotillav1.AnnotationValue{"example.com/pool": "any"}
		spec.Weight = 10
	}))
	f.expectShade(t, member, name, "any/any")
	f.expectPool(t, member, "green", 1, 409)
	f.expectPool(t, member, "any", 1, 200)
	g.Expect(f.node(member, name).Annotations).To(HaveKeyWithValue("example.com/pool", "any"))
	f.changePoolIn(t, member, "green", `{"weight":20}`)
	f.expectShade(t, member, name, "green/green")
	f.expectPool(t, member, "any", 1, 409)

	// The selector moves away from the node.
	f.changePoolIn(t, member, "green", `{"nodeSelector":{"matchLabels":{"`+colorKey+`":"lime"}}}`)
	f.expectShade(t, member, name, "any/any")
	f.expectPool(t, member, "green", 0, 200)
	f.expectPool(t, member, "any", 1, 200)
	f.labelNode(t, member, name, colorKey, "")
	f.expectAsBefore(t, member, before)
	f.expectPool(t, member, "any", 0, 200)
}

// controlPlaneIsLeftAlone unless the pool says otherwise.
func controlPlaneIsLeftAlone(t *testing.T, f *fleet) {
	const member, name, worker = "member-2", "member-2-node-4", "member-2-node-5"
	g := NewWithT(t)
	before := f.node(member, name)
	t.Cleanup(func() {
		f.labelNode(t, member, name, colorKey, "")
		f.labelNode(t, member, worker, colorKey, "")
		patch := []byte(`{"metadata":{"labels":{"` + controlPlaneKey + `":null}}}`)
		g.Expect(f.members[member].Patch(f.ctx, f.node(member, name), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		f.expectAsBefore(t, member, before)
	})
	role := []byte(`{"metadata":{"labels":{"` + controlPlaneKey + `":"","` + colorKey + `":"red"}}}`)
	g.Expect(f.members[member].Patch(f.ctx, f.node(member, name), client.RawPatch(types.MergePatchType, role))).To(Succeed())
	f.labelNode(t, member, worker, colorKey, "red")
	f.addPool(t, member, colorPool("red", nil))
	f.expectPool(t, member, "red", 1, 200)
	f.expectShade(t, member, worker, "red/red")
	g.Expect(f.shadeOf(member, name)).To(Equal("/"))
	f.changePoolIn(t, member, "red", `{"allowControlPlane":true}`)
	f.expectPool(t, member, "red", 2, 200)
	f.expectShade(t, member, name, "red/red")
	f.changePoolIn(t, member, "red", `{"allowControlPlane":false}`)
	f.expectPool(t, member, "red", 1, 200)
	f.expectShade(t, member, name, "/")
}

// poolCreatedAgain takes a pool away past its finalizer: the keys stay where they are, and the next pool of the name has
// them without anybody seeing a gap.
func poolCreatedAgain(t *testing.T, f *fleet) {
	const member, name = "member-2", "member-2-node-4"
	g, c := NewWithT(t), f.members[member]
	before := f.node(member, name)
	t.Cleanup(func() {
		f.labelNode(t, member, name, colorKey, "")
		f.expectAsBefore(t, member, before)
	})
	f.labelNode(t, member, name, colorKey, "pink")
	f.addPool(t, member, colorPool("pink", nil))
	f.expectPool(t, member, "pink", 1, 200)
	f.expectShade(t, member, name, "pink/pink")

	gaps := f.watchShade(t, member, name, "pink/pink")
	f.stopManager(t)
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pink"}}
	g.Expect(c.Delete(f.ctx, pool)).To(Succeed())
	g.Expect(c.Patch(f.ctx, pool, client.RawPatch(types.MergePatchType, []byte(finalizersOff)))).To(Succeed())
	f.expectGone(t, member, "pink")
	f.startManager(t)
	g.Eventually(func() string { return conditionStatus(f.memberCluster(member).Status.Conditions, "Ready") }, 60*time.Second, 200*time.Millisecond).Should(Equal("True"))
	g.Expect(c.Create(f.ctx, colorPool("pink", nil))).To(Succeed())
	f.expectPool(t, member, "pink", 1, 200)
	g.Expect(c.Get(f.ctx, client.ObjectKey{Name: "pink"}, pool)).To(Succeed())
	g.Eventually(func() string { return f.node(member, name).Annotations[flotillav1.AnnotationNodeRecord] }, 20*time.Second, 100*time.Millisecond).
		Should(ContainSubstring(string(pool.UID)), "the record is the new pool's")
	g.Expect(gaps()).To(BeEmpty(), "the keys are there all the time")
}

// poolWithoutItsNode deletes the node first and the pool then.
func poolWithoutItsNode(t *testing.T, f *fleet) {
	const member, name = "member-2", "extra-node"
	g, c := NewWithT(t), f.members[member]
	node := extraNode(name, map[string]string{colorKey: "grey"})
	g.Expect(c.Create(f.ctx, node)).To(Succeed())
	t.Cleanup(func() { _ = c.Delete(f.ctx, extraNode(name, nil)) })
	f.addPool(t, member, colorPool("grey", nil))
	f.expectShade(t, member, name, "grey/grey")
	f.expectPool(t, member, "grey", 1, 200)
	// Both at once: whichever is seen first.
	g.Expect(c.Delete(f.ctx, node)).To(Succeed())
	g.Expect(c.Delete(f.ctx, colorPool("grey", nil))).To(Succeed())
	f.expectGone(t, member, "grey")
}

// poolDeletedWhileMemberIsAway deletes a pool on the hub that has nodes in a member which cannot be reached: the hub
// waits, and cleans when the member is back.
func poolDeletedWhileMemberIsAway(t *testing.T, f *fleet) {
	const member, name = "member-3", "member-3-node-4"
	g := NewWithT(t)
	before := f.node(member, name)
	t.Cleanup(func() { f.labelNode(t, member, name, colorKey, "") })
	f.labelNode(t, member, name, colorKey, "teal")
	f.addPool(t, "hub", colorPool("teal", func(spec *flotillav1.NodePoolSpec) {
		spec.Placement = &flotillav1.Placement{Clusters: []string{member, "member-1"}}
	}))
	f.expectShade(t, member, name, "teal/teal")
	f.expectPool(t, "hub", "teal", 1, 200)

	end := killed.start(t, f, member)
	g.Eventually(func() string { return conditionStatus(f.memberCluster(member).Status.Conditions, "Reachable") }, killed.noticed, 200*time.Millisecond).Should(Equal("False"))
	pool := &flotillav1.NodePool{}
	g.Eventually(func(g Gomega) {
		g.Expect(f.hub.Get(f.ctx, client.ObjectKey{Name: "teal"}, pool)).To(Succeed())
		g.Expect(pool.Status.Status).To(Equal(int32(206)), "%+v", pool.Status.Conditions)
	}, 20*time.Second, 200*time.Millisecond).Should(Succeed())
	g.Expect(f.hub.Delete(f.ctx, pool)).To(Succeed())
	// The copy in the member that can be reached goes.
	f.expectGone(t, "member-1", "teal")
	g.Consistently(func() error { return f.hub.Get(f.ctx, client.ObjectKey{Name: "teal"}, pool) }, 3*time.Second, 200*time.Millisecond).Should(Succeed(), "the hub waits")
	end()
	f.expectGone(t, "hub", "teal")
	f.expectGone(t, member, "teal")
	f.expectAsBefore(t, member, before)
}

// rightsOnNodesTaken takes the right to patch nodes from the hub and gives it back.
func rightsOnNodesTaken(t *testing.T, f *fleet) {
	const member, name = "member-2", "member-2-node-4"
	g, c := NewWithT(t), f.members[member]
	before := f.node(member, name)
	t.Cleanup(func() {
		f.labelNode(t, member, name, colorKey, "")
		f.expectAsBefore(t, member, before)
	})
	f.labelNode(t, member, name, colorKey, "black")
	f.addPool(t, member, colorPool("black", nil))
	f.expectPool(t, member, "black", 1, 200)
	f.takeRights(t, member, func(role *rbacv1.ClusterRole) {
		for i, rule := range role.Rules {
			if slices.Contains(rule.Resources, "nodes") {
				role.Rules[i].Verbs = []string{"get", "list", "watch"}
			}
		}
	})
	kept := keysOf(f.node(member, name))
	g.Eventually(func(g Gomega) {
		// Rights are looked up in a cache: each try is another change.
		f.changePoolIn(t, member, "black", fmt.Sprintf(`{"labels":{"example.com/try":"t%d"}}`, time.Now().UnixNano()))
		pool := &flotillav1.NodePool{}
		g.Expect(c.Get(f.ctx, client.ObjectKey{Name: "black"}, pool)).To(Succeed())
		ready := apimeta.FindStatusCondition(pool.Status.Conditions, flotillav1.ConditionReady)
		g.Expect(ready.Reason).To(Equal(flotillav1.ReasonForbidden), ready.Message)
		g.Expect(ready.Message).To(ContainSubstring(`cannot patch resource "nodes"`))
		g.Expect(pool.Status.Status).To(Equal(int32(500)))
	}, 60*time.Second, time.Second).Should(Succeed())
	g.Expect(f.shadeOf(member, name)).To(Equal("black/black"), "nothing is lost")
	g.Expect(c.Delete(f.ctx, colorPool("black", nil))).To(Succeed())
	g.Eventually(func() []string { return f.eventsOf(c, "black") }, 60*time.Second, time.Second).Should(ContainElement("CleanupBlocked"))
	g.Expect(strings.Split(keysOf(f.node(member, name)), " ")[0]).To(Equal(strings.Split(kept, " ")[0]), "it is the same node")
	g.Expect(f.shadeOf(member, name)).To(Equal("black/black"), "nothing is lost")
	f.prepareMember(t, member)
	f.expectGone(t, member, "black")
	f.expectShade(t, member, name, "/")
}
