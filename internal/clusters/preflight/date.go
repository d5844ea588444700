// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net/http"
	"time"
)

// dateKey marks the context of calls whose answers are dated.
type dateKey struct{}

// withDate returns a context whose calls set date to the time of the member, to the second. It stays zero if that is
// unknown.
func withDate(ctx context.Context) (_ context.Context, date *time.Time) {
	date = new(time.Time)
	return context.WithValue(ctx, dateKey{}, date), date
}

// NoteDate notes the time of the member.
func NoteDate(ctx context.Context, now time.Time) {
	if date, ok := ctx.Value(dateKey{}).(*time.Time); ok {
		*date = now
	}
}

// Dated notes the time of the member from each answer, where the caller asks for it.
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
