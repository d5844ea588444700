// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package helmtestserver is empty. Only tests of source-controller import it, which are not run here.
package helmtestserver
