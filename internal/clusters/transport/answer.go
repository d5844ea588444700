// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// watchAnswerDeadline is how long a watch may wait for its response headers. An API server queues a watch for at most 15
// seconds.
const watchAnswerDeadline = 30 * time.Second

// errUnanswered means that a watch got no response in time.
var errUnanswered error = unansweredError{}

// unansweredError is the type of errUnanswered.
type unansweredError struct{}

// Error implements error.
func (unansweredError) Error() string {
	return fmt.Sprintf("the watch was not answered within %v", watchAnswerDeadline)
}

// Timeout makes clients treat the error as a timeout.
func (unansweredError) Timeout() bool { return true }

// AwaitAnswer sends a watch and cancels it if there are no response headers after watchAnswerDeadline. Otherwise a
// request that was lost by a proxy would wait forever on a healthy connection.
func AwaitAnswer(watch *http.Request, through http.RoundTripper, clk clock.Clock) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(watch.Context())
	done := sync.OnceFunc(func() { cancel(nil) })
	answered := make(chan struct{})
	timer := clk.NewTimer(watchAnswerDeadline)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel(errUnanswered)
		case <-answered:
		case <-ctx.Done():
		}
	}()
	resp, err := through.RoundTrip(watch.WithContext(ctx))
	close(answered)
	if err != nil {
		if errors.Is(context.Cause(ctx), errUnanswered) {
			err = errUnanswered
		}
		done()
		return nil, err
	}
	resp.Body = &callBody{ReadCloser: resp.Body, done: done}
	return resp, nil
}
