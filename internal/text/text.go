// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text makes words of others, and lists of names, fit for conditions, events and tables.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text as one line that can be published: valid UTF-8, without control characters and those that change the
// direction of writing, with single spaces between words.
func Line(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.Join(strings.Fields(text), " ")
}

// Cut shortens text to at most limit bytes, between two characters.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// Clip is Cut with an ellipsis for what is missing.
func Clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	return strings.TrimSpace(Cut(text, limit-len(ellipsis))) + ellipsis
}

// List joins at most that many items: "a, b and 3 more".
func List(items []string, most int) string {
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
}
