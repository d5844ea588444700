// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestRolloutOf(t *testing.T) {
	evicting := func(change func(*flotillav1.NodePoolSpec)) *flotillav1.NodePool {
		return newPool("a", func(spec *flotillav1.NodePoolSpec) {
			wants(evictKey, "x")(spec)
			if change != nil {
				change(spec)
			}
		})
	}
	budget := func(value intstr.IntOrString, seconds int32) func(*flotillav1.NodePoolSpec) {
		return func(spec *flotillav1.NodePoolSpec) {
			spec.Rollout = &flotillav1.NodePoolRollout{MaxUnavailable: &value, MinReadySeconds: seconds}
		}
	}
	recently := metav1.NewTime(testNow.Add(-10 * time.Second))
	tests := map[string]struct {
		pool *flotillav1.NodePool
		// nodes are written as one letter each: R ready, N not ready, T tainted ten seconds ago, F with a foreign value.
		nodes  string
		want   []string
		halted bool
	}{
		"one at a time":                        {pool: evicting(nil), nodes: "RRRR", want: []string{"n0"}},
		"the next when one has it":             {pool: evicting(nil), nodes: "TRRR", want: []string{"n1"}},
		"a number":                             {pool: evicting(budget(intstr.FromInt32(3), 0)), nodes: "RRRRR", want: []string{"n0", "n1", "n2"}},
		"a percentage is rounded up":           {pool: evicting(budget(intstr.FromString("30%"), 0)), nodes: "RRRRR", want: []string{"n0", "n1"}},
		"none within minReadySeconds":          {pool: evicting(budget(intstr.FromInt32(1), 60)), nodes: "TRRR"},
		"the next after minReadySeconds":       {pool: evicting(budget(intstr.FromInt32(1), 5)), nodes: "TRRR", want: []string{"n1"}},
		"one that is not ready uses it up":     {pool: evicting(nil), nodes: "RRRRRN", want: []string{"n5"}},
		"halted when too many are not ready":   {pool: evicting(nil), nodes: "RRRN", halted: true},
		"a foreign value is not waited for":    {pool: evicting(nil), nodes: "FRRR", want: []string{"n1"}},
		"a foreign value that is overridden":   {pool: evicting(func(s *flotillav1.NodePoolSpec) { s.ConflictPolicy = flotillav1.NodeConflictPolicyOverride }), nodes: "FRRR", want: []string{"n0"}},
		"zero holds all":                       {pool: evicting(budget(intstr.FromInt32(0), 0)), nodes: "RRRR"},
		"nonsense is the default":              {pool: evicting(budget(intstr.FromString("many"), 0)), nodes: "RRRR", want: []string{"n0"}},
		"nothing to do when all nodes have it": {pool: evicting(nil), nodes: "TTTT"},
		"an empty pool":                        {pool: evicting(nil)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var nodes []corev1.Node
			for i, letter := range tc.nodes {
				node := newNode(fmt.Sprintf("n%d", i), map[string]string{"zone": "a"})
				switch letter {
				case 'N':
					node.Status.Conditions[0].Status = corev1.ConditionUnknown
				case 'T':
					node.Spec.Taints = []corev1.Taint{{Key: evictKey.name, Value: "x", Effect: evictKey.effect, TimeAdded: &recently}}
				case 'F':
					node.Spec.Taints = []corev1.Taint{{Key: evictKey.name, Value: "theirs", Effect: evictKey.effect}}
				}
				nodes = append(nodes, *node)
			}
			nodes = append(nodes, *newNode("other", map[string]string{"zone": "b"}))
			got := rolloutOf(viewOf(tc.pool), nodes, testNow.Time)
			if diff := cmp.Diff(tc.want, append([]string(nil), sets.List(got.turns)...)); diff != "" || got.halted != tc.halted {
				t.Errorf("halted %t, turns (-want +got):\n%s", got.halted, diff)
			}
		})
	}
}

func surveyOf(pool *flotillav1.NodePool, nodes ...*corev1.Node) census {
	return surveyAll(pool, viewsOf([]flotillav1.NodePool{*pool}), nodes...)
}

func surveyAll(pool *flotillav1.NodePool, views []*view, nodes ...*corev1.Node) census {
	in := surveyInput{
		pool: pool, views: views, now: testNow.Time,
		failure: func(string) failure { return failure{} }, fought: func(*corev1.Node, key) bool { return false },
	}
	for _, node := range nodes {
		in.nodes = append(in.nodes, *node)
	}
	return survey(in)
}

func TestSurvey_counts_and_sums(t *testing.T) {
	sized := func(name, zone string, change func(*corev1.Node)) *corev1.Node {
		node := newNode(name, map[string]string{"zone": "a", corev1.LabelTopologyZone: zone})
		node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi")}
		node.Status.NodeInfo.Architecture = "arm64"
		if change != nil {
			change(node)
		}
		return node
	}
	found := surveyOf(newPool("a", wants(labelKey, "x")),
		sized("n1", "z1", nil),
		sized("n2", "z1", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		sized("n3", "z2", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }),
		sized("n4", "", func(n *corev1.Node) { n.Labels[labelKey.name] = "theirs" }),
		sized("control", "z1", func(n *corev1.Node) { n.Labels[controlPlaneRole] = "" }),
		newNode("other", map[string]string{"zone": "b"}),
	)
	want := flotillav1.NodePoolCounts{
		NodeCount: 4, ReadyNodes: 3, UnschedulableNodes: 1, UpdatedNodes: 0, ConflictingNodes: 1,
		Architectures: []flotillav1.NodeGroup{{Name: "arm64", NodeCount: 4, ReadyNodes: 3}},
		Zones:         []flotillav1.NodeGroup{{Name: "z1", NodeCount: 2, ReadyNodes: 2}, {Name: "z2", NodeCount: 1}},
		Capacity:      corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("32Gi")},
		Allocatable:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("14"), corev1.ResourceMemory: resource.MustParse("28Gi")},
		Schedulable:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7"), corev1.ResourceMemory: resource.MustParse("14Gi")},
	}
	if diff := cmp.Diff(want, found.counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestSurvey_bounds_what_nodes_say(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 100 {
		node := newNode(fmt.Sprintf("n%d", i), map[string]string{"zone": "a", corev1.LabelTopologyZone: fmt.Sprintf("z%03d", i)})
		node.Status.Capacity = corev1.ResourceList{corev1.ResourceName(fmt.Sprintf("example.com/r%03d", i)): resource.MustParse("1")}
		nodes = append(nodes, node)
	}
	counts := surveyOf(newPool("a", nil), nodes...).counts
	if len(counts.Zones) != maxGroups || len(counts.Capacity) != maxGroups {
		t.Errorf("got %d zones and %d resources", len(counts.Zones), len(counts.Capacity))
	}
	if last := counts.Zones[maxGroups-1]; last.Name != otherGroup || last.NodeCount != 37 {
		t.Errorf("the rest: got %+v", last)
	}
	if _, ok := counts.Capacity[corev1.ResourceMemory]; !ok {
		t.Error("memory was cut")
	}
}

func TestOwnedKeys(t *testing.T) {
	pool := newPool("a", wants(labelKey, "x"))
	pool.Status.OwnedKeys = []string{"label:example.com/old"}
	if diff := cmp.Diff([]string{"label:example.com/old", "label:example.com/team"}, ownedKeys(pool, nil)); diff != "" {
		t.Errorf("what the spec had is kept (-want +got):\n%s", diff)
	}
	recorded := sets.New[string]()
	for i := range maxOwnedKeys + 100 {
		k := fmt.Sprintf("label:example.com/k%04d", i)
		pool.Status.OwnedKeys = append(pool.Status.OwnedKeys, k)
		recorded.Insert(k)
	}
	if got := ownedKeys(pool, sets.New("label:example.com/k0001")); len(got) != 2 {
		t.Errorf("too many keys are cut to those on nodes: got %d", len(got))
	}
	if got := ownedKeys(pool, recorded); len(got) != maxOwnedKeys || !sets.New(got...).Has(labelKey.String()) {
		t.Errorf("never more than %d, the spec's among them: got %d", maxOwnedKeys, len(got))
	}
}

func TestReport_conditions(t *testing.T) {
	ok := classOutcome{status: metav1.ConditionTrue, reason: flotillav1.ReasonNoHandler}
	base := func(change func(*census)) census {
		c := census{counts: flotillav1.NodePoolCounts{NodeCount: 4}}
		if change != nil {
			change(&c)
		}
		return c
	}
	two := []string{"n1", "n2"}
	tests := map[string]struct {
		spec   flotillav1.NodePoolSpec
		found  census
		class  classOutcome
		reason string
		status int32
		ready  metav1.ConditionStatus
	}{
		"all applied": {found: base(nil), class: ok, reason: flotillav1.ReasonAllNodesUpdated, status: 200, ready: metav1.ConditionTrue},
		"empty":       {found: census{}, class: ok, reason: flotillav1.ReasonNoMatchingNodes, status: 200, ready: metav1.ConditionTrue},
		"not ready nodes do not make the pool not ready": {found: base(func(c *census) { c.notReady = two }), class: ok, reason: flotillav1.ReasonAllNodesUpdated, status: 200, ready: metav1.ConditionTrue},
		"on its way": {found: base(func(c *census) { c.pending = two }), class: ok, reason: flotillav1.ReasonNodesPending, status: 206, ready: metav1.ConditionFalse},
		"paused":     {spec: flotillav1.NodePoolSpec{Paused: true}, found: base(func(c *census) { c.pending = two }), class: ok, reason: flotillav1.ReasonPaused, status: 206, ready: metav1.ConditionFalse},
		"dry run":    {spec: flotillav1.NodePoolSpec{DryRun: true}, found: base(func(c *census) { c.pending = two }), class: ok, reason: flotillav1.ReasonDryRun, status: 206, ready: metav1.ConditionFalse},
		"failing": {found: base(func(c *census) {
			c.pending, c.failing, c.failure = two, two, failure{flotillav1.ReasonApplyFailed, "no"}
		}), class: ok, reason: flotillav1.ReasonApplyFailed, status: 500, ready: metav1.ConditionFalse},
		"no rights":                 {found: base(func(c *census) { c.pending, c.failing, c.failure = two, two, failure{flotillav1.ReasonForbidden, "no"} }), class: ok, reason: flotillav1.ReasonForbidden, status: 500, ready: metav1.ConditionFalse},
		"record too large":          {found: base(func(c *census) { c.pending, c.oversized = two, two }), class: ok, reason: flotillav1.ReasonRecordTooLarge, status: 500, ready: metav1.ConditionFalse},
		"fight":                     {found: base(func(c *census) { c.pending, c.fighting = two, two }), class: ok, reason: flotillav1.ReasonOwnershipFight, status: 409, ready: metav1.ConditionFalse},
		"conflict":                  {found: base(func(c *census) { c.conflicting = two }), class: ok, reason: flotillav1.ReasonKeyConflict, status: 409, ready: metav1.ConditionFalse},
		"loop":                      {found: base(func(c *census) { c.pending, c.looping = two, two }), class: ok, reason: flotillav1.ReasonMembershipLoop, status: 409, ready: metav1.ConditionFalse},
		"selector not exact":        {found: base(nil), class: classOutcome{status: metav1.ConditionFalse, reason: flotillav1.ReasonSelectorNotExact}, reason: flotillav1.ReasonSelectorNotExact, status: 409, ready: metav1.ConditionFalse},
		"halted":                    {found: base(func(c *census) { c.pending, c.waiting, c.halted = two, two, true }), class: ok, reason: flotillav1.ReasonRolloutHalted, status: 206, ready: metav1.ConditionFalse},
		"name taken":                {found: base(nil), class: classOutcome{status: metav1.ConditionFalse, reason: flotillav1.ReasonNameConflict}, reason: flotillav1.ReasonNameConflict, status: 409, ready: metav1.ConditionFalse},
		"class failed and conflict": {found: base(func(c *census) { c.conflicting = two }), class: classOutcome{status: metav1.ConditionFalse, reason: flotillav1.ReasonApplyFailed}, reason: flotillav1.ReasonApplyFailed, status: 500, ready: metav1.ConditionFalse},
	}
	stalls := sets.New("record too large", "loop", "selector not exact", "name taken")
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := newPool("a", nil)
			pool.Spec.Paused, pool.Spec.DryRun = tc.spec.Paused, tc.spec.DryRun
			pool.Generation = 3
			report(pool, tc.found, tc.class, testNow.Time)
			ready := condition(pool, flotillav1.ConditionReady)
			if ready.Reason != tc.reason || ready.Status != tc.ready || pool.Status.Status != tc.status {
				t.Errorf("got %s %s %d, want %s %s %d", ready.Status, ready.Reason, pool.Status.Status, tc.ready, tc.reason, tc.status)
			}
			for _, c := range pool.Status.Conditions {
				if c.ObservedGeneration != 3 || c.LastTransitionTime != testNow {
					t.Errorf("condition %s: %+v", c.Type, c)
				}
			}
			stalled := condition(pool, flotillav1.ConditionStalled)
			if stalls.Has(name) != (stalled.Status == metav1.ConditionTrue && stalled.Reason == tc.reason && stalled.Message == ready.Message) {
				t.Errorf("Stalled is %+v, want it where only a person ends it: %v", stalled, stalls.Has(name))
			}
			if got := len(pool.Status.Conditions); got != 6 && !stalls.Has(name) {
				t.Errorf("got %d conditions, want all 6", got)
			}
			// The same again changes nothing.
			before := pool.DeepCopy()
			report(pool, tc.found, tc.class, testNow.Add(time.Hour))
			if diff := cmp.Diff(before.Status, pool.Status); diff != "" {
				t.Errorf("a second report differs:\n%s", diff)
			}
			report(pool, base(nil), ok, testNow.Add(time.Hour))
			if got := condition(pool, flotillav1.ConditionStalled); got.Type != "" {
				t.Errorf("it stays Stalled when all is well: %+v", got)
			}
		})
	}
}

func TestReport_placement_in_a_member_is_ignored_and_told(t *testing.T) {
	pool := newPool("a", func(spec *flotillav1.NodePoolSpec) { spec.Placement = &flotillav1.Placement{} })
	report(pool, census{}, classOutcome{status: metav1.ConditionTrue, reason: flotillav1.ReasonNoHandler}, testNow.Time)
	if got := condition(pool, flotillav1.ConditionPlacementIgnored); got.Reason != flotillav1.ReasonPlacementInMember {
		t.Errorf("got %+v", got)
	}
	pool.Spec.Placement = nil
	report(pool, census{}, classOutcome{status: metav1.ConditionTrue, reason: flotillav1.ReasonNoHandler}, testNow.Time)
	if got := condition(pool, flotillav1.ConditionPlacementIgnored); got.Type != "" {
		t.Errorf("it stays: %+v", got)
	}
}

func TestLedger(t *testing.T) {
	l, at, now := &Ledger{}, nodeKey{memberName, "n1"}, testNow.Time
	for i := range fightLimit {
		if l.fought(at, "u", labelKey, now) {
			t.Fatalf("a fight after %d rewrites", i)
		}
		l.rewrote(at, "u", labelKey, now)
	}
	if !l.fought(at, "u", labelKey, now) || l.fought(at, "another", labelKey, now) || l.fought(at, "u", taintKey, now) {
		t.Error("a fight is about one key of one node")
	}
	if l.fought(at, "u", labelKey, now.Add(fightWindow)) {
		t.Error("a fight never ends")
	}
	pool, first := poolKey{memberName, "a"}, pass{at: now, uid: "u", generation: 1}
	next := first
	next.at = now.Add(300 * time.Millisecond)
	changed := next
	changed.generation = 2
	if wait := l.begin(pool, first); wait != 0 {
		t.Errorf("the first pass waits %s", wait)
	}
	if wait := l.begin(pool, next); wait != 700*time.Millisecond {
		t.Errorf("the second pass waits %s", wait)
	}
	if wait := l.begin(pool, changed); wait != 0 {
		t.Errorf("a changed spec waits %s", wait)
	}
	l.setFailure(at, failure{flotillav1.ReasonApplyFailed, "no"})
	l.rewrote(at, "u", labelKey, now)
	l.forgetCluster(memberName)
	if len(l.failures)+len(l.rewrites)+len(l.passes) != 0 {
		t.Errorf("something is kept of an offboarded member: %+v", l)
	}
}

func TestEnumerate(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "a": {"a"}, "a, b": {"b", "a", "b"}, "a, b, c and 2 more": {"e", "d", "c", "b", "a"},
	} {
		if got := enumerate(names); got != want {
			t.Errorf("enumerate(%v): got %q, want %q", names, got, want)
		}
	}
}
