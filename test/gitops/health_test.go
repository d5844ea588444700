// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/conditions"
)

// scripts returns the health checks by kind, as they are in the ConfigMap of Argo CD.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "argocd", "argocd-cm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	patch := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(content, patch); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for key, script := range patch.Data {
		kind, ok := strings.CutPrefix(key, "resource.customizations.health."+flotillav1.GroupVersion.Group+"_")
		if !ok {
			t.Errorf("the key %q is for no kind of Flotilla", key)
		}
		found[kind] = script
	}
	return found
}

// toLua converts decoded JSON.
func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, field := range value {
			table.RawSetString(key, toLua(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(toLua(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}

// health runs a check as Argo CD does: with the basic functions and those for tables, and without those for strings.
func health(t *testing.T, script string, object any) (status, message string) {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	state.SetGlobal("obj", toLua(state, fields))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check returns %v", state.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

func TestHealth_of_hub_objects(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus, progressing bool) fleet.Entry {
		return fleet.Entry{
			ClusterStatus: flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: flotillav1.ReasonReplicasNotReady},
			Visible:       ready != metav1.ConditionUnknown, Applied: true, Progressing: progressing,
		}
	}
	well, unwell := entry("eu-1", metav1.ConditionTrue, false), entry("us-1", metav1.ConditionFalse, false)
	coming, away := entry("us-1", metav1.ConditionFalse, true), entry("us-1", metav1.ConditionUnknown, false)
	held := coming
	held.Fate, held.Reason = fleet.FateRemove, flotillav1.ReasonRemovalHeld
	for name, tc := range map[string]struct {
		facts   conditions.Facts
		change  func(*flotillav1.Redis)
		want    string
		because string
	}{
		"well":           {facts: conditions.Facts{Entries: []fleet.Entry{well}}, want: "Healthy"},
		"not ready":      {facts: conditions.Facts{Entries: []fleet.Entry{well, unwell}}, want: "Degraded", because: "us-1 (ReplicasNotReady)"},
		"becoming ready": {facts: conditions.Facts{Entries: []fleet.Entry{well, coming}}, want: "Progressing", because: "us-1"},
		"not seen":       {facts: conditions.Facts{Entries: []fleet.Entry{well, away}}, want: "Progressing", because: "Cannot be observed: us-1"},
		"seen nowhere":   {facts: conditions.Facts{Entries: []fleet.Entry{away}}, want: "Progressing", because: "ClustersUnknown"},
		"rolling out":    {facts: conditions.Facts{Entries: []fleet.Entry{well, coming}, Wave: fleet.Wave{Held: []string{"us-1"}}}, want: "Progressing", because: "RollingOut"},
		"halted":         {facts: conditions.Facts{Entries: []fleet.Entry{well, coming}, Halt: "Not ready in time: us-1"}, want: "Degraded", because: "RolloutHalted: Rollout halted: not ready in time: us-1"},
		"taken back": {
			facts: conditions.Facts{Entries: []fleet.Entry{well, unwell}, Reverted: &flotillav1.Change{Revert: &flotillav1.Revert{Message: "Not ready in time: us-1"}}},
			want:  "Degraded", because: "RolloutReverted: Rollout reverted: not ready in time: us-1",
		},
		"rollout paused":              {facts: conditions.Facts{Entries: []fleet.Entry{well, coming}, Wave: fleet.Wave{Held: []string{"us-1"}, Paused: true}}, want: "Suspended", because: "RolloutPaused"},
		"removal held":                {facts: conditions.Facts{Entries: []fleet.Entry{well, held}}, want: "Suspended", because: flotillav1.AnnotationConfirmRemoval},
		"invalid placement":           {facts: conditions.Facts{Entries: []fleet.Entry{well}, Invalid: errors.New("no")}, want: "Degraded", because: flotillav1.ReasonPlacementInvalid},
		"no cluster chosen":           {facts: conditions.Facts{}, want: "Degraded", because: flotillav1.ReasonNoClusterSelected},
		"of an earlier generation":    {facts: conditions.Facts{Entries: []fleet.Entry{well}}, change: func(r *flotillav1.Redis) { r.Generation++ }, want: "Progressing", because: "this generation"},
		"paused":                      {facts: conditions.Facts{Entries: []fleet.Entry{unwell}}, change: func(r *flotillav1.Redis) { r.Spec.Paused = true }, want: "Suspended", because: "spec.paused"},
		"being deleted":               {facts: conditions.Facts{Entries: []fleet.Entry{well}}, change: func(r *flotillav1.Redis) { r.DeletionTimestamp = new(metav1.Now()) }, want: "Progressing", because: "deleted"},
		"deletion held":               {facts: conditions.Facts{Entries: []fleet.Entry{held}, Deleting: true}, change: func(r *flotillav1.Redis) { r.DeletionTimestamp = new(metav1.Now()) }, want: "Suspended", because: flotillav1.AnnotationConfirmRemoval},
		"seen by the manager not yet": {facts: conditions.Facts{Entries: []fleet.Entry{well}}, change: func(r *flotillav1.Redis) { r.Status = flotillav1.RedisStatus{} }, want: "Progressing", because: "not reported"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.Generation, tc.facts.HasPlacement = 3, true
			redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "cache", Generation: 3}}
			redis.Status.Conditions = conditions.Of(tc.facts)
			if tc.change != nil {
				tc.change(redis)
			}
			for _, kind := range []string{fleet.Redis.Name, fleet.NodePool.Name} {
				status, message := health(t, scripts(t)[kind], redis)
				if status != tc.want || !strings.Contains(message, tc.because) {
					t.Errorf("%s is %s: %s", kind, status, message)
				}
			}
		})
	}
}

func TestHealth_of_members(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Unix(0, 0))}
	}
	ready := condition(flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonConnected)
	for name, tc := range map[string]struct {
		conditions    []metav1.Condition
		want, because string
	}{
		"ready":       {[]metav1.Condition{ready}, "Healthy", flotillav1.ReasonConnected},
		"not yet":     {nil, "Progressing", "not reported"},
		"unreachable": {[]metav1.Condition{condition(flotillav1.ConditionReady, metav1.ConditionUnknown, flotillav1.ReasonProbeFailed)}, "Progressing", flotillav1.ReasonProbeFailed},
		"refused":     {[]metav1.Condition{condition(flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonKeyMissing)}, "Degraded", flotillav1.ReasonKeyMissing},
		"with a new credential that is broken": {
			[]metav1.Condition{ready, condition(flotillav1.ConditionCredentialsAccepted, metav1.ConditionFalse, flotillav1.ReasonRotationFailed)}, "Degraded", flotillav1.ReasonRotationFailed,
		},
		"paused": {[]metav1.Condition{ready, condition(flotillav1.ConditionPaused, metav1.ConditionTrue, "Requested")}, "Suspended", "Requested"},
	} {
		t.Run(name, func(t *testing.T) {
			member := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1", Generation: 1}}
			member.Status.Conditions = tc.conditions
			status, message := health(t, scripts(t)[flotillav1.KindMemberCluster], member)
			if status != tc.want || !strings.Contains(message, tc.because) {
				t.Errorf("it is %s: %s", status, message)
			}
		})
	}
}
