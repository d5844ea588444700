// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// causeKey is the key of the Cause in a context.
type causeKey struct{}

// Cause identifies the object that causes a write to a member.
type Cause struct {
	UID        types.UID
	Generation int64
}

// CausedBy returns a context for work on behalf of an object: the hub object that placement places, or the member's
// object that is being reconciled. Every write with that context names the object in the audit log of the member.
func CausedBy(ctx context.Context, object client.Object) context.Context {
	return context.WithValue(ctx, causeKey{}, Cause{UID: object.GetUID(), Generation: object.GetGeneration()})
}

// CauseOf returns the Cause in ctx, if any.
func CauseOf(ctx context.Context) (Cause, bool) {
	cause, known := ctx.Value(causeKey{}).(Cause)
	return cause, known
}
