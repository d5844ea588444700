// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
)

// limit is a count that no noise moves: how often something may be written or read at most.
type limit struct {
	phase, figure string
	most          float64
}

// limits are what the smoke test asserts. On a slow machine the hub hears of the copies of an object one after another,
// and writes its status and its events more often than it would have to: these limits have room for that, the others only
// for a conflict now and then.
var limits = []limit{
	{phasePropagate, "hub writes an object", 10},
	{phasePropagate, "hub events an object", 4},
	{phasePropagate, "member writes a copy", 2.1},
	{phasePropagate, "member reads a copy", 1.1},
	{phasePropagate, "hub relists", 0},
	{phasePropagate, "member relists", 0},
	{phaseNumber, "hub writes a change", 1.2},
	{phaseCondition, "hub writes a change", 1.2},
	{phaseJoin, "member writes a change", 4.2},
	{phaseChangeWaves, "member writes a copy", 2.2},
	{phaseChange, "member writes a copy", 2.2},
	{phaseIdle, "writes", 0},
	{phaseIdle, "hub relists", 0},
	{phaseIdle, "member relists", 0},
	{phaseRemove, "reads a copy", 2.5},
	{phaseRemove, "member writes a copy", 1.1},
}

// check returns which limits were passed, and what was waited for in vain.
func check(samples []sample) error {
	var errs []error
	for _, s := range samples {
		if s.Problem != "" {
			errs = append(errs, fmt.Errorf("%s, %s: %s", s.System, s.Phase, s.Problem))
		}
	}
	for _, l := range limits {
		measured := byRound(samples, flotilla, l.phase, l.figure)
		if len(measured) == 0 {
			errs = append(errs, fmt.Errorf("%s: no %s", l.phase, l.figure))
		}
		for _, value := range measured {
			if value > l.most {
				errs = append(errs, fmt.Errorf("%s: %s is %s, at most %s is expected", l.phase, l.figure, figure(value), figure(l.most)))
			}
		}
	}
	return errors.Join(errs...)
}
