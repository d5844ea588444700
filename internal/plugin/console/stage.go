// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// showAfter is how long a stage may take before its progress is shown.
	showAfter = 2 * time.Second
	// repeatAfter is how often progress is shown after that where lines cannot be overwritten.
	repeatAfter = 10 * time.Second
)

// Step is the work of a stage. It may call doing with what it does at the moment, and returns a few words about its result.
type Step func(ctx context.Context, doing func(string)) (result string, err error)

// Stage runs a step, shows its progress if it takes long, and writes a line when it is done.
func (c *Console) Stage(ctx context.Context, name string, step Step) error {
	p := &progress{console: c, current: name, live: isTerminal(c.ErrOut), over: make(chan struct{})}
	var showing sync.WaitGroup
	showing.Go(p.show)
	result, err := step(ctx, func(what string) { p.set(name + ": " + what) })
	close(p.over)
	showing.Wait()
	if p.live {
		_, _ = fmt.Fprint(c.ErrOut, "\r\x1b[K")
	}
	if err != nil {
		c.Notef("  %s %s", Paint(c.ErrOut, Red, "✗"), name)
		return err
	}
	if result != "" {
		name += ": " + result
	}
	c.Notef("  %s %s", Paint(c.ErrOut, Green, "✓"), name)
	return nil
}

// progress shows what a stage does until it is over.
type progress struct {
	console *Console
	// live is set on a terminal, where one line is overwritten.
	live bool
	over chan struct{}

	mu      sync.Mutex
	current string
}

func (p *progress) set(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = what
}

func (p *progress) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *progress) show() {
	format, wait := "  … %s\n", showAfter
	if p.live {
		format = "\r\x1b[K  … %s"
	}
	for {
		timer := p.console.Clock.NewTimer(wait)
		select {
		case <-p.over:
			timer.Stop()
			return
		case <-timer.C():
		}
		_, _ = fmt.Fprintf(p.console.ErrOut, format, p.get())
		if !p.live {
			wait = repeatAfter
		}
	}
}
