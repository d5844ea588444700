// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"maps"
	"testing"
	"time"
)

func TestSituation_tasks(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	soon, later := now.Add(time.Minute), now.Add(time.Hour)
	// ready is a member that is engaged and claimed, with nothing due before soon.
	ready := func(change func(*situation)) situation {
		s := situation{now: now, connected: true, claimed: true, permitted: 90 * time.Second, retryAt: now}
		for i := range s.due {
			s.due[i] = soon
		}
		change(&s)
		return s
	}
	type plan map[job]time.Time
	watched := plan{jobProbe: soon, jobSweep: soon, jobInspect: soon}
	with := func(more plan) plan {
		all := maps.Clone(watched)
		maps.Copy(all, more)
		return all
	}
	for name, tc := range map[string]struct {
		situation situation
		want      plan
	}{
		"nothing to do":                       {situation{now: now}, plan{}},
		"the next attempt":                    {situation{now: now, retryAt: soon}, plan{jobConnect: soon}},
		"an attempt runs":                     {situation{now: now, retryAt: soon, attempting: true}, plan{}},
		"offboarded":                          {ready(func(s *situation) { s.over = true }), plan{}},
		"to be offboarded":                    {ready(func(s *situation) { s.leaves = true }), plan{jobOffboard: {}}},
		"to be offboarded, without a session": {situation{now: now, leaves: true, retryAt: soon}, plan{jobOffboard: {}}},
		"to be offboarded, while the claim may be renewed": {ready(func(s *situation) { s.leaves, s.running[jobRenew] = true, true }), plan{}},
		"to be offboarded, while the claim may be taken":   {ready(func(s *situation) { s.leaves, s.running[jobUnpause] = true, true }), plan{}},
		"being offboarded": {ready(func(s *situation) { s.leaves, s.running[jobOffboard] = true, true }), plan{}},

		"the registration has vanished": {
			ready(func(s *situation) { s.lost, s.held, s.due[jobConfirm] = true, true, later }),
			with(plan{jobRenew: soon, jobConfirm: later}),
		},
		"it has vanished, without a session": {situation{now: now, lost: true, retryAt: soon}, plan{jobConfirm: {}, jobConnect: soon}},
		"the credential ends":                {ready(func(s *situation) { s.expires = later }), with(plan{jobRenew: soon, jobReportExpiry: later})},
		"another credential is wanted":       {ready(func(s *situation) { s.rotates, s.due[jobRotate] = true, now }), with(plan{jobRenew: soon, jobRotate: now})},
		"another credential is tried":        {ready(func(s *situation) { s.rotates, s.running[jobRotate] = true, true }), with(plan{jobRenew: soon})},

		"engaged and claimed":              {ready(func(*situation) {}), with(plan{jobRenew: soon})},
		"frozen, claimed before":           {ready(func(s *situation) { s.held = true }), with(plan{jobRenew: soon})},
		"the permission ends before":       {ready(func(s *situation) { s.permitted = time.Second }), with(plan{jobRenew: now.Add(time.Second)})},
		"the permission has ended":         {ready(func(s *situation) { s.permitted = 0 }), with(plan{jobRenew: now})},
		"the claim is being renewed":       {ready(func(s *situation) { s.permitted, s.running[jobRenew] = 0, true }), watched},
		"paused":                           {ready(func(s *situation) { s.held, s.claimed = true, false }), watched},
		"not claimed any more":             {ready(func(s *situation) { s.claimed, s.permitted = false, 0 }), with(plan{jobUnpause: soon})},
		"away":                             {ready(func(s *situation) { s.away, s.permitted, s.behind = true, 0, true }), plan{jobProbe: soon, jobSweep: soon}},
		"it answers again, not held since": {ready(func(s *situation) { s.returning, s.permitted, s.behind = true, 0, true }), with(plan{jobRenew: soon})},
		"it answers again, held since":     {ready(func(s *situation) { s.behind = true }), with(plan{jobRenew: soon, jobCatchUp: soon})},
		"it answers again, paused":         {ready(func(s *situation) { s.behind, s.held, s.claimed = true, true, false }), with(plan{jobCatchUp: soon})},
	} {
		got := plan{}
		for _, task := range tc.situation.tasks() {
			got[task.job] = task.at
		}
		if !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
