// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Colour is the sequence that starts a colour on a terminal.
type Colour string

// The colours in use.
const (
	Plain  Colour = ""
	Green  Colour = "\x1b[32m"
	Yellow Colour = "\x1b[33m"
	Red    Colour = "\x1b[31m"
	Faint  Colour = "\x1b[2m"
	reset         = "\x1b[0m"
)

// Paint colours a text for a stream that is a terminal, unless NO_COLOR is set.
func Paint(stream any, with Colour, text string) string {
	if with == Plain || text == "" || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !isTerminal(stream) {
		return text
	}
	return string(with) + text + reset
}

// ForStatus returns the colour of a condition with this status.
func ForStatus(status metav1.ConditionStatus) Colour {
	switch status {
	case metav1.ConditionTrue:
		return Green
	case metav1.ConditionFalse:
		return Red
	default:
		return Yellow
	}
}

// Cell is a cell of a table.
type Cell struct {
	Text   string
	Colour Colour
}

// Status returns the cell of the status of a condition.
func Status(status metav1.ConditionStatus) Cell {
	return Cell{Text: string(status), Colour: ForStatus(status)}
}

// Table writes rows in columns as kubectl does. Cells are padded before they are coloured, because colours have no width.
func (c *Console) Table(header []string, rows [][]Cell) {
	titles := make([]Cell, 0, len(header))
	for _, title := range header {
		titles = append(titles, Cell{Text: title})
	}
	rows = append([][]Cell{titles}, rows...)
	widths := make([]int, len(header))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell.Text)))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(Paint(c.Out, cell.Colour, cell.Text))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-len([]rune(cell.Text))+3))
			}
		}
		_, _ = fmt.Fprintln(c.Out, strings.TrimRight(line.String(), " "))
	}
}
