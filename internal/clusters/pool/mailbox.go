// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"runtime/debug"
)

// mailbox delivers signals and results to the goroutine of a member.
type mailbox struct {
	// changed is signalled when the wanted state has changed, kicks when a probe is requested. Each buffers one
	// signal.
	changed, kicks chan struct{}
	// outcomes carries functions that run on the member's goroutine.
	outcomes chan func()
	// done is closed when the member's goroutine has ended.
	done chan struct{}
}

func newMailbox() mailbox {
	return mailbox{
		changed: make(chan struct{}, 1), kicks: make(chan struct{}, 1), outcomes: make(chan func()), done: make(chan struct{}),
	}
}

// signal sends without blocking. A signal that is already pending is enough.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// spawn runs job on its own goroutine, and the function that job returns on the member's goroutine. A panic of job is
// raised again on the member's goroutine. If that goroutine has ended, cleanup runs instead of the outcome.
func (b *mailbox) spawn(job func() func(), cleanup ...func()) {
	go func() {
		if b.hand(guarded(job)) {
			return
		}
		for _, clean := range cleanup {
			clean()
		}
	}()
}

// hand runs outcome on the member's goroutine. It returns true once that goroutine has received it, and false if it has
// ended.
func (b *mailbox) hand(outcome func()) bool {
	select {
	case b.outcomes <- outcome:
		return true
	case <-b.done:
		return false
	}
}

// guarded runs job and converts a panic into an outcome that panics.
func guarded(job func() func()) (outcome func()) {
	defer func() {
		if r := recover(); r != nil {
			stack := debug.Stack()
			outcome = func() { panic(fmt.Sprintf("%v\n%s", r, stack)) }
		}
	}()
	return job()
}
