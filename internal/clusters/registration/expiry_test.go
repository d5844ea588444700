// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/base64"
	"testing"
	"time"
)

func TestCredential_stage(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		issued, expires, now time.Time
		want                 Stage
	}{
		"without an end":                {now: noon, want: StageValid},
		"before the last fifth":         {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(8*time.Hour - 1), want: StageValid},
		"in the last fifth":             {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(8 * time.Hour), want: StageEndsSoon},
		"a moment before the end":       {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(10*time.Hour - 1), want: StageEndsSoon},
		"at the end":                    {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(10 * time.Hour), want: StageEnded},
		"eight days, beginning unknown": {expires: noon.Add(8 * 24 * time.Hour), now: noon, want: StageValid},
		"six days, beginning unknown":   {expires: noon.Add(6 * 24 * time.Hour), now: noon, want: StageEndsSoon},
		"a beginning after the end":     {issued: noon.Add(30 * 24 * time.Hour), expires: noon.Add(6 * 24 * time.Hour), now: noon, want: StageEndsSoon},
		"centuries":                     {issued: noon, expires: noon.AddDate(7000, 0, 0), now: noon, want: StageValid},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Credential{issued: tc.issued, expires: tc.expires}
			if got := c.Stage(tc.now); got != tc.want {
				t.Errorf("got stage %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTokenLifetime(t *testing.T) {
	for name, tc := range map[string]struct {
		claims              string
		wantIssued, wantEnd int64
	}{
		"both":            {claims: `{"iat":1000,"exp":2000}`, wantIssued: 1000, wantEnd: 2000},
		"not before":      {claims: `{"nbf":1000,"exp":2000.9}`, wantIssued: 1000, wantEnd: 2000},
		"no end":          {claims: `{"iat":1000}`, wantIssued: 1000},
		"the year 10000":  {claims: `{"exp":253402300800}`},
		"before all time": {claims: `{"exp":-1}`},
		"text":            {claims: `{"exp":"2000"}`},
		"no JSON":         {claims: `exp`},
	} {
		t.Run(name, func(t *testing.T) {
			issued, end := TokenLifetime("e30." + base64.RawURLEncoding.EncodeToString([]byte(tc.claims)) + ".c2ln")
			for _, x := range []struct {
				got  time.Time
				want int64
			}{{issued, tc.wantIssued}, {end, tc.wantEnd}} {
				if (x.want == 0) != x.got.IsZero() || (x.want != 0 && x.got.Unix() != x.want) {
					t.Errorf("got %s and %s", issued, end)
				}
			}
		})
	}
}
