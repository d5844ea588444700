// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestPlanRollout(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	const current, old, elsewhere = "w1-new", "w1-old", "w0-old"
	at := func(ordinal int32, hash string, mutate ...func(*pod)) pod {
		p := pod{name: podName("web", ordinal), ordinal: ordinal, hash: hash, ready: true, changed: now.Add(-time.Hour), created: now.Add(-time.Hour)}
		for _, m := range mutate {
			m(&p)
		}
		return p
	}
	since := func(age time.Duration) func(*pod) {
		return func(p *pod) { p.ready, p.changed = false, now.Add(-age) }
	}
	broken := func(p *pod) {
		p.ready, p.diagnosis = false, diagnosis{reason: flotillav1.ReasonImageUnavailable, broken: true, why: "ImagePullBackOff"}
	}
	atRisk := func(p *pod) { p.risk = &problem{flotillav1.ReasonVolumeLost, "Its volume is lost"} }
	deleting := func(p *pod) { p.ready, p.deleting = false, true }

	for name, tc := range map[string]struct {
		replicas int32
		pods     []pod
		want     []string
		reason   string
		blocked  string
		recheck  time.Duration
	}{
		"nothing is stale":                          {replicas: 2, pods: []pod{at(0, current), at(1, current)}},
		"the highest replica goes first":            {replicas: 3, pods: []pod{at(0, old), at(1, old), at(2, old)}, want: []string{"web-2"}},
		"the next goes when the last is Ready":      {replicas: 3, pods: []pod{at(0, old), at(1, old), at(2, current)}, want: []string{"web-1"}},
		"the primary goes last":                     {replicas: 3, pods: []pod{at(0, old), at(1, current), at(2, current)}, want: []string{"web-0"}},
		"a Pod on its way out is waited for":        {replicas: 3, pods: []pod{at(0, old), at(1, old), at(2, old, deleting)}},
		"a missing Pod is waited for":               {replicas: 3, pods: []pod{at(0, old), at(1, old)}},
		"a starting Pod is waited for":              {replicas: 2, pods: []pod{at(0, old), at(1, current, since(time.Minute))}, recheck: 9 * time.Minute},
		"a stale replica that is down goes first":   {replicas: 3, pods: []pod{at(0, old), at(1, old, since(time.Second)), at(2, old)}, want: []string{"web-1"}},
		"a stale replica does not wait for another": {replicas: 3, pods: []pod{at(0, old), at(1, old, since(time.Second)), at(2, current, since(time.Second))}, want: []string{"web-1"}},
		"a broken new Pod stops the rollout": {
			replicas: 3, pods: []pod{at(0, old), at(1, old), at(2, current, broken)},
			reason: "ImageUnavailable", blocked: "Pod web-2 does not become Ready with the current spec: ImagePullBackOff",
		},
		"a broken new Pod protects even what is down": {
			replicas: 3, pods: []pod{at(0, old, since(time.Hour)), at(1, old, since(time.Hour)), at(2, current, broken)},
			reason: "ImageUnavailable", blocked: "Pod web-2 does not become Ready with the current spec: ImagePullBackOff",
		},
		"a new Pod that takes too long stops the rollout": {
			replicas: 2, pods: []pod{at(0, old), at(1, current, since(10*time.Minute))},
			reason: "RolloutStuck", blocked: "Pod web-1 with the current spec has not been Ready for 10 minutes or more",
		},
		"after a revert the broken Pod goes first":        {replicas: 3, pods: []pod{at(0, current), at(1, current), at(2, old, broken)}, want: []string{"web-2"}},
		"all were broken, the replicas go first":          {replicas: 2, pods: []pod{at(0, old, broken), at(1, old, broken)}, want: []string{"web-1"}},
		"a replica that needs the primary does not block": {replicas: 2, pods: []pod{at(0, old, broken), at(1, current, since(time.Second))}, want: []string{"web-0"}},
		"a primary that only blinks keeps its turn": {
			replicas: 2, pods: []pod{at(0, old, since(10*time.Second)), at(1, current, since(time.Second))}, recheck: 20 * time.Second,
		},
		"one Pod alone":                        {replicas: 1, pods: []pod{at(0, old)}, want: []string{"web-0"}},
		"Pods above the replicas do not count": {replicas: 1, pods: []pod{at(0, current), at(1, old), at(2, old, broken)}},
		"another wiring takes all at once":     {replicas: 3, pods: []pod{at(0, elsewhere), at(1, elsewhere, deleting), at(2, current, broken)}, want: []string{"web-0"}},
		"another wiring takes all stale":       {replicas: 3, pods: []pod{at(0, elsewhere), at(1, elsewhere), at(2, elsewhere)}, want: []string{"web-2", "web-1", "web-0"}},
		"a broken Pod alone is reported":       {replicas: 1, pods: []pod{at(0, current, broken)}, reason: "ImageUnavailable", blocked: "Pod web-0 does not become Ready with the current spec: ImagePullBackOff"},
		"nothing stale waits for a slow Pod":   {replicas: 2, pods: []pod{at(0, current), at(1, current, since(time.Hour))}},
		"a Pod whose volume is lost stays":     {replicas: 2, pods: []pod{at(0, old), at(1, old, atRisk)}, reason: "VolumeLost", blocked: "Its volume is lost"},
		"a volume at risk later holds nothing": {replicas: 2, pods: []pod{at(0, old, atRisk), at(1, old)}, want: []string{"web-1"}},
		"a volume at risk keeps all together":  {replicas: 2, pods: []pod{at(0, elsewhere, atRisk), at(1, elsewhere)}, reason: "VolumeLost", blocked: "Its volume is lost"},
		"what is at risk and not stale is let": {replicas: 2, pods: []pod{at(0, current, atRisk), at(1, old)}, want: []string{"web-1"}},
		"an unschedulable Pod is named in time": {
			replicas: 2, pods: []pod{at(0, old), at(1, current, since(time.Hour), func(p *pod) { p.reason, p.why = flotillav1.ReasonUnschedulable, "no room" })},
			reason: "Unschedulable", blocked: "Pod web-1 with the current spec has not been Ready for 10 minutes or more: no room",
		},
		"no replicas": {pods: []pod{at(0, old)}},
	} {
		t.Run(name, func(t *testing.T) {
			(&state{}).markPrimary(tc.pods)
			got := planRollout(current, tc.replicas, tc.pods, now)
			var names []string
			for _, p := range got.replace {
				names = append(names, p.name)
			}
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Errorf("Pods to replace differ (-want +got):\n%s", diff)
			}
			if got.blocked != tc.blocked || got.reason != tc.reason {
				t.Errorf("blocked is %s %q, want %s %q", got.reason, got.blocked, tc.reason, tc.blocked)
			}
			if got.recheck != tc.recheck {
				t.Errorf("recheck is %s, want %s", got.recheck, tc.recheck)
			}
		})
	}
}
