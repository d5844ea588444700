// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics provides the metrics of each member. The series are created when the member is registered, so that
// counters start at 0, and deleted when it is offboarded; later observations do not recreate them.
package metrics
