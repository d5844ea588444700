// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text cleans, shortens and joins texts for conditions, events and tables.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text as a single line: valid UTF-8 without control and bidirectional formatting characters, with single
// spaces between words.
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

// Cut truncates text to at most limit bytes at a character boundary.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// Clip truncates text to at most limit bytes, including an ellipsis if something is omitted.
func Clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	return strings.TrimSpace(Cut(text, limit-len(ellipsis))) + ellipsis
}

// Clause returns text as one line of at most limit bytes that can stand inside a sentence: without a final period.
func Clause(text string, limit int) string {
	return strings.TrimRight(strings.TrimSpace(Cut(Line(text), limit)), ".")
}

// List joins at most most items: "a, b and 3 more".
func List(items []string, most int) string {
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
}

// maxNames is the number of names in a message; the others are counted.
const maxNames = 5

// Names joins names for a message: up to 5, and the number of the others.
func Names(names []string) string { return List(names, maxNames) }

// Sentence returns what an error says with a capital letter, so that it can begin a message.
func Sentence(err error) string {
	text := err.Error()
	if text != "" && text[0] >= 'a' && text[0] <= 'z' {
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}
