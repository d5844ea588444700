// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"
)

// ErrPermissionEnded is returned for a call whose permission ended before its response was read. The member may still have
// executed the request.
var ErrPermissionEnded = errors.New("the right to write to the member has ended")

// permit returns an error if a request must not be sent, and otherwise how long it may take. Zero means no limit.
func (t *Transport) permit(req *http.Request) (left time.Duration, err error) {
	if t.Permit == nil {
		return 0, nil
	}
	return t.Permit(req)
}

// withPermission returns a request like req that is not sent without permission. A call may wait for a probe, a connection and
// the credential before its first byte is sent, so the permission is checked when a connection is available and whenever
// the body is read. A call with a limit fails once the limit has passed.
func (t *Transport) withPermission(req *http.Request, c *pendingCall) (*http.Request, error) {
	left, err := t.permit(req)
	if err != nil || left == 0 {
		return req, err
	}
	c.ends = time.AfterFunc(left, func() { c.fail(ErrPermissionEnded) })
	check := func() error {
		_, err := t.permit(req)
		if err != nil {
			c.fail(err)
		}
		return err
	}
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { _ = check() }})
	permitted := req.WithContext(ctx)
	if req.Body == nil {
		return permitted, nil
	}
	permitted.Body = &permittedBody{ReadCloser: req.Body, check: check}
	if again := req.GetBody; again != nil {
		permitted.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			if err != nil {
				return nil, err
			}
			return &permittedBody{ReadCloser: body, check: check}, nil
		}
	}
	return permitted, nil
}

// permittedBody is the body of a request that can be read only with permission. Without permission the request remains
// incomplete, and the API server rejects it.
type permittedBody struct {
	io.ReadCloser

	check func() error
	read  bool
}

// Read implements io.Reader.
func (b *permittedBody) Read(p []byte) (int, error) {
	if !b.read {
		if err := b.check(); err != nil {
			return 0, err
		}
		b.read = true
	}
	return b.ReadCloser.Read(p)
}
