// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Versions stores the resource versions of the last writes of hub objects, so that a pass can tell whether its cache shows
// them. Losing them only costs writes that fail. The zero value is empty.
type Versions struct {
	mu       sync.Mutex
	byObject map[ObjectKey]version
}

type version struct {
	uid             types.UID
	resourceVersion string
}

// Wrote records the resource version of an object as returned by a write.
func (v *Versions) Wrote(key ObjectKey, object client.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byObject == nil {
		v.byObject = map[ObjectKey]version{}
	}
	v.byObject[key] = version{uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}
}

// Predates reports whether a cached object is older than the last write.
func (v *Versions) Predates(key ObjectKey, object client.Object) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, written := v.byObject[key]
	if !written || last.uid != object.GetUID() {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last.resourceVersion)
	return err == nil && order < 0
}

// Forget removes an object.
func (v *Versions) Forget(key ObjectKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byObject, key)
}
