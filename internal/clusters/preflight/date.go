// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net/http"
	"time"
)

// dateKey is the context key of the variable that receives the date of responses.
type dateKey struct{}

// withDate returns a context whose calls set date to the time of the member, to the second. date stays zero if no response
// has one.
func withDate(ctx context.Context) (_ context.Context, date *time.Time) {
	date = new(time.Time)
	return context.WithValue(ctx, dateKey{}, date), date
}

// NoteDate stores the time of the member if the context asks for it.
func NoteDate(ctx context.Context, now time.Time) {
	if date, ok := ctx.Value(dateKey{}).(*time.Time); ok {
		*date = now
	}
}

// Dated wraps a transport so that the Date header of each response is stored if the context of the request asks for it.
type Dated struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d Dated) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if now, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		NoteDate(req.Context(), now)
	}
	return resp, nil
}
