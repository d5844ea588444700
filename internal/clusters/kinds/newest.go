// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"strconv"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
)

// Change is a change of an object, as a cache received it.
type Change struct {
	Namespace, Name string
	// Revision is the resource version that the object got by the change; 0 means that there was no change.
	Revision uint64
	// Deleted means that the object has gone, or is not selected any more.
	Deleted bool
}

// newestKey is the context key of a function that returns the newest change that the cache of a watch received.
type newestKey struct{}

// WithNewest returns the context of a watch that carries the newest change that its cache has received.
func WithNewest(ctx context.Context, newest func() Change) context.Context {
	return context.WithValue(ctx, newestKey{}, newest)
}

// Newest returns the newest change that the cache of a watch has received.
func Newest(ctx context.Context) Change {
	if newest, ok := ctx.Value(newestKey{}).(func() Change); ok {
		return newest()
	}
	return Change{}
}

// note remembers a change if it is the newest one. The caller must hold mu.
func (i *informer) note(object any, deleted bool) {
	// What is missing from a list has no revision of its own.
	meta, err := apimeta.Accessor(object)
	if err != nil {
		return
	}
	revision, err := strconv.ParseUint(meta.GetResourceVersion(), 10, 64)
	if err == nil && revision > i.newest.Revision {
		i.newest = Change{Namespace: meta.GetNamespace(), Name: meta.GetName(), Revision: revision, Deleted: deleted}
	}
}

// newestChange returns the newest change that the cache has received.
func (i *informer) newestChange() Change {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.newest
}
