// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"encoding/json"
	"reflect"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// recountPause delays a count of the caches, so that counts are rare and objects in flight have arrived.
const recountPause = 5 * time.Second

// memoryFactor is how many times CachedBytes the cached objects may need in memory. Small objects need several times the
// size that they have encoded.
const memoryFactor = 2

// fillingFactor is how many times a limit the bound may reach before the caches are filled. A list that is read again
// counts twice until the next count.
const fillingFactor = 2

// footprint limits the size of a member's caches. It maintains an upper bound by counting every object received,
// updates and deletions included. The cached objects are counted only when the bound exceeds a limit.
type footprint struct {
	limits   transport.Limits
	clock    clock.WithTicker
	lifetime context.Context //nolint:containedctx // It cancels delayed counts.
	exceeded func(error)
	// listing reports whether a list is being read. ledger is that of all members; nil does without.
	listing func() bool
	ledger  *ledger
	account account

	objects, bytes, memory atomic.Int64
	counting               atomic.Bool
	// stores is set once the stores exist, and filled once they are filled.
	stores atomic.Pointer[[]toolscache.Store]
	filled atomic.Bool
}

// errNameless is returned for an object without a name.
var errNameless = verdict.RefuseLimit("The member delivers objects without a name")

// counted wraps transform so that the objects it returns are added to the bound. Objects without a name all have the same
// key, so that counting the stores would miss them; API servers do not store any.
func (f *footprint) counted(transform toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		object, err := transform(object)
		if err != nil {
			return object, err
		}
		if meta, isObject := object.(metav1.Object); isObject && meta.GetName() == "" {
			f.exceeded(errNameless)
			return nil, errNameless
		}
		f.add(1, encodedSize(object), memorySize(object))
		if f.ledger != nil {
			f.ledger.relieve()
		}
		return object, nil
	}
}

// add raises the bound and schedules a count when the bound exceeds a limit. It refuses the member immediately if the
// caches are not filled and the bound is far beyond.
func (f *footprint) add(objects, bytes, memory int64) {
	f.book(memory)
	objects, bytes, memory = f.objects.Add(objects), f.bytes.Add(bytes), f.memory.Add(memory)
	if f.refusal(objects, bytes, memory, 1) == nil {
		return
	}
	if !f.filled.Load() {
		if refused := f.refusal(objects, bytes, memory, fillingFactor); refused != nil {
			f.exceeded(refused)
			return
		}
	}
	if f.stores.Load() == nil || !f.counting.CompareAndSwap(false, true) {
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

// follow sets the stores, which need not be filled.
func (f *footprint) follow(stores []toolscache.Store) { f.stores.Store(&stores) }

// fill sets the stores once they are filled, and counts them.
func (f *footprint) fill(stores []toolscache.Store) error {
	f.follow(stores)
	f.filled.Store(true)
	if refused := f.count(); refused != nil {
		return refused
	}
	return nil
}

// count counts the cached objects and returns a refusal when they exceed a limit.
func (f *footprint) count() *verdict.Refusal {
	objectsBound, bytesBound, memoryBound := f.objects.Load(), f.bytes.Load(), f.memory.Load()
	booked, listing := f.booked(), f.listing != nil && f.listing()
	var objects, bytes, memory int64
	for _, store := range *f.stores.Load() {
		list := store.List()
		objects += int64(len(list))
		for _, object := range list {
			bytes += encodedSize(object)
			memory += memorySize(object)
		}
	}
	// Objects received in the meantime stay in the bound, and so do those of a list that is not in the stores yet.
	if !listing {
		f.objects.Add(objects - objectsBound)
		f.bytes.Add(bytes - bytesBound)
		f.memory.Add(memory - memoryBound)
		f.book(memory - booked)
	}
	return f.refusal(objects, bytes, memory, 1)
}

// refusal returns a refusal if the numbers exceed factor times a limit, or nil.
func (f *footprint) refusal(objects, bytes, memory, factor int64) *verdict.Refusal {
	switch {
	case objects > factor*f.limits.CachedObjects:
		return verdict.RefuseLimit("The member has more than %d objects of the watched kinds", f.limits.CachedObjects)
	case bytes > factor*f.limits.CachedBytes:
		return verdict.RefuseLimit("The objects of the watched kinds are larger than %d MiB together", f.limits.CachedBytes>>20)
	case memory > factor*memoryFactor*f.limits.CachedBytes:
		return verdict.RefuseLimit("The objects of the watched kinds need more than %d MiB of memory together", memoryFactor*f.limits.CachedBytes>>20)
	}
	return nil
}

// stored returns the number of cached objects; zero before the caches are filled.
func (f *footprint) stored() (objects int) {
	stores := f.stores.Load()
	if !f.filled.Load() {
		return 0
	}
	for _, store := range *stores {
		objects += len(store.ListKeys())
	}
	return objects
}

// encodedSize returns the approximate size of an object.
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

// memorySize returns the approximate size of an object in memory. What objects share is counted for each of them.
func memorySize(object any) int64 {
	value := reflect.ValueOf(object)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return 0
	}
	return int64(value.Type().Elem().Size()) + referenced(value.Elem())
}

// referenced returns the size of what a value refers to.
func referenced(value reflect.Value) (size int64) {
	switch value.Kind() {
	case reflect.String:
		return int64(value.Len())
	case reflect.Pointer:
		if !value.IsNil() {
			return int64(value.Type().Elem().Size()) + referenced(value.Elem())
		}
	case reflect.Slice:
		size = int64(value.Cap()) * int64(value.Type().Elem().Size())
		if refers(value.Type().Elem()) {
			for i := range value.Len() {
				size += referenced(value.Index(i))
			}
		}
	case reflect.Map:
		// Maps are at most 7/8 full, and half of that after they have grown.
		size = int64(value.Len()) * int64(value.Type().Key().Size()+value.Type().Elem().Size()) * 3 / 2
		for entries := value.MapRange(); entries.Next(); {
			size += referenced(entries.Key()) + referenced(entries.Value())
		}
	case reflect.Struct:
		for i := range value.NumField() { //nolint:modernize // Fields() describes each field as well, in several times this time.
			if field := value.Field(i); field.CanInterface() {
				size += referenced(field)
			}
		}
	}
	return size
}

// refers reports whether values of a type may refer to memory.
func refers(kind reflect.Type) bool {
	switch kind.Kind() {
	case reflect.String, reflect.Pointer, reflect.Slice, reflect.Map, reflect.Struct:
		return true
	default:
		return false
	}
}
