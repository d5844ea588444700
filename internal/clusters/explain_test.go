// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
		"a version that is none":    {fmt.Errorf("reading the version: %w", errors.New("the version is not one")), "answers, but not as one does"},
		"an object that is no JSON": {fmt.Errorf("reading the identity: %w", &json.SyntaxError{Offset: 3}), "answers, but not as one does"},
		"a connection that broke":   {&url.Error{Op: "Get", Err: errors.New("http2: client connection lost")}, "cannot be reached"},
		"an answer that broke off":  {fmt.Errorf("reading the version: %w", io.ErrUnexpectedEOF), "cannot be reached"},
	} {
		if got := explain(tc.err); got.reason != flotillav1.ReasonProbeFailed || !strings.Contains(got.message, tc.want) {
			t.Errorf("%s: got %+v, want %q", name, got, tc.want)
		}
	}
}
