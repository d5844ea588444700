// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// permitKey and permitTrial are what the tests of permits are about.
var (
	permitKey   = ObjectKey{Kind: "Redis", Object: types.NamespacedName{Namespace: "default", Name: "cache"}}
	permitTrial = Trial{Hash: "new", Since: waveTime}
)

func TestTable_knows_whether_a_permit_was_used(t *testing.T) {
	stored := func(version string) func(*Table) {
		return func(table *Table) { table.Answered(permitKey, "a", SentStored, version) }
	}
	answered := func(result Sent) func(*Table) {
		return func(table *Table) { table.Answered(permitKey, "a", result, "") }
	}
	use := func(table *Table) { table.Use(permitKey, "a", "new") }
	for name, tc := range map[string]struct {
		acts []func(*Table)
		seen *Copy
		want Sight
	}{
		"it was not":               {want: SightClear},
		"the answer is on its way": {acts: []func(*Table){use}, seen: &Copy{Version: "7"}, want: SightSoon},
		"the copy shows it":        {acts: []func(*Table){use, stored("7")}, seen: &Copy{Version: "7"}, want: SightClear},
		"the cache is behind":      {acts: []func(*Table){use, stored("70")}, seen: &Copy{Version: "8"}, want: SightSoon},
		"the copy cannot be seen":  {acts: []func(*Table){use, stored("7")}, want: SightSoon},
		"there was no answer":      {acts: []func(*Table){use, answered(SentUnknown)}, seen: &Copy{Version: "7"}, want: SightUnknown},
		"it was refused":           {acts: []func(*Table){use, answered(SentNothing)}, seen: &Copy{Version: "7"}, want: SightClear},
		"no answer is not made up by a refusal": {
			acts: []func(*Table){use, answered(SentUnknown), use, answered(SentNothing)}, seen: &Copy{Version: "7"}, want: SightUnknown,
		},
		"it is by a success": {
			acts: []func(*Table){use, answered(SentUnknown), use, stored("9")}, seen: &Copy{Version: "9"}, want: SightClear,
		},
		"what was stored before a refusal is not forgotten": {
			acts: []func(*Table){use, stored("9"), use, answered(SentNothing)}, seen: &Copy{Version: "8"}, want: SightSoon,
		},
		"nor when there is another permit": {
			acts: []func(*Table){use, stored("9"), func(table *Table) {
				table.SetPermits(permitKey, map[string]Permit{"a": {Hash: "other", At: waveTime}}, nil)
				table.SetPermits(permitKey, map[string]Permit{"a": {Hash: "new", At: waveTime}}, nil)
			}},
			seen: &Copy{Version: "8"}, want: SightSoon,
		},
		"nor when the cluster stays on trial without one": {
			acts: []func(*Table){use, stored("9"), func(table *Table) { table.SetPermits(permitKey, nil, Trials{"a": permitTrial}) }},
			seen: &Copy{Version: "8"}, want: SightSoon,
		},
		"an earlier process granted it": {
			acts: []func(*Table){func(table *Table) { table.Forget(permitKey) }}, seen: &Copy{Version: "7"}, want: SightUnknown,
		},
		"it was granted for another trial": {
			acts: []func(*Table){func(table *Table) {
				table.SetPermits(permitKey, map[string]Permit{"a": {Hash: "new", At: waveTime.Add(time.Second)}}, nil)
			}},
			seen: &Copy{Version: "7"}, want: SightUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable()
			table.SetPermits(permitKey, map[string]Permit{"a": {Hash: "new", At: waveTime}}, nil)
			for _, act := range tc.acts {
				act(table)
			}
			if got := table.Revoke(permitKey, "a", permitTrial, tc.seen); got != tc.want {
				t.Errorf("Revoke() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTable_a_permit_is_used_only_while_it_is_granted(t *testing.T) {
	table, granted := NewTable(), 0
	table.SubscribePermits(func(ObjectKey, string) { granted++ })
	let := func(pending bool) {
		table.SetPermits(permitKey, map[string]Permit{"a": {Hash: "new", At: waveTime, Pending: pending}}, Trials{"a": permitTrial})
	}
	expect := func(when string, use bool, calls int) {
		t.Helper()
		if got := table.Use(permitKey, "a", "new"); got != use {
			t.Errorf("%s: Use() = %t, want %t", when, got, use)
		}
		if table.Use(permitKey, "a", "other") || table.Use(permitKey, "b", "new") {
			t.Errorf("%s: it covers another spec or cluster", when)
		}
		if granted != calls {
			t.Errorf("%s: subscribers were called %d times, want %d", when, granted, calls)
		}
	}
	let(true)
	expect("while its trial is being recorded", false, 0)
	let(false)
	expect("granted", true, 1)
	let(false)
	expect("granted again", true, 1)
	table.Revoke(permitKey, "a", permitTrial, nil)
	expect("revoked", false, 1)
	let(false)
	expect("granted anew", true, 2)
}
