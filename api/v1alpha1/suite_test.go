// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

var server *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &server)) }

// expectAnswer creates an object, dry, and compares the answer: an empty want means accepted, else the message must
// contain it.
func expectAnswer(t *testing.T, object client.Object, want string) {
	t.Helper()
	err := server.Client.Create(t.Context(), object, client.DryRunAll)
	compareAnswer(t, err, want)
}

func compareAnswer(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted, want a refusal that says %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with %q, want it to say %q", err, want)
	}
}
