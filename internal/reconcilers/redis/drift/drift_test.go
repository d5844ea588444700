// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBetween_names_the_fields(t *testing.T) {
	type object = map[string]any
	type array = []any
	for name, tc := range map[string]struct {
		have, want any
		paths      []string
	}{
		"a value":              {object{"spec": object{"replicas": 1}}, object{"spec": object{"replicas": 2}}, []string{"spec.replicas"}},
		"a key with a dot":     {object{"labels": object{}}, object{"labels": object{"a.b/c": "d"}}, []string{"labels[a.b/c]"}},
		"what is above":        {object{}, object{"labels": object{"a": "b", "c": "d"}}, []string{"labels"}},
		"an element by key":    {object{"containers": array{object{"name": "b", "image": "x"}}}, object{"containers": array{object{"name": "b", "image": "y"}}}, []string{"containers[b].image"}},
		"a missing element":    {object{"containers": array{}}, object{"containers": array{object{"name": "b"}}}, []string{"containers[b]"}},
		"an element by number": {object{"command": array{"a", "b"}}, object{"command": array{"a", "c"}}, []string{"command[1]"}},
		"another length":       {object{"command": array{"a"}}, object{"command": array{"a", "c"}}, []string{"command"}},
		"several, in order":    {object{"a": 1, "b": 1}, object{"b": 2, "a": 2}, []string{"a", "b"}},
		"what others add":      {object{"a": 1, "b": 1}, object{"a": 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			for _, d := range uncovered("", tc.have, tc.want) {
				paths = append(paths, d.Path)
			}
			if diff := cmp.Diff(tc.paths, paths); diff != "" {
				t.Errorf("paths differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCovers(t *testing.T) {
	type object = map[string]any
	type array = []any
	for name, tc := range map[string]struct {
		have, want any
		covered    bool
	}{
		"equal":                         {object{"a": int64(1)}, object{"a": int64(1)}, true},
		"more than ours":                {object{"a": "x", "b": "y"}, object{"a": "x"}, true},
		"less than ours":                {object{}, object{"a": "x"}, false},
		"an empty object and none":      {object{}, object{"a": object{}}, true},
		"keyed elements of others":      {array{object{"name": "a"}, object{"name": "b", "x": "1"}}, array{object{"name": "b"}}, true},
		"a keyed element changed":       {array{object{"name": "b", "x": "1"}}, array{object{"name": "b", "x": "2"}}, false},
		"one volume mounted twice":      {array{object{"name": "v", "mountPath": "/a"}, object{"name": "v", "mountPath": "/b"}}, array{object{"name": "v", "mountPath": "/b"}}, true},
		"a longer list without keys":    {array{"a", "b"}, array{"a"}, false},
		"another order without keys":    {array{"a", "b"}, array{"b", "a"}, false},
		"a list where none should be":   {array{"a"}, array{}, false},
		"a scalar where an object goes": {"x", object{"a": "b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Covers(tc.have, tc.want); got != tc.covered {
				t.Errorf("covers is %t, want %t", got, tc.covered)
			}
		})
	}
}
