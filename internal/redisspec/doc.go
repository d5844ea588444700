// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redisspec interprets the spec of a Redis: its defaults, the hash by which Pods are compared with it, and
// which Pods a change restarts. It is pure, so that kubectl flotilla can announce what the manager will do.
package redisspec
