// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func TestReport_conditions(t *testing.T) {
	ok := classOutcome{condition: metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonNoHandler}}
	base := func(change func(*ownership.Survey)) ownership.Survey {
		c := ownership.Survey{Counts: flotillav1.NodePoolCounts{NodeCount: 4}}
		if change != nil {
			change(&c)
		}
		return c
	}
	two := []string{"n1", "n2"}
	tests := map[string]struct {
		spec   flotillav1.NodePoolSpec
		found  ownership.Survey
		class  classOutcome
		reason string
		status int32
		ready  metav1.ConditionStatus
	}{
		"all applied": {found: base(nil), class: ok, reason: flotillav1.ReasonAllNodesUpdated, status: 200, ready: metav1.ConditionTrue},
		"empty":       {found: ownership.Survey{}, class: ok, reason: flotillav1.ReasonNoMatchingNodes, status: 200, ready: metav1.ConditionTrue},
		"not ready nodes do not make the pool not ready": {found: base(func(c *ownership.Survey) { c.NotReady = two }), class: ok, reason: flotillav1.ReasonAllNodesUpdated, status: 200, ready: metav1.ConditionTrue},
		"on its way": {found: base(func(c *ownership.Survey) { c.Pending = two }), class: ok, reason: flotillav1.ReasonNodesPending, status: 206, ready: metav1.ConditionFalse},
		"paused":     {spec: flotillav1.NodePoolSpec{Paused: true}, found: base(func(c *ownership.Survey) { c.Pending = two }), class: ok, reason: flotillav1.ReasonPaused, status: 206, ready: metav1.ConditionFalse},
		"dry run":    {spec: flotillav1.NodePoolSpec{DryRun: true}, found: base(func(c *ownership.Survey) { c.Pending = two }), class: ok, reason: flotillav1.ReasonDryRun, status: 206, ready: metav1.ConditionFalse},
		"failing": {found: base(func(c *ownership.Survey) {
			c.Pending, c.Failing, c.Failure = two, two, ownership.Failure{Reason: flotillav1.ReasonApplyFailed, Message: "no"}
		}), class: ok, reason: flotillav1.ReasonApplyFailed, status: 500, ready: metav1.ConditionFalse},
		"no rights": {found: base(func(c *ownership.Survey) {
			c.Pending, c.Failing, c.Failure = two, two, ownership.Failure{Reason: flotillav1.ReasonForbidden, Message: "no"}
		}), class: ok, reason: flotillav1.ReasonForbidden, status: 500, ready: metav1.ConditionFalse},
		"record too large":          {found: base(func(c *ownership.Survey) { c.Pending, c.Oversized = two, two }), class: ok, reason: flotillav1.ReasonRecordTooLarge, status: 500, ready: metav1.ConditionFalse},
		"fight":                     {found: base(func(c *ownership.Survey) { c.Pending, c.Fighting = two, two }), class: ok, reason: flotillav1.ReasonOwnershipFight, status: 409, ready: metav1.ConditionFalse},
		"conflict":                  {found: base(func(c *ownership.Survey) { c.Conflicting = two }), class: ok, reason: flotillav1.ReasonKeyConflict, status: 409, ready: metav1.ConditionFalse},
		"loop":                      {found: base(func(c *ownership.Survey) { c.Pending, c.Looping = two, two }), class: ok, reason: flotillav1.ReasonMembershipLoop, status: 409, ready: metav1.ConditionFalse},
		"selector not exact":        {found: base(nil), class: classOutcome{condition: metav1.Condition{Status: metav1.ConditionFalse, Reason: flotillav1.ReasonSelectorNotExact}}, reason: flotillav1.ReasonSelectorNotExact, status: 409, ready: metav1.ConditionFalse},
		"halted":                    {found: base(func(c *ownership.Survey) { c.Pending, c.Waiting, c.Halted = two, two, true }), class: ok, reason: flotillav1.ReasonRolloutHalted, status: 206, ready: metav1.ConditionFalse},
		"name taken":                {found: base(nil), class: classOutcome{condition: metav1.Condition{Status: metav1.ConditionFalse, Reason: flotillav1.ReasonNameConflict}}, reason: flotillav1.ReasonNameConflict, status: 409, ready: metav1.ConditionFalse},
		"class failed and conflict": {found: base(func(c *ownership.Survey) { c.Conflicting = two }), class: classOutcome{condition: metav1.Condition{Status: metav1.ConditionFalse, Reason: flotillav1.ReasonApplyFailed}}, reason: flotillav1.ReasonApplyFailed, status: 500, ready: metav1.ConditionFalse},
	}
	stalls := sets.New("record too large", "loop", "selector not exact", "name taken")
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := ownershiptest.Pool("a", nil)
			pool.Spec.Paused, pool.Spec.DryRun = tc.spec.Paused, tc.spec.DryRun
			pool.Generation = 3
			report(pool, tc.found, tc.class, ownershiptest.Now.Time)
			ready := condition(pool, flotillav1.ConditionReady)
			if ready.Reason != tc.reason || ready.Status != tc.ready || pool.Status.Status != tc.status {
				t.Errorf("got %s %s %d, want %s %s %d", ready.Status, ready.Reason, pool.Status.Status, tc.ready, tc.reason, tc.status)
			}
			for _, c := range pool.Status.Conditions {
				if c.ObservedGeneration != 3 || c.LastTransitionTime != ownershiptest.Now {
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
			report(pool, tc.found, tc.class, ownershiptest.Now.Add(time.Hour))
			if diff := cmp.Diff(before.Status, pool.Status); diff != "" {
				t.Errorf("a second report differs:\n%s", diff)
			}
			report(pool, base(nil), ok, ownershiptest.Now.Add(time.Hour))
			if got := condition(pool, flotillav1.ConditionStalled); got.Type != "" {
				t.Errorf("it stays Stalled when all is well: %+v", got)
			}
		})
	}
}

func TestReport_membership_loop_names_the_pools(t *testing.T) {
	found := ownership.Survey{
		Counts: flotillav1.NodePoolCounts{NodeCount: 1}, Pending: []string{"n1"}, Looping: []string{"n1"},
		LoopPools: sets.New("b", "a"), LoopLabels: []string{"example.com/claimed", "example.com/free"},
	}
	got := appliedCondition(ownershiptest.Pool("a", nil), found)
	want := metav1.Condition{
		Status: metav1.ConditionFalse, Reason: flotillav1.ReasonMembershipLoop,
		Message: "By labels that they set (example.com/claimed, example.com/free), pools a, b make n1 join and leave for ever, " +
			"so nothing changes there: change labels or nodeSelector of one of them",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Applied (-want +got):\n%s", diff)
	}
}

func TestReport_placement_in_a_member_is_ignored_and_told(t *testing.T) {
	pool := ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) { spec.Placement = &flotillav1.Placement{} })
	report(pool, ownership.Survey{}, classOutcome{condition: metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonNoHandler}}, ownershiptest.Now.Time)
	if got := condition(pool, flotillav1.ConditionPlacementIgnored); got.Reason != flotillav1.ReasonPlacementInMember {
		t.Errorf("got %+v", got)
	}
	pool.Spec.Placement = nil
	report(pool, ownership.Survey{}, classOutcome{condition: metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonNoHandler}}, ownershiptest.Now.Time)
	if got := condition(pool, flotillav1.ConditionPlacementIgnored); got.Type != "" {
		t.Errorf("it stays: %+v", got)
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
