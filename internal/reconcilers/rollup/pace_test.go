// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestPace_a_process_that_takes_over_waits_for_the_writes_of_the_one_before(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	pace := NewPace(time.Second, clock).TakeOver()
	// It may have waited for its turn for long.
	clock.Step(time.Hour)
	if rest := pace.Rest("a"); rest != time.Second {
		t.Errorf("the first write may be made in %s", rest)
	}
	clock.Step(600 * time.Millisecond)
	for _, key := range []string{"a", "b"} {
		if rest := pace.Rest(key); rest != 400*time.Millisecond {
			t.Errorf("that of %s may be made in %s", key, rest)
		}
	}
	clock.Step(400 * time.Millisecond)
	if rest := pace.Rest("a"); rest != 0 {
		t.Errorf("after a second it waits for %s", rest)
	}
	if rest := pace.Rest("new"); rest != 0 {
		t.Errorf("what comes later waits for %s", rest)
	}
}

func TestPace_a_process_that_starts_waits_for_what_is_left_of_the_interval(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	pace := NewPace(time.Second, clock).TakeOver()
	clock.Step(700 * time.Millisecond)
	if rest := pace.Rest("a"); rest != 300*time.Millisecond {
		t.Errorf("700 ms after its start the first write may be made in %s", rest)
	}
	clock.Step(300 * time.Millisecond)
	if rest := pace.Rest("a"); rest != 0 {
		t.Errorf("after a second it waits for %s", rest)
	}
}

func TestPace_the_first_write_after_a_quiet_interval_goes_at_once(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	pace := NewPace(time.Second, clock)
	for range 3 {
		if rest := pace.Rest("a"); rest != 0 {
			t.Fatalf("after a quiet interval it waits for %s", rest)
		}
		pace.Wrote("a", 100)
		clock.Step(300 * time.Millisecond)
		if rest := pace.Rest("a"); rest != 700*time.Millisecond {
			t.Errorf("300 ms after a write the next one waits for %s", rest)
		}
		clock.Step(time.Minute)
	}
}

func TestPace_an_object_in_many_clusters_is_written_less_often(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	pace := NewPace(time.Second, clock)
	for clusters, want := range map[int]time.Duration{0: time.Second, 2000: time.Second, 3000: 1500 * time.Millisecond, 10000: 5 * time.Second} {
		pace.Wrote("a", clusters)
		if rest := pace.Rest("a"); rest != want {
			t.Errorf("with %d clusters the next write waits for %s, want %s", clusters, rest, want)
		}
	}
}
