// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.8: 4, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v of %v is %v, want %v", q, values, got, want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("quantile of nothing is %v", got)
	}
}

func TestSpreadOf(t *testing.T) {
	if got, want := spreadOf([]float64{4, math.NaN(), 1, 3}), (spread{Median: 3, Min: 1, Max: 4, Rounds: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := spreadOf([]float64{1, 2}).Median; got != 1.5 {
		t.Errorf("the median of 1 and 2 is %v", got)
	}
}

// A ratio is of figures of one round, so that a machine that was slower in the second round does not change it.
func TestTabulate_compares_within_rounds(t *testing.T) {
	samples := []sample{
		{Round: 1, System: flotilla, Phase: phasePropagate, Values: values{"last copy s": 2}},
		{Round: 1, System: baseline, Phase: phasePropagate, Values: values{"last copy s": 1}},
		{Round: 2, System: baseline, Phase: phasePropagate, Values: values{"last copy s": 10}},
		{Round: 2, System: flotilla, Phase: phasePropagate, Values: values{"last copy s": 20}},
		{Round: 3, System: flotilla, Phase: phasePropagate, Values: values{"last copy s": 7}},
	}
	rows := tabulate(samples)
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1", len(rows))
	}
	if want := (spread{Median: 2, Min: 2, Max: 2, Rounds: 2}); rows[0].ratio != want {
		t.Errorf("the ratio is %+v, want %+v", rows[0].ratio, want)
	}
	if rows[0].verdict {
		t.Error("twice the baseline is said to be at most 1.5 times")
	}
}

func TestTabulate_is_content_with_one_of_two_targets(t *testing.T) {
	for ours, want := range map[float64]bool{50: true, 150: true, 250: false} {
		rows := tabulate([]sample{
			{Round: 1, System: flotilla, Phase: phaseCondition, Values: values{"p99 ms": ours}},
			{Round: 1, System: baseline, Phase: phaseCondition, Values: values{"p99 ms": 100}},
		})
		if len(rows) != 1 || rows[0].verdict != want {
			t.Errorf("%v ms beside 100 ms, at most twice as much or 60 ms: %+v", ours, rows)
		}
	}
}

func TestTabulate_compares_with_karmada_when_it_was_measured(t *testing.T) {
	samples := []sample{
		{Round: 1, System: flotilla, Phase: phasePropagate, Values: values{"last copy s": 2}},
		{Round: 1, System: baseline, Phase: phasePropagate, Values: values{"last copy s": 1}},
	}
	without := grid(tabulate(samples))
	if len(without) != 2 || slices.Contains(without[0], "Karmada") {
		t.Errorf("without Karmada the table is %q", without)
	}
	samples = append(samples, sample{Round: 1, System: karmada, Phase: phasePropagate, Values: values{"last copy s": 20}})
	rows := tabulate(samples)
	if len(rows) != 2 || rows[1].ratio.Median != 0.1 || !rows[1].verdict {
		t.Errorf("2 s beside Karmada's 20 s, at most 0.15 times: %+v", rows)
	}
	if with := grid(rows); with[2][3] != "20 s" || with[2][len(with[2])-1] != "met" {
		t.Errorf("the row is %q", with[2])
	}
}

// Without a figure to compare with, a ratio is neither met nor missed.
func TestGrid_judges_nothing_that_was_not_measured(t *testing.T) {
	cells := grid(tabulate([]sample{{Round: 1, System: flotilla, Phase: phasePropagate, Values: values{"last copy s": 2}}}))
	if got := cells[1][len(cells[1])-1]; got != "" {
		t.Errorf("the verdict is %q, want none", got)
	}
}

// What is not about our system and not about the change itself does not count.
func TestCountRequests(t *testing.T) {
	log := strings.Join([]string{
		`{"stage":"ResponseComplete","verb":"patch","userAgent":"flotilla","objectRef":{"resource":"nodepools"},"responseStatus":{"code":409}}`,
		`{"stage":"ResponseComplete","verb":"create","userAgent":"bench-driver","objectRef":{"resource":"nodepools"}}`,
		`{"stage":"ResponseComplete","verb":"update","userAgent":"flotilla-manager/leader-election","objectRef":{"resource":"leases"}}`,
		`{"stage":"ResponseComplete","verb":"create","userAgent":"flotilla-manager","objectRef":{"resource":"events"}}`,
		`{"stage":"ResponseComplete","verb":"create","userAgent":"flotilla","objectRef":{"resource":"selfsubjectaccessreviews"}}`,
		`{"stage":"ResponseComplete","verb":"get","userAgent":"flotilla","objectRef":{"resource":"nodepools"}}`,
		`{"stage":"ResponseComplete","verb":"list","userAgent":"flotilla","objectRef":{"resource":"nodes"}}`,
		`{"stage":"ResponseComplete","verb":"get","userAgent":"bench-driver","objectRef":{"resource":"nodepools"}}`,
		`{"stage":"ResponseStarted","verb":"watch","userAgent":"flotilla","requestURI":"/api/v1/nodes?sendInitialEvents=true"}`,
		`{"stage":"ResponseStarted","verb":"watch","userAgent":"flotilla","requestURI":"/api/v1/nodes?resourceVersion=5"}`,
		`{"stage":"ResponseComplete","verb":"update","userAgent":"kube-controller-manager","requestURI":"/for/flotilla","objectRef":{"resource":"nodes"}}`,
		``,
	}, "\n")
	got, err := countRequests(strings.NewReader(log), "flotilla")
	if want := (requests{writes: 2, leases: 1, events: 1, reads: 2, relists: 2, conflicts: 1}); err != nil || got != want {
		t.Errorf("got %+v and %v, want %+v", got, err, want)
	}
}
