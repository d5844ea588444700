// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newConsole returns a console at a fixed time, with what is typed and what is written.
func newConsole(input string) (c *console.Console, out, errOut *bytes.Buffer) {
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	streams := genericiooptions.IOStreams{In: strings.NewReader(input), Out: out, ErrOut: errOut}
	return console.New(streams, clocktesting.NewFakeClock(now)), out, errOut
}

func TestAsk_takes_only_yes_for_an_answer(t *testing.T) {
	c, out, errOut := newConsole("y\nYES \nn\n\nyesterday\n")
	for i, want := range []bool{true, true, false, false, false, false} {
		if got := c.Ask("Delete %d?", i); got != want {
			t.Errorf("answer %d: %t, want %t", i, got, want)
		}
	}
	if out.Len() > 0 || !strings.HasPrefix(errOut.String(), "Delete 0? [y/N] Delete 1? [y/N] ") || !strings.HasSuffix(errOut.String(), "Delete 5? [y/N] \n") {
		t.Errorf("it writes %q and %q", out, errOut)
	}
}

func TestAgo_and_Until(t *testing.T) {
	c, _, _ := newConsole("")
	at := metav1.NewTime(now.Add(-90 * time.Minute))
	for name, test := range map[string]struct{ got, want string }{
		"never":     {c.Ago(nil), "-"},
		"zero":      {c.Ago(&metav1.Time{}), "-"},
		"ago":       {c.Ago(&at), "90m"},
		"until":     {c.Until(now.Add(48 * time.Hour)), "2d"},
		"until now": {c.Until(now), "0s"},
		"over":      {c.Until(at.Time), "90m ago"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %q, want %q", name, test.got, test.want)
		}
	}
}

func TestTable_aligns_columns_by_characters(t *testing.T) {
	c, out, _ := newConsole("")
	c.Table([]string{"OBJECT", "READY", "DETAIL"}, [][]console.Cell{
		{{Text: "└─ Pod a"}, console.Status(metav1.ConditionTrue), {}},
		{{Text: "x"}, console.Status(metav1.ConditionUnknown), {Text: "größer", Colour: console.Red}},
	})
	want := "OBJECT     READY     DETAIL\n└─ Pod a   True\nx          Unknown   größer\n"
	if out.String() != want {
		t.Errorf("it writes\n%s\nwant\n%s", out, want)
	}
}

func TestPaint_colours_only_a_terminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals here: %v", err)
	}
	defer func() { _ = terminal.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for name, test := range map[string]struct {
		stream        any
		noColour, env string
		want          string
	}{
		"a terminal":             {stream: terminal, env: "xterm", want: "\x1b[31mx\x1b[0m"},
		"a terminal, no colours": {stream: terminal, noColour: "1", env: "xterm", want: "x"},
		"a dumb terminal":        {stream: terminal, env: "dumb", want: "x"},
		"a device":               {stream: null, env: "xterm", want: "x"},
		"a buffer":               {stream: &bytes.Buffer{}, env: "xterm", want: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", test.noColour)
			t.Setenv("TERM", test.env)
			if got := console.Paint(test.stream, console.Red, "x"); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
			if got := console.Paint(test.stream, console.Plain, "x"); got != "x" {
				t.Errorf("without a colour it is %q", got)
			}
		})
	}
}

func TestFault_is_one_line_with_the_remedy(t *testing.T) {
	cause := errors.New("one\ntwo")
	err := console.Faultf("do that", "reading: %w", cause)
	if err.Error() != "reading: one two; do that" || !errors.Is(err, cause) {
		t.Errorf("it is %q", err)
	}
	for name, test := range map[string]struct {
		err          error
		what, remedy string
	}{
		"a fault":         {err, "reading: one two", "do that"},
		"a wrapped fault": {fmt.Errorf("around: %w", err), "reading: one two", "do that"},
		"another error":   {cause, "one two", ""},
	} {
		if what, remedy := console.Split(test.err); what != test.what || remedy != test.remedy {
			t.Errorf("%s: %q and %q", name, what, remedy)
		}
	}
}

func TestPrintObject_knows_JSON_and_YAML(t *testing.T) {
	c, out, _ := newConsole("")
	member := &flotillav1.MemberCluster{TypeMeta: metav1.TypeMeta{APIVersion: flotillav1.GroupVersion.String(), Kind: flotillav1.KindMemberCluster}}
	for format, want := range map[string]string{"json": `"kind": "MemberCluster"`, "yaml": "kind: MemberCluster"} {
		out.Reset()
		if err := c.PrintObject(format, member); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
	}
	if err := c.PrintObject("table", member); err == nil || err.Error() != `the output format "table" is not known; use one of json, yaml` {
		t.Errorf("another format: %v", err)
	}
}

func TestCount_and_OrDash(t *testing.T) {
	for n, want := range map[int]string{0: "0 members", 1: "1 member", 2: "2 members"} {
		if got := console.Count(n, "member"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if console.OrDash("") != "-" || console.OrDash("a") != "a" {
		t.Errorf("%q and %q", console.OrDash(""), console.OrDash("a"))
	}
}
