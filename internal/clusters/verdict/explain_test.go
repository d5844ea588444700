// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestExplain_tells_nonsense_from_silence(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a malformed version":       {fmt.Errorf("reading the version: %w", errors.New("malformed version")), "does not answer like an API server"},
		"an object that is no JSON": {fmt.Errorf("reading the identity: %w", &json.SyntaxError{Offset: 3}), "does not answer like an API server"},
		"a connection that broke":   {&url.Error{Op: "Get", Err: errors.New("http2: client connection lost")}, "cannot be reached"},
		"an answer that broke off":  {fmt.Errorf("reading the version: %w", io.ErrUnexpectedEOF), "cannot be reached"},
	} {
		if got := Explain(tc.err); got.Reason != flotillav1.ReasonProbeFailed || !strings.Contains(got.Message, tc.want) {
			t.Errorf("%s: got %+v, want %q", name, got, tc.want)
		}
	}
}
