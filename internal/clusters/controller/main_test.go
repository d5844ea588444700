// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"os"
	"testing"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// realMember is a real API server.
var realMember *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &realMember)) }
