// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// recountPause is how long a count of the caches is put off, so that there are few and what is on its way has arrived.
const recountPause = 5 * time.Second

// footprint limits what is cached of a member. Counting each object as it comes gives an upper bound, because changes and
// deletions count too; only when that passes the limit is it counted what is really there.
type footprint struct {
	limits   Limits
	clock    clock.WithTicker
	lifetime context.Context //nolint:containedctx // It ends counts that are put off.
	exceeded func(error)

	objects, bytes atomic.Int64
	counting       atomic.Bool
	// stores are set once they are filled.
	stores atomic.Pointer[[]toolscache.Store]
}

// counted counts what a transform has shortened.
func (f *footprint) counted(transform toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		object, err := transform(object)
		if err == nil {
			f.add(1, encodedSize(object))
		}
		return object, err
	}
}

// add raises the bound and has the caches counted when it passes the limit.
func (f *footprint) add(objects, bytes int64) {
	over := f.objects.Add(objects) > f.limits.CachedObjects
	over = f.bytes.Add(bytes) > f.limits.CachedBytes || over
	if !over || f.stores.Load() == nil || !f.counting.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer f.counting.Store(false)
		timer := f.clock.NewTimer(recountPause)
		defer timer.Stop()
		select {
		case <-f.lifetime.Done():
		case <-timer.C():
			if refused := f.count(); refused != nil {
				f.exceeded(refused)
			}
		}
	}()
}

// fill hands over the stores when they have been filled, and counts them.
func (f *footprint) fill(stores []toolscache.Store) error {
	f.stores.Store(&stores)
	if refused := f.count(); refused != nil {
		return refused
	}
	return nil
}

// count counts what is cached and returns why it is too much.
func (f *footprint) count() *refusal {
	objectsBound, bytesBound := f.objects.Load(), f.bytes.Load()
	var objects, bytes int64
	for _, store := range *f.stores.Load() {
		list := store.List()
		objects += int64(len(list))
		for _, object := range list {
			bytes += encodedSize(object)
		}
	}
	// What came in meanwhile stays counted.
	f.objects.Add(objects - objectsBound)
	f.bytes.Add(bytes - bytesBound)
	switch {
	case objects > f.limits.CachedObjects:
		return refuseLimit("The member has more than %d objects of the watched kinds", f.limits.CachedObjects)
	case bytes > f.limits.CachedBytes:
		return refuseLimit("The objects of the watched kinds are larger than %d MiB together", f.limits.CachedBytes>>20)
	}
	return nil
}

// stored is how many objects the caches hold; nothing before they have been filled.
func (f *footprint) stored() (objects int) {
	stores := f.stores.Load()
	if stores == nil {
		return 0
	}
	for _, store := range *stores {
		objects += len(store.ListKeys())
	}
	return objects
}

// encodedSize is about how large an object is.
func encodedSize(object any) int64 {
	if sized, ok := object.(interface{ Size() int }); ok {
		return int64(sized.Size())
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		return 0
	}
	return int64(len(encoded))
}
