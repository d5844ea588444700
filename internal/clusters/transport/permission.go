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

// ErrPermissionEnded fails a call whose permission has ended before its response was read. The member may have done what
// it asks for.
var ErrPermissionEnded = errors.New("the right to write to the member has ended")

// permit asks whether a request may be sent, and for how long it may run. Zero sets no limit.
func (t *Transport) permit(req *http.Request) (left time.Duration, err error) {
	if t.Permit == nil {
		return 0, nil
	}
	return t.Permit(req)
}

// withPermission returns req such that it is not sent without permission. A call may wait for a probe, for the network and
// for the credential before any of its bytes leave, so the permission is asked for when a connection is ready and when
// the body is read. A call that has a limit fails when that has passed.
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

// permittedBody is the body of a request that is read only with permission. Without it the request stays incomplete, and
// an API server rejects it.
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
