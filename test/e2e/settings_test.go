// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// settings say which clusters the suite runs on.
type settings struct {
	// dir is where hack/e2e.sh has its clusters; empty when the clusters were given.
	dir string
	// hub and members are kubeconfig files; a member is registered under the name of its file.
	hub     string
	members []string
	// image is what every Redis starts with, next what it is updated to, missing one that no node can have.
	image, next, missing string
	// redis8 is an image of Redis 8, valkey one of Valkey, proxy one of HAProxy, proxy3 one of HAProxy 3; empty when there is
	// none.
	redis8, valkey, proxy, proxy3 string
	// cut is how long the hub is cut off, idle how long nothing may be written when nothing happens.
	cut, idle time.Duration
	// rounds is how often each contender of a comparison is broken in each way.
	rounds int
	// times is how often TestSentinel repeats what is measured, if that is more than usual.
	times int
}

func load(t *testing.T) settings {
	t.Helper()
	s := settings{
		image:   cmp.Or(os.Getenv("E2E_IMAGE"), "localhost/redis:e2e"),
		next:    cmp.Or(os.Getenv("E2E_IMAGE_NEXT"), "localhost/redis:next"),
		missing: cmp.Or(os.Getenv("E2E_IMAGE_MISSING"), "localhost/redis:missing"),
	}
	s.cut, s.idle = duration(t, "E2E_CUT", "5m"), duration(t, "E2E_IDLE", "10m")
	s.rounds, s.times = number(t, "E2E_ROUNDS", "5"), number(t, "E2E_TIMES", "1")
	if s.hub = os.Getenv("E2E_HUB"); s.hub != "" {
		s.members = strings.Split(os.Getenv("E2E_MEMBERS"), ",")
	} else {
		s.dir = cmp.Or(os.Getenv("E2E_DIR"), filepath.Join("..", "..", ".e2e"))
		s.hub = filepath.Join(s.dir, "kubeconfigs", "hub")
		s.members = []string{filepath.Join(s.dir, "kubeconfigs", "member-1"), filepath.Join(s.dir, "kubeconfigs", "member-2")}
		s.redis8, s.valkey = packed(s.dir, "redis8", "localhost/redis:8"), packed(s.dir, "valkey", "localhost/valkey:e2e")
		s.proxy, s.proxy3 = packed(s.dir, "haproxy", "localhost/haproxy:e2e"), packed(s.dir, "haproxy3", "localhost/haproxy:3")
	}
	s.proxy = cmp.Or(os.Getenv("E2E_IMAGE_HAPROXY"), s.proxy)
	s.proxy3 = cmp.Or(os.Getenv("E2E_IMAGE_HAPROXY3"), s.proxy3)
	s.redis8 = cmp.Or(os.Getenv("E2E_IMAGE_REDIS8"), s.redis8)
	s.valkey = cmp.Or(os.Getenv("E2E_IMAGE_VALKEY"), s.valkey)
	if len(s.members) != 2 {
		t.Fatalf("the suite needs a hub and two members: E2E_HUB=<kubeconfig> E2E_MEMBERS=<kubeconfig>,<kubeconfig>")
	}
	return s
}

// packed returns an image if hack/e2e-images.sh has packed it.
func packed(dir, name, image string) string {
	if _, err := os.Stat(filepath.Join(dir, "images", name+".tar")); err != nil {
		return ""
	}
	return image
}

func number(t *testing.T, variable, otherwise string) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), otherwise))
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want a number", variable, os.Getenv(variable))
	}
	return n
}

func duration(t *testing.T, variable, otherwise string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv(variable), otherwise))
	if err != nil {
		t.Fatalf("reading %s: %v", variable, err)
	}
	return d
}

// ours tells whether the machines below the clusters are ours to break.
func (s settings) ours() bool { return s.dir != "" }
