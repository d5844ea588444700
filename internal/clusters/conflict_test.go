// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

func TestRetryOnConflict(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("it has changed"))
	late := fmt.Errorf("patching: %w", context.DeadlineExceeded)
	for name, tc := range map[string]struct {
		answers []error
		want    error
		calls   int
	}{
		"done":                       {[]error{nil}, nil, 1},
		"done after a conflict":      {[]error{conflict, nil}, nil, 2},
		"conflicts only":             {[]error{conflict, conflict, conflict, nil}, conflict, 3},
		"no answer":                  {[]error{late}, late, 1},
		"no answer after a conflict": {[]error{conflict, late}, late, 2},
		"canceled":                   {[]error{context.Canceled}, context.Canceled, 1},
	} {
		calls := 0
		err := clusters.RetryOnConflict(wait.Backoff{Steps: 3}, func() error {
			calls++
			return tc.answers[calls-1]
		})
		if !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) || calls != tc.calls {
			t.Errorf("%s: got %v after %d calls, want %v after %d", name, err, calls, tc.want, tc.calls)
		}
	}
}
