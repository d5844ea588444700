// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
)

// quantile returns the smallest value that at least the share q of the values does not exceed; NaN when there are none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// spread is what several rounds gave.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

// spreadOf leaves out what is not a number. The median of an even number of values is the mean of the two in the middle.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	sorted = slices.DeleteFunc(sorted, math.IsNaN)
	n := len(sorted)
	if n == 0 {
		return spread{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	return spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], Rounds: n}
}
