// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// printed returns the screen of a fleet.
func printed(view *fleetView) string { return printedAs(view, layout{}) }

func printedAs(view *fleetView, how layout) string {
	var out bytes.Buffer
	t := &tool{Console: console.New(genericiooptions.IOStreams{Out: &out}, clocktesting.NewFakeClock(now))}
	t.printFleet(view, how)
	return out.String()
}

// fleetOf is a member and a Redis that is ready in it.
func fleetOf() (*fleetView, *flotillav1.Redis) {
	at := metav1.NewTime(now.Add(-time.Minute))
	well := func(conditionType string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: "AllReady", LastTransitionTime: at}
	}
	member := flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "us-1"}}
	member.Status.Conditions = []metav1.Condition{well(flotillav1.ConditionReady)}
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache", CreationTimestamp: at}}
	redis.Status.PlacedIn = []string{"us-1"}
	redis.Status.Conditions = []metav1.Condition{well(flotillav1.ConditionReady), well(flotillav1.ConditionFullyReady)}
	redis.Status.Clusters = []flotillav1.RedisClusterStatus{{ClusterStatus: flotillav1.ClusterStatus{Name: "us-1", Ready: metav1.ConditionTrue, Since: &at}}}
	return &fleetView{members: []flotillav1.MemberCluster{member}, objects: []fleet.Object{redis}}, redis
}

func TestPrintFleet_a_late_attention_list_does_not_contradict_the_hub_object(t *testing.T) {
	view, _ := fleetOf()
	view.members[0].Status.Attention = []flotillav1.Attention{
		{Kind: "Redis", Namespace: "shop", Name: "cache", Reason: flotillav1.ReasonRollingUpdate},
		{Kind: "Redis", Namespace: "own", Name: "session", Reason: flotillav1.ReasonPrimaryNotReady},
	}
	screen := printed(view)
	if strings.Contains(screen, "RollingUpdate") || !strings.Contains(screen, "redis/own/session") {
		t.Errorf("it shows\n%s", screen)
	}
	// What is not known has a dash, and a reason without a message has its meaning.
	if strings.Contains(screen, "unknown") || !strings.Contains(screen, "is missing or not Ready") {
		t.Errorf("it shows\n%s", screen)
	}
	view.members[0].Status.Attention[0].Reason = flotillav1.ReasonOrphaned
	if screen := printed(view); !strings.Contains(screen, "Orphaned") {
		t.Errorf("a copy that was given up does not show:\n%s", screen)
	}
}

func TestPrintFleet_shows_first_what_is_stalled(t *testing.T) {
	view, redis := fleetOf()
	if screen := printed(view); strings.Contains(screen, "Stalled") {
		t.Errorf("nothing is stalled, and it shows\n%s", screen)
	}
	stalled := func(reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: flotillav1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute)),
		}
	}
	redis.Status.Conditions = append(redis.Status.Conditions, stalled(flotillav1.ReasonRolloutHalted, "Rollout halted: not ready in time: us-1"))
	again := stalled(flotillav1.ReasonCopyRecreated, "The copy was gone")
	again.Type = flotillav1.ConditionCopyRecreated
	redis.Status.Conditions = append(redis.Status.Conditions, again)
	redis.Status.Clusters[0].Ready, redis.Status.Clusters[0].Reason = metav1.ConditionFalse, flotillav1.ReasonReplicasNotReady
	view.members[0].Status.Conditions = append(view.members[0].Status.Conditions, stalled(flotillav1.ReasonRotationFailed, "Why"))
	screen := printed(view)
	last := 0
	for _, part := range []string{"Members 1/1", "Stalled until a person acts:", "membercluster/us-1", "RotationFailed", "redis/shop/cache", "RolloutHalted", "60s", "Rollout halted: ", "Made again after they were gone:", "CopyRecreated", "The copy was gone", "MEMBER", "Not well:"} {
		at := strings.Index(screen[last:], part)
		if at < 0 {
			t.Fatalf("%q is not where it should be:\n%s", part, screen)
		}
		last += at
	}
}

func TestPrintFleet_lists_of_many_members_those_that_need_attention(t *testing.T) {
	view := &fleetView{}
	for i := range 40 {
		member := flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%02d", i), Labels: map[string]string{"region": []string{"eu", "us"}[i%2]}}}
		ready := metav1.Condition{Type: flotillav1.ConditionReady, Status: metav1.ConditionTrue, Reason: flotillav1.ReasonConnected, LastTransitionTime: metav1.NewTime(now.Add(-time.Duration(i) * time.Minute))}
		switch i {
		case 20, 31:
			ready.Status, ready.Reason = metav1.ConditionUnknown, flotillav1.ReasonProbeFailed
		case 39:
			ready.Status, ready.Reason = metav1.ConditionFalse, flotillav1.ReasonKeyMissing
		case 38:
			member.Status.Summary = &flotillav1.MemberClusterSummary{Nodes: flotillav1.ObjectCounts{Total: 3, Ready: 2}}
		}
		if end := metav1.NewTime(now.Add(time.Duration(100-i) * time.Hour)); i > 0 {
			member.Status.Credentials = &flotillav1.CredentialStatus{ExpirationTime: &end}
		}
		member.Status.Conditions = []metav1.Condition{ready}
		view.members = append(view.members, member)
	}
	names := func(screen string) []string { return regexp.MustCompile(`(?m)^m-\d\d`).FindAllString(screen, -1) }
	screen := printed(view)
	if got := names(screen); len(got) != 30 || !slices.Equal(got[:5], []string{"m-39", "m-20", "m-31", "m-38", "m-00"}) {
		t.Errorf("it lists %v", got)
	}
	for _, want := range []string{"Members 37/40 ready", "Members that are not ready: 2 ProbeFailed, 1 KeyMissing\n", "and 10 more; --all shows them\n"} {
		if !strings.Contains(screen, want) {
			t.Errorf("it lacks %q:\n%s", want, screen)
		}
	}
	if got := names(printedAs(view, layout{all: true})); len(got) != 40 || got[0] != "m-00" {
		t.Errorf("with --all it lists %v", got)
	}
	selector, err := labels.Parse("region=us")
	if err != nil {
		t.Fatal(err)
	}
	if got := names(printedAs(view, layout{selector: selector})); len(got) != 20 || got[0] != "m-01" {
		t.Errorf("of one region it lists %v", got)
	}
	for order, want := range map[string]string{bySince: "m-00 m-01 m-02", byCredential: "m-39 m-38 m-37"} {
		if got := strings.Join(names(printedAs(view, layout{all: true, sort: order}))[:3], " "); got != want {
			t.Errorf("by %s it begins with %s", order, got)
		}
	}
	if got := names(printedAs(view, layout{all: true, sort: byCredential})); got[39] != "m-00" {
		t.Errorf("by credential it ends with %s", got[39])
	}
}

func TestSince_of_an_object_without_conditions_is_its_age(t *testing.T) {
	_, redis := fleetOf()
	redis.Status = flotillav1.RedisStatus{}
	if screen := printed(&fleetView{objects: []fleet.Object{redis}}); !strings.Contains(screen, "60s") || strings.Contains(screen, "unknown>") {
		t.Errorf("it shows\n%s", screen)
	}
}

func TestRun_versions_and_unknown_commands(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"version"}, "kubectl-flotilla v1.2.3\n", 0},
		{[]string{"--version"}, "kubectl-flotilla v1.2.3\n", 0},
		{[]string{"stat"}, `error: unknown command "stat" for "kubectl flotilla"; did you mean status?` + "\n", 1},
		{[]string{"nonsense"}, `error: unknown command "nonsense" for "kubectl flotilla"` + "\n", 1},
	} {
		var out bytes.Buffer
		code := Run(t.Context(), "kubectl-flotilla v1.2.3", test.args, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
		if code != test.code || out.String() != test.want {
			t.Errorf("%v: %d, %q", test.args, code, out.String())
		}
	}
}
