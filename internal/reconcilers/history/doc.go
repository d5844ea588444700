// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history keeps the last specs of placed hub objects as ControllerRevisions, so that a person can go back to one.
// It reads and writes on the hub only, and nothing waits for it.
package history
