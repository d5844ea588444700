// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestFence_finds_overlaps shows that the drill would fail.
func TestFence_finds_overlaps(t *testing.T) {
	const one, other, stranger = 101, 102, 103
	f := &fence{contenders: map[int]*contender{one: {name: "one"}, other: {name: "other"}}}
	write := func(pid, received, answered, code int, message string) request {
		began := time.Unix(0, 0)
		r := request{
			Verb: "patch", SourceIPs: []string{testenv.ProcessAddress(pid).String()},
			Received: began.Add(time.Duration(received) * time.Second), Answered: began.Add(time.Duration(answered) * time.Second),
		}
		r.ResponseStatus.Code, r.ResponseStatus.Message = code, message
		return r
	}
	for name, tc := range map[string]struct {
		writes []request
		wrong  bool
		gap    time.Duration
	}{
		"one after the other":            {writes: []request{write(one, 1, 1, 200, ""), write(one, 2, 3, 409, ""), write(other, 7, 8, 200, "")}, gap: 4 * time.Second},
		"one again":                      {writes: []request{write(one, 1, 1, 200, ""), write(other, 2, 2, 200, ""), write(one, 3, 3, 200, "")}, wrong: true, gap: -time.Second},
		"one again, refused":             {writes: []request{write(one, 1, 1, 200, ""), write(other, 2, 2, 200, ""), write(one, 3, 3, 409, "")}, wrong: true, gap: -time.Second},
		"answered after the other began": {writes: []request{write(one, 1, 9, 200, ""), write(other, 7, 8, 200, "")}, wrong: true, gap: -2 * time.Second},
		"given up after the other began": {writes: []request{write(one, 1, 9, 504, "Timeout"), write(other, 7, 8, 200, "")}, wrong: true, gap: -2 * time.Second},
		"one again, without a body":      {writes: []request{write(one, 1, 1, 200, ""), write(other, 2, 2, 200, ""), write(one, 3, 3, 500, "stream error: stream ID 1; CANCEL")}, gap: time.Second},
		"a stranger":                     {writes: []request{write(one, 1, 1, 200, ""), write(stranger, 7, 8, 200, "")}, wrong: true, gap: 6 * time.Second},
	} {
		tc.writes = slices.DeleteFunc(tc.writes, request.bodiless)
		gap, problems := f.overlaps(turnsOf(tc.writes))
		if (len(problems) > 0) != tc.wrong {
			t.Errorf("%s: the problems are %q, want some: %v", name, problems, tc.wrong)
		}
		if gap != tc.gap {
			t.Errorf("%s: the gap is %v, want %v", name, gap, tc.gap)
		}
	}
}
