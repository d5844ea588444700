// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package console is the user interface of kubectl flotilla: streams, colours, tables, progress, questions, and errors with
// a remedy. It knows nothing about clusters.
package console

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

// Console is where a command reads its input from and writes its output to.
type Console struct {
	genericiooptions.IOStreams
	Clock clock.Clock

	answers *bufio.Reader
}

// New returns a Console.
func New(streams genericiooptions.IOStreams, clk clock.Clock) *Console {
	return &Console{IOStreams: streams, Clock: clk, answers: bufio.NewReader(streams.In)}
}

// Resultf writes a line of the result.
func (c *Console) Resultf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Out, format+"\n", args...)
}

// Notef writes a line that is not part of the result.
func (c *Console) Notef(format string, args ...any) {
	_, _ = fmt.Fprintf(c.ErrOut, format+"\n", args...)
}

// Ask asks a question and reports whether the answer is yes. The end of the input is no.
func (c *Console) Ask(format string, args ...any) bool {
	_, _ = fmt.Fprintf(c.ErrOut, format+" [y/N] ", args...)
	answer, err := c.answers.ReadString('\n')
	if err != nil {
		c.Notef("")
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// PrintObject writes an object as JSON or YAML.
func (c *Console) PrintObject(format string, object runtime.Object) error {
	switch format {
	case "json":
		return (&printers.JSONPrinter{}).PrintObj(object, c.Out)
	case "yaml":
		return (&printers.YAMLPrinter{}).PrintObj(object, c.Out)
	}
	return BadOutput(format, "json", "yaml")
}

// PrintValue writes a value as JSON or YAML.
func (c *Console) PrintValue(format string, value any) error {
	encoded, err := json.MarshalIndent(value, "", "    ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	switch format {
	case "json":
		encoded = append(encoded, '\n')
	case "yaml":
		if encoded, err = yaml.JSONToYAML(encoded); err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
	default:
		return BadOutput(format, "json", "yaml")
	}
	_, err = c.Out.Write(encoded)
	return err
}

// Ago returns how long ago a time was, as kubectl shows it, or a dash for none.
func (c *Console) Ago(when *metav1.Time) string {
	if when == nil || when.IsZero() {
		return "-"
	}
	return duration.HumanDuration(c.Clock.Since(when.Time))
}

// Until returns how long it is until a time, as kubectl shows it.
func (c *Console) Until(when time.Time) string {
	left := when.Sub(c.Clock.Now())
	if left < 0 {
		return duration.HumanDuration(-left) + " ago"
	}
	return duration.HumanDuration(left)
}

// IsTerminal reports whether the result is written to a terminal.
func (c *Console) IsTerminal() bool { return isTerminal(c.Out) }

// Clear clears the terminal that the result is written to.
func (c *Console) Clear() { _, _ = fmt.Fprint(c.Out, "\x1b[H\x1b[2J") }

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Count returns a number of things: 1 member, 2 members.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// OrDash returns a text, or a dash for none.
func OrDash(text string) string { return cmp.Or(text, "-") }
