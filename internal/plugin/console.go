// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

// Colours of a terminal.
type colour string

const (
	plain  colour = ""
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	red    colour = "\x1b[31m"
	faint  colour = "\x1b[2m"
	reset         = "\x1b[0m"
)

// coloured says whether a stream takes colours: it is a terminal, and NO_COLOR is not set.
func coloured(stream any) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(stream)
}

// paint colours a text for a stream.
func paint(stream any, with colour, text string) string {
	if with == plain || text == "" || !coloured(stream) {
		return text
	}
	return string(with) + text + reset
}

// forStatus is the colour of the status of a condition.
func forStatus(status metav1.ConditionStatus) colour {
	switch status {
	case metav1.ConditionTrue:
		return green
	case metav1.ConditionFalse:
		return red
	default:
		return yellow
	}
}

// showAfter is how long a stage may take before it is shown that it goes on, and tellEvery how often after that.
const (
	showAfter = 2 * time.Second
	tellEvery = 10 * time.Second
)

// stage runs a step and prints a line when it is done. One that takes its time says what it is doing, which it may tell.
func (t *tool) stage(ctx context.Context, name string, step func(ctx context.Context, doing func(string)) (string, error)) error {
	var mu sync.Mutex
	current, over := name, make(chan struct{})
	doing := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		current = name + ": " + what
	}
	live := isTerminal(t.ErrOut)
	var showing sync.WaitGroup
	showing.Go(func() {
		wait := showAfter
		for {
			timer := t.clock.NewTimer(wait)
			select {
			case <-over:
				timer.Stop()
				return
			case <-timer.C():
			}
			mu.Lock()
			text := current
			mu.Unlock()
			if live {
				wait = showAfter
				_, _ = fmt.Fprintf(t.ErrOut, "\r\x1b[K  … %s", text)
				continue
			}
			wait = tellEvery
			_, _ = fmt.Fprintf(t.ErrOut, "  … %s\n", text)
		}
	})
	result, err := step(ctx, doing)
	close(over)
	showing.Wait()
	if live {
		_, _ = fmt.Fprint(t.ErrOut, "\r\x1b[K")
	}
	if err != nil {
		t.say("  %s %s", paint(t.ErrOut, red, "✗"), name)
		return err
	}
	if result != "" {
		name += ": " + result
	}
	t.say("  %s %s", paint(t.ErrOut, green, "✓"), name)
	return nil
}

// say tells people something that is not the result of the command.
func (t *tool) say(format string, args ...any) { _, _ = fmt.Fprintf(t.ErrOut, format+"\n", args...) }

// tell writes a line of the result.
func (t *tool) tell(format string, args ...any) { _, _ = fmt.Fprintf(t.Out, format+"\n", args...) }

// cell is a cell of a table.
type cell struct {
	text   string
	colour colour
}

// table prints rows in columns as kubectl does. Colours come after the columns are laid out, so that they take no room.
func table(out io.Writer, header []string, rows [][]cell) {
	widths := make([]int, len(header))
	for i, title := range header {
		widths[i] = len([]rune(title))
	}
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], len([]rune(c.text)))
		}
	}
	line := func(cells []cell) {
		var text strings.Builder
		for i, c := range cells {
			text.WriteString(paint(out, c.colour, c.text))
			if i < len(cells)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-len([]rune(c.text))+3))
			}
		}
		_, _ = fmt.Fprintln(out, strings.TrimRight(text.String(), " "))
	}
	titles := make([]cell, 0, len(header))
	for _, title := range header {
		titles = append(titles, cell{text: title})
	}
	line(titles)
	for _, row := range rows {
		line(row)
	}
}

// ago says how long ago something was, as kubectl does.
func (t *tool) ago(when *metav1.Time) string {
	if when == nil || when.IsZero() {
		return "-"
	}
	return duration.HumanDuration(t.clock.Since(when.Time))
}

// in says how long until something.
func (t *tool) in(when time.Time) string {
	left := when.Sub(t.clock.Now())
	if left < 0 {
		return duration.HumanDuration(-left) + " ago"
	}
	return duration.HumanDuration(left)
}

// printAs prints an object as JSON or YAML.
func (t *tool) printAs(format string, object runtime.Object) error {
	switch format {
	case "json":
		return (&printers.JSONPrinter{}).PrintObj(object, t.Out)
	case "yaml":
		return (&printers.YAMLPrinter{}).PrintObj(object, t.Out)
	}
	return badOutput(format, "json", "yaml")
}

// badOutput refuses a value of -o.
func badOutput(format string, known ...string) error {
	return faultf("use one of "+strings.Join(known, ", "), "the output format %q is not known", format)
}

// ask asks a question whose answer is no unless it is yes. The end of the input is no.
func (t *tool) ask(answers *bufio.Reader, format string, args ...any) bool {
	_, _ = fmt.Fprintf(t.ErrOut, format+" [y/N] ", args...)
	answer, err := answers.ReadString('\n')
	if err != nil {
		t.say("")
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// or returns a text, or a dash for none.
func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
