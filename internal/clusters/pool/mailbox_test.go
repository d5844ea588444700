// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"strings"
	"testing"
)

func TestMailbox_signals_are_coalesced(t *testing.T) {
	b := newMailbox()
	signal(b.changed)
	signal(b.changed)
	if len(b.changed) != 1 || len(b.kicks) != 0 {
		t.Errorf("%d changes and %d kicks wait", len(b.changed), len(b.kicks))
	}
}

func TestMailbox_takes_nothing_after_the_end(t *testing.T) {
	b := newMailbox()
	close(b.done)
	b.hand(func() { t.Error("an outcome runs after the end") })
}

func TestMailbox_cleans_up_what_nobody_takes(t *testing.T) {
	b := newMailbox()
	close(b.done)
	cleaned := make(chan struct{})
	b.spawn(func() func() { return func() { t.Error("an outcome runs after the end") } }, func() { close(cleaned) })
	<-cleaned
}

func TestGuarded_turns_a_panic_into_an_outcome(t *testing.T) {
	outcome := guarded(func() func() { panic("a bug") })
	defer func() {
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "a bug\n") || !strings.Contains(text, "mailbox_test.go") {
			t.Errorf("the panic does not say where it began: %q", text)
		}
	}()
	outcome()
	t.Error("the outcome does not panic")
}
