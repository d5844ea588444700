// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// RetryOnConflict calls fn again after a conflict, and returns the error of the last call. The function of client-go with
// that name returns nil if the last call missed its deadline.
func RetryOnConflict(backoff wait.Backoff, fn func() error) error {
	var last error
	_ = retry.RetryOnConflict(backoff, func() error {
		last = fn()
		return last
	})
	return last
}
