// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// line is a line of the table: one figure of a phase, for each system, and what is wanted of Flotilla.
type line struct {
	title  string
	phase  string
	figure string
	unit   string
	// against is the phase of the other systems, where it is another one.
	against string
	// to is the system that Flotilla is compared with; none is the baseline.
	to string
	// ratio is how many times the other system's figure Flotilla's may be; 0 is no such target.
	ratio float64
	// most is the largest value that Flotilla may have; negative is no such target. With both targets, one that is met suffices.
	most float64
}

const none = -1

// lines are all lines of the table, with the targets.
var lines = []line{
	{title: "a: last copy of all objects", phase: phasePropagate, figure: "last copy s", unit: "s", ratio: 1.5, most: none},
	{title: "a: last copy of all objects ÷ Karmada's", phase: phasePropagate, figure: "last copy s", unit: "s", to: karmada, ratio: 0.15, most: none},
	{title: "a: all copies of an object, p50", phase: phasePropagate, figure: "all copies p50 s", unit: "s", most: none},
	{title: "a: hub knows", phase: phasePropagate, figure: "hub knows, last s", unit: "s", most: none},
	{title: "a: hub writes an object", phase: phasePropagate, figure: "hub writes an object", most: 4},
	{title: "a: events an object", phase: phasePropagate, figure: "hub events an object", most: 1},
	{title: "a: member writes a copy", phase: phasePropagate, figure: "member writes a copy", most: 2},
	{title: "a: CPU of the system", phase: phasePropagate, figure: "system CPU s", unit: "s", most: none},
	{title: "a: CPU of hub and members", phase: phasePropagate, figure: "API servers CPU s", unit: "s", most: none},
	{title: "b: number, p50", phase: phaseNumber, figure: "p50 ms", unit: "ms", ratio: 1.5, most: none},
	{title: "b: number, p99", phase: phaseNumber, figure: "p99 ms", unit: "ms", ratio: 2, most: none},
	{title: "b: number, hub writes a change", phase: phaseNumber, figure: "hub writes a change", most: none},
	{title: "b: condition, p50", phase: phaseCondition, figure: "p50 ms", unit: "ms", most: none},
	{title: "b: condition, p99", phase: phaseCondition, figure: "p99 ms", unit: "ms", ratio: 2, most: 60},
	{title: "b: node joins, p50", phase: phaseJoin, figure: "p50 ms", unit: "ms", most: 150},
	{title: "b: node joins, p99", phase: phaseJoin, figure: "p99 ms", unit: "ms", most: 500},
	{title: "b: node joins, member writes a join", phase: phaseJoin, figure: "member writes a change", most: 2},
	{title: "c: one field, last copy, all at once", phase: phaseChange, figure: "last copy s", unit: "s", ratio: 1.5, most: none},
	{title: "c: one field, last copy, default waves", phase: phaseChangeWaves, against: phaseChange, figure: "last copy s", unit: "s", ratio: 2.5, most: none},
	{title: "c: one field, member writes a copy", phase: phaseChangeWaves, against: phaseChange, figure: "member writes a copy", most: 2},
	{title: "x: removal", phase: phaseRemove, figure: "last s", unit: "s", ratio: 1.5, most: none},
	{title: "x: reads of hub and members a copy", phase: phaseRemove, figure: "reads a copy", most: 1},
	{title: "d: idle, writes to hub and members", phase: phaseIdle, figure: "writes", most: 0},
	{title: "d: idle, events", phase: phaseIdle, figure: "events", most: 0},
	{title: "d: idle, CPU of one core", phase: phaseIdle, figure: "system CPU %", unit: "%", most: 0.2},
	{title: "e: start-up, everything reconciled", phase: phaseStartUp, figure: "everything s", unit: "s", ratio: 2, most: none},
	{title: "e: start-up, copies", phase: phaseStartUp, figure: "copies s", unit: "s", most: none},
	{title: "e: start-up, status", phase: phaseStartUp, figure: "status s", unit: "s", most: none},
	{title: "f: status of the others beside a member that hangs ÷ before, p50", phase: phaseHang, figure: "status slowdown", unit: "×", most: 1.3},
	{title: "f: specs of the others beside it ÷ before, p50", phase: phaseHang, figure: "spec slowdown", unit: "×", most: 1.3},
	{title: "f: specs of the others, just after it began, max", phase: phaseHang, figure: "spec max ms at once", unit: "ms", most: none},
	{title: "f: the hub says so", phase: phaseHang, figure: "told s", unit: "s", most: 20},
	{title: "f: caught up after its return", phase: phaseHang, figure: "caught up s", unit: "s", most: 5},
	{title: "g: heap a member", phase: phaseMemory, figure: "heap MiB a member", unit: "MiB", most: 1},
	{title: "g: goroutines a member", phase: phaseMemory, figure: "goroutines a member", most: 90},
	{title: "g: heap an object of the hub", phase: phaseMemory, figure: "heap KiB an object", unit: "KiB", most: none},
	{title: "g: heap a copy, caches included", phase: phaseMemory, figure: "heap KiB a copy", unit: "KiB", most: none},
	{title: "g: heap a node", phase: phaseMemory, figure: "heap KiB a node", unit: "KiB", most: none},
	{title: "g: heap a Pod of a Redis", phase: phaseMemory, figure: "heap KiB a Pod", unit: "KiB", most: none},
	{title: "g: RSS", phase: phaseMemory, figure: "RSS MiB", unit: "MiB", most: none},
	{title: "growth: start-up of 1,000 members and 100,000 copies", phase: growthPhase(1000), figure: "start-up s", unit: "s", most: 12},
	{title: "growth: heap a copy, without what the member keeps", phase: growthPhase(1000), figure: "heap KiB a copy", unit: "KiB", most: 1},
	{title: "growth: RSS with 10,000 members in memory, all in it", phase: growthPhase(10000), figure: "RSS MiB", unit: "MiB", most: 12288},
	{title: "growth: CPU of the start-up a member, most members ÷ fewest", phase: phaseGrowth, figure: "start-up ratio", unit: "×", most: 1.3},
	{title: "growth: CPU of a transition, most members ÷ fewest", phase: phaseGrowth, figure: "transition ratio", unit: "×", most: 1.3},
}

// row is a line with what was measured.
type row struct {
	line
	flotilla, baseline, karmada, raw, ratio spread
	// verdict is whether the target is met; it means nothing without one.
	verdict bool
}

// hasTarget reports whether something is wanted of the line.
func (l line) hasTarget() bool { return l.ratio > 0 || l.most >= 0 }

// target says what is wanted.
func (l line) target() string {
	absolute := "≤ " + figure(l.most) + unitOf(l.unit)
	relative := "≤ " + figure(l.ratio) + " ×"
	switch {
	case l.ratio > 0 && l.most >= 0:
		return relative + " or " + absolute
	case l.ratio > 0:
		return relative
	case l.most >= 0:
		return absolute
	}
	return ""
}

// tabulate makes a row of each line for which there is a sample of Flotilla.
func tabulate(samples []sample) []row {
	var rows []row
	for _, l := range lines {
		r := row{line: l}
		of := func(system string) rounds { return byRound(samples, system, l.otherPhase(), l.figure) }
		ours, theirs := byRound(samples, flotilla, l.phase, l.figure), of(cmp.Or(l.to, baseline))
		if len(ours) == 0 || l.to != "" && len(theirs) == 0 {
			continue
		}
		r.flotilla = spreadOf(ours.all())
		r.baseline, r.karmada, r.raw = spreadOf(of(baseline).all()), spreadOf(of(karmada).all()), spreadOf(of(raw).all())
		// A ratio is of figures of the same round: the machine was the same then. What is a ratio already has none.
		var ratios []float64
		for round, value := range ours {
			if other, found := theirs[round]; found && other > value/1000 && l.unit != "×" {
				ratios = append(ratios, value/other)
			}
		}
		r.ratio = spreadOf(ratios)
		r.verdict = l.ratio > 0 && r.ratio.Median <= l.ratio || l.most >= 0 && r.flotilla.Median <= l.most
		rows = append(rows, r)
	}
	return rows
}

// otherPhase is the phase of the other systems.
func (l line) otherPhase() string {
	if l.against != "" {
		return l.against
	}
	return l.phase
}

// rounds are the values of a figure by round.
type rounds map[int]float64

func byRound(samples []sample, system, phase, figure string) rounds {
	found := rounds{}
	for _, s := range samples {
		if value, measured := s.Values[figure]; measured && s.System == system && s.Phase == phase {
			found[s.Round] = value
		}
	}
	return found
}

func (r rounds) all() []float64 {
	var values []float64
	for _, value := range r {
		values = append(values, value)
	}
	return values
}

// figure writes a number with as many digits as mean something.
func figure(value float64) string {
	switch {
	case math.IsNaN(value):
		return "–"
	case value == math.Trunc(value) && math.Abs(value) < 1e6, math.Abs(value) >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case math.Abs(value) >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}

func unitOf(unit string) string {
	if unit == "" {
		return ""
	}
	return " " + unit
}

// grid is the table in cells: the names of the columns, and the rows. Karmada has a column when it was measured.
func grid(rows []row) [][]string {
	cells := [][]string{{"line", "Flotilla", "baseline", "Karmada", "raw", "ratio", "target", ""}}
	measured := false
	for _, r := range rows {
		verdict := ""
		if r.most >= 0 || r.ratio.Rounds > 0 && r.hasTarget() {
			verdict = "missed"
			if r.verdict {
				verdict = "met"
			}
		}
		measured = measured || r.karmada.Rounds > 0
		cells = append(cells, []string{
			r.title, r.flotilla.text(r.unit), r.baseline.text(r.unit), r.karmada.text(r.unit), r.raw.text(r.unit), r.ratio.text("×"), r.target(), verdict,
		})
	}
	if !measured {
		for i := range cells {
			cells[i] = slices.Delete(cells[i], 3, 4)
		}
	}
	return cells
}

// text writes the median, and what the rounds gave when there were several.
func (s spread) text(unit string) string {
	switch s.Rounds {
	case 0:
		return "–"
	case 1:
		return figure(s.Median) + unitOf(unit)
	}
	return fmt.Sprintf("%s (%s–%s)%s", figure(s.Median), figure(s.Min), figure(s.Max), unitOf(unit))
}
