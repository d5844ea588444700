// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redisspec_test

import (
	"testing"

	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

func TestRestartFor_says_what_a_change_does_to_Pods(t *testing.T) {
	// A copy that was stored before a default existed does not have it.
	before := &flotillav1.Redis{Spec: flotillav1.RedisSpec{Replicas: ptr.To[int32](3)}}
	for name, test := range map[string]struct {
		change func(*flotillav1.RedisSpec)
		want   redisspec.Restart
	}{
		"nothing":            {func(*flotillav1.RedisSpec) {}, redisspec.RestartNone},
		"the number of Pods": {func(s *flotillav1.RedisSpec) { s.Replicas = ptr.To[int32](5) }, redisspec.RestartNone},
		"a default":          {func(s *flotillav1.RedisSpec) { s.Port = 6379 }, redisspec.RestartNone},
		"the image":          {func(s *flotillav1.RedisSpec) { s.Image = "redis:8.6" }, redisspec.RestartOneByOne},
		"the port":           {func(s *flotillav1.RedisSpec) { s.Port = 6380 }, redisspec.RestartTogether},
		"auth":               {func(s *flotillav1.RedisSpec) { s.Auth.Mode = "None" }, redisspec.RestartTogether},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			test.change(&after.Spec)
			if got := redisspec.RestartFor(before, after); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}
