// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package text_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/flotilla-dev/flotilla/internal/text"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"one\ntwo\tthree\r\n":        "one two three",
		"bell \a, escape \x1b[31m":   "bell , escape [31m",
		"invalid \xff\xfe bytes":     "invalid bytes",
		"\u202eright to left\u2069":  "right to left",
		"  around  and \n\n within ": "around and within",
		"größe 容量":                   "größe 容量",
		"":                           "",
	} {
		if got := text.Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCut_and_Clip(t *testing.T) {
	for _, tc := range []struct {
		in        string
		limit     int
		cut, clip string
	}{
		{"short", 5, "short", "short"},
		{"a little longer", 9, "a little ", "a litt…"},
		{"a b c d e f", 6, "a b c ", "a b…"},
		{"äöü", 3, "ä", "…"},
		{"äöü", 0, "", ""},
	} {
		if got := text.Cut(tc.in, tc.limit); got != tc.cut {
			t.Errorf("Cut(%q, %d) = %q, want %q", tc.in, tc.limit, got, tc.cut)
		}
		if tc.limit < 3 {
			continue
		}
		if got := text.Clip(tc.in, tc.limit); got != tc.clip {
			t.Errorf("Clip(%q, %d) = %q, want %q", tc.in, tc.limit, got, tc.clip)
		}
	}
	long := strings.Repeat("容", 1000)
	for limit := 3; limit < 64; limit++ {
		if got := text.Clip(long, limit); len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("Clip to %d bytes gives %d: %q", limit, len(got), got)
		}
	}
}

func TestClause(t *testing.T) {
	for in, want := range map[string]string{"": "", "No.": "No", "not\nnow...": "not now", "too long a text": "too long a", "it ends a word": "it ends a"} {
		if got := text.Clause(in, 10); got != want {
			t.Errorf("Clause(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestList(t *testing.T) {
	names := []string{"a", "b", "c"}
	for most, want := range map[int]string{1: "a and 2 more", 2: "a, b and 1 more", 3: "a, b, c", 9: "a, b, c"} {
		if got := text.List(names, most); got != want {
			t.Errorf("List of %d: %q, want %q", most, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := text.Names([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
}

func TestSentence(t *testing.T) {
	for said, want := range map[string]string{"": "", "parsing: no": "Parsing: no", "Done": "Done", "5 are left": "5 are left"} {
		if got := text.Sentence(errors.New(said)); got != want {
			t.Errorf("Sentence(%q) = %q, want %q", said, got, want)
		}
	}
}
