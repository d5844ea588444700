// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

func TestBoard_what_is_wanted(t *testing.T) {
	var b board
	one := registration.Registration{ClusterName: "eu-1", Digest: "1", Secret: registration.SecretRef{Namespace: "shop", Name: "eu-1"}}
	if !b.want(one) || b.want(one) {
		t.Error("want is to report what is new, and only that")
	}
	if b.holder() != one.Secret {
		t.Errorf("the holder is %v", b.holder())
	}
	b.leave()
	two := one
	two.Digest = "2"
	if b.want(two) {
		t.Error("a member that leaves takes a registration")
	}
	if wanted, _, leaving := b.asked(); !leaving || wanted.Digest != "1" {
		t.Errorf("asked for %v, leaving: %t", wanted, leaving)
	}
}

func TestBoard_tells_visible_changes_from_others(t *testing.T) {
	b := board{published: publication{verdicts: map[string]verdict.Verdict{}}}
	before := b.publication()
	for name, tc := range map[string]struct {
		change           func(*publication)
		visible, changed bool
	}{
		"nothing":   {func(*publication) {}, false, false},
		"a verdict": {func(p *publication) { p.verdicts["Ready"] = verdict.Good("Connected", "") }, false, true},
		"a state":   {func(p *publication) { p.snapshot.State = clusters.StateReady }, true, true},
	} {
		if visible, changed := b.change(tc.change); visible != tc.visible || changed != tc.changed {
			t.Errorf("%s: visible %t, changed %t", name, visible, changed)
		}
	}
	if len(before.verdicts) > 0 {
		t.Error("a publication has changed after it was handed out")
	}
}

func TestBoard_hands_out_each_event_once(t *testing.T) {
	var b board
	b.note(hubEvent{reason: "One"})
	b.note(hubEvent{reason: "Two"})
	if events := b.takeEvents(); len(events) != 2 || events[0].reason != "One" {
		t.Errorf("got %v", events)
	}
	if events := b.takeEvents(); len(events) != 0 {
		t.Errorf("got %v again", events)
	}
}
