// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
)

func TestIsWord(t *testing.T) {
	for text, want := range map[string]bool{
		"v1.36.0-gke.1+build": true, "0e5d8a2c-2f9c-4c0f-9d8b-3d5b0b6d2a11": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "v1.36.0 beta": false, "v1.36.0\x1b[31m": false, "v1.36.0\n": false,
		"v1.36.0\u202e": false, "v1\xff": false, "v1\x00": false, "v1\x7f": false,
	} {
		if got := IsWord(text); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
}
