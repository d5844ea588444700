// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestReport(t *testing.T) {
	t0, t1 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	ready := publication{
		snapshot: clusters.Snapshot{Name: "m", State: clusters.StateReady, Decided: true, UID: "u"}, version: "v1.34.0", endpoint: "h:6443",
		verdicts: map[string]verdict.Verdict{flotillav1.ConditionReachable: verdict.Good(flotillav1.ReasonProbeSucceeded, "The API server answers")},
	}
	away := ready
	away.snapshot.State, away.snapshot.Reason, away.snapshot.Message = clusters.StateUnreachable, flotillav1.ReasonTimeout, "No answer"
	undecided := publication{snapshot: clusters.Snapshot{Name: "m", State: clusters.StateConnecting}}
	paused := ready
	paused.snapshot.Paused = true

	object := &flotillav1.MemberCluster{}
	object.Status.Attention = []flotillav1.Attention{{Kind: "Redis", Name: "r"}}
	object.Status.Conditions = []metav1.Condition{{Type: "example.com/Audited", Status: "True", Reason: "Audited"}}
	condition := func(conditionType string) string {
		c := apimeta.FindStatusCondition(object.Status.Conditions, conditionType)
		if c == nil {
			return "none"
		}
		return string(c.Status) + " " + c.Reason + " " + c.LastTransitionTime.UTC().Format(time.DateOnly)
	}
	check := func(step, conditionType, want string) {
		t.Helper()
		if diff := cmp.Diff(want, condition(conditionType)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", step, conditionType, diff)
		}
	}

	report(object, undecided, t0)
	check("a new member", flotillav1.ConditionReady, "Unknown NotYetProbed 2026-01-01")
	check("a new member", flotillav1.ConditionReachable, "Unknown NotYetProbed 2026-01-01")

	report(object, ready, t0)
	check("ready", flotillav1.ConditionReady, "True Connected 2026-01-01")
	check("ready", "example.com/Audited", "True Audited 0001-01-01")
	if object.Status.Conditions[0].Type != flotillav1.ConditionReady || object.Status.UID != "u" || object.Status.KubernetesVersion != "v1.34.0" {
		t.Errorf("ready: got %+v", object.Status)
	}

	before := object.DeepCopy()
	report(object, undecided, t1)
	report(object, ready, t1)
	if diff := cmp.Diff(before.Status, object.Status); diff != "" {
		t.Errorf("after a restart nothing changes (-want +got):\n%s", diff)
	}

	draining := ready
	draining.snapshot.Draining, draining.drained = true, verdict.Good(flotillav1.ReasonAllRemoved, "No copy is left")
	report(object, draining, t1)
	check("drained", flotillav1.ConditionDrained, "True AllRemoved 2026-01-02")
	draining.drained = verdict.Verdict{}
	report(object, draining, t1)
	check("drained and away", flotillav1.ConditionDrained, "True AllRemoved 2026-01-02")

	report(object, paused, t1)
	check("not drained any more", flotillav1.ConditionDrained, "none")
	check("paused", flotillav1.ConditionPaused, "True Paused 2026-01-02")
	report(object, away, t1)
	check("away", flotillav1.ConditionPaused, "none")
	check("away", flotillav1.ConditionReady, "False Timeout 2026-01-02")
	if len(object.Status.Attention) != 1 {
		t.Error("the attention list is not the pool's to touch")
	}
}

// TestReport_Stalled is about what only a person can end, in the registration or in the member.
func TestReport_Stalled(t *testing.T) {
	bad := func(reason string) verdict.Verdict {
		return verdict.Verdict{Status: metav1.ConditionFalse, Reason: reason, Message: "Why"}
	}
	for name, tc := range map[string]struct {
		state     clusters.State
		condition string
		verdict   verdict.Verdict
		want      string
		health    testenv.Health
	}{
		"all is well":              {clusters.StateReady, flotillav1.ConditionReachable, verdict.Good(flotillav1.ReasonProbeSucceeded, "It answers"), "none", testenv.Current},
		"near its end":             {clusters.StateReady, flotillav1.ConditionCredentialsAccepted, verdict.Good(flotillav1.ReasonExpiresSoon, "Soon"), "none", testenv.Current},
		"a rotation that failed":   {clusters.StateReady, flotillav1.ConditionCredentialsAccepted, bad(flotillav1.ReasonRotationFailed), "True RotationFailed", testenv.Failed},
		"a refused registration":   {clusters.StateInvalid, flotillav1.ConditionCredentialsAccepted, bad(flotillav1.ReasonParseError), "True ParseError", testenv.Failed},
		"a claim of another hub":   {clusters.StateIncompatible, flotillav1.ConditionClaimed, bad(flotillav1.ReasonClaimedByAnotherHub), "True ClaimedByAnotherHub", testenv.Failed},
		"an old Kubernetes":        {clusters.StateIncompatible, flotillav1.ConditionAPIsServed, bad(flotillav1.ReasonUnsupportedVersion), "True UnsupportedVersion", testenv.Failed},
		"definitions not there":    {clusters.StateIncompatible, flotillav1.ConditionAPIsServed, bad(flotillav1.ReasonCRDMissing), "none", testenv.InProgress},
		"rights not there":         {clusters.StateIncompatible, flotillav1.ConditionAPIsServed, bad(flotillav1.ReasonForbidden), "none", testenv.InProgress},
		"a member that is away":    {clusters.StateUnreachable, flotillav1.ConditionReachable, bad(flotillav1.ReasonTimeout), "none", testenv.InProgress},
		"a member that is too big": {clusters.StateIncompatible, flotillav1.ConditionCachesSynced, bad(flotillav1.ReasonLimitExceeded), "none", testenv.InProgress},
	} {
		t.Run(name, func(t *testing.T) {
			object := &flotillav1.MemberCluster{}
			wanted := publication{
				snapshot: clusters.Snapshot{Name: "m", State: tc.state, Decided: true, Reason: tc.verdict.Reason, Message: "Why"},
				verdicts: map[string]verdict.Verdict{tc.condition: tc.verdict},
			}
			report(object, wanted, time.Now())
			got := "none"
			if c := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionStalled); c != nil {
				got = string(c.Status) + " " + c.Reason
			}
			health, err := testenv.HealthOf(object)
			if got != tc.want || err != nil || health != tc.health {
				t.Errorf("Stalled %s, health %s (%v); want %s, %s", got, health, err, tc.want, tc.health)
			}
			report(object, publication{snapshot: clusters.Snapshot{Name: "m", State: clusters.StateReady, Decided: true}, verdicts: map[string]verdict.Verdict{tc.condition: verdict.Good("Accepted", "Corrected")}}, time.Now())
			if c := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionStalled); c != nil {
				t.Errorf("corrected, and still %+v", c)
			}
		})
	}
}

func TestExplain_is_the_same_for_the_same_failure(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"status":  {verdict.StatusError(503), flotillav1.ReasonProbeFailed},
		"refused": {transport.ErrAway, flotillav1.ReasonProbeFailed},
		"401":     {verdict.StatusError(401), flotillav1.ReasonUnauthorized},
		"denied":  {verdict.ErrAddressDenied, flotillav1.ReasonEndpointNotAllowed},
		"timeout": {timeoutError{}, flotillav1.ReasonTimeout},
	} {
		if got := verdict.Explain(tc.err); got.Reason != tc.want || got.Message == "" || got.Status != metav1.ConditionFalse {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// timeoutError is a timeout of the network.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
