// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"testing"
	"time"
)

func TestRetries(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := retries{}
	for elapsed := time.Duration(0); elapsed < eagerRetries; {
		delay := r.next(now.Add(elapsed), false)
		if delay > 12*time.Second {
			t.Fatalf("after %s the next try is in %s: a member that is back would wait", elapsed, delay)
		}
		elapsed += delay
	}
	var last time.Duration
	for range 10 {
		last = r.next(now.Add(time.Hour), false)
	}
	if last < 5*time.Minute || last > 6*time.Minute {
		t.Errorf("in the end tries are %s apart", last)
	}
	if delay := r.next(now, true); delay > 6*time.Second {
		t.Errorf("a member that lacks something is looked at again in %s", delay)
	}
}

func TestRestores_are_further_and_further_apart(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var r restores
	if wait := r.next(now).Sub(now); wait != 0 {
		t.Errorf("the first time it is read again after %v", wait)
	}
	last := time.Duration(0)
	for range 20 {
		wait := r.next(now).Sub(now)
		last, now = wait, now.Add(wait+time.Second)
	}
	if last < time.Minute {
		t.Errorf("a member that always goes back is read again after %v", last)
	}
	now = now.Add(restoreCalm)
	if wait := r.next(now).Sub(now); wait != 0 {
		t.Errorf("after a time of calm it is read again after %v", wait)
	}
}

func TestConnection_retries_and_ends_an_attempt(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ctx, cancel := context.WithCancel(t.Context())
	c := connection{attempt: &attempt{cancel: cancel}}
	c.retry(now, false)
	if wait := c.retryAt.Sub(now); wait < 800*time.Millisecond || wait > 1200*time.Millisecond {
		t.Errorf("the first try after a failure is in %s, want about a second", wait)
	}
	if c.hangUp() || c.attempt != nil || ctx.Err() == nil {
		t.Error("an attempt is to be cancelled, and is no session")
	}
}
