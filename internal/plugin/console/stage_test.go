// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

func TestStage_says_how_it_ended(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		result string
		err    error
		want   string
	}{
		"with a result":    {result: "3 objects", want: "  ✓ apply: 3 objects\n"},
		"without a result": {want: "  ✓ apply\n"},
		"with an error":    {result: "3 objects", err: refused, want: "  ✗ apply\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, out, errOut := newConsole("")
			err := c.Stage(t.Context(), "apply", func(context.Context, func(string)) (string, error) { return test.result, test.err })
			if !errors.Is(err, test.err) || out.Len() > 0 || errOut.String() != test.want {
				t.Errorf("it returns %v and writes %q and %q, want %q", err, out, errOut, test.want)
			}
		})
	}
}

// lines passes on what is written, write by write.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestStage_shows_what_takes_long(t *testing.T) {
	clk, written := clocktesting.NewFakeClock(now), make(lines)
	c := console.New(genericiooptions.IOStreams{ErrOut: written}, clk)
	connect, finish := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- c.Stage(t.Context(), "hub", func(_ context.Context, doing func(string)) (string, error) {
			<-connect
			doing("Connecting")
			connect <- struct{}{}
			<-finish
			return "", nil
		})
	}()
	after := func(passed time.Duration, want string) {
		t.Helper()
		for !clk.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clk.Step(passed)
		if line := <-written; line != want {
			t.Errorf("after another %s it writes %q, want %q", passed, line, want)
		}
	}
	after(2*time.Second, "  … hub\n")
	connect <- struct{}{}
	<-connect
	after(10*time.Second, "  … hub: Connecting\n")
	close(finish)
	if line := <-written; line != "  ✓ hub\n" {
		t.Errorf("in the end it writes %q", line)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
