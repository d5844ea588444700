// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// printer shows how far it is, and the table. Colours are for terminals.
type printer struct {
	out    io.Writer
	colour bool
}

func newPrinter(out *os.File) printer {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return printer{out: out, colour: terminal}
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
)

func (p printer) in(colour, text string) string {
	if !p.colour {
		return text
	}
	return colour + text + "\x1b[0m"
}

func (p printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format+"\n", args...) }

func (p printer) title(text string) { p.line("\n%s", p.in(bold, text)) }

// began says what goes on now, until it has ended. On a terminal its line is replaced then.
func (p printer) began(system, phase string) {
	if p.colour {
		_, _ = fmt.Fprintf(p.out, "  %s %s…", system, phase)
	}
}

// headlines are the figures that tell how a phase went.
var headlines = []string{
	"last copy s", "hub knows, last s", "last s", "p50 ms", "p99 ms", "everything s", "start-up s", "transition CPU ms", "heap KiB a copy",
	"status slowdown", "spec slowdown", "told s", "caught up s", "heap MiB a member", "goroutines a member", "RSS MiB", "system CPU s",
	"hub writes", "hub events", "hub reads", "member writes", "member reads", "other cores",
}

func (p printer) ended(s sample) {
	var parts []string
	for _, name := range headlines {
		if value, found := s.Values[name]; found {
			parts = append(parts, name+" "+figure(value))
		}
	}
	if p.colour {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.line("  %-9s %-24s %s", s.System, s.Phase, p.in(dim, strings.Join(parts, ", ")))
	if s.Problem != "" {
		p.line("            %s", p.in(red, s.Problem))
	}
}

// table prints the rows in columns.
func (p printer) table(rows []row) {
	cells := grid(rows)
	widths := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, row := range cells {
		var b strings.Builder
		for column, cell := range row {
			padded := cell + strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell)+2)
			switch {
			case i == 0:
				padded = p.in(bold, padded)
			case column == len(row)-1 && cell == "met":
				padded = p.in(green, padded)
			case column == len(row)-1:
				padded = p.in(red, padded)
			}
			b.WriteString(padded)
		}
		p.line("%s", strings.TrimRight(b.String(), " "))
	}
}
