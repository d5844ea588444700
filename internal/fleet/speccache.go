// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// SpecCache caches the Specs of hub objects by generation, so that they are computed once for all copies. The zero value is
// empty.
type SpecCache struct {
	mu    sync.Mutex
	known map[ObjectKey]cachedSpecs
}

type cachedSpecs struct {
	uid        types.UID
	generation int64
	specs      *Specs
	err        error
}

// Of returns the Specs of a hub object, as NewSpecs does. The result is shared and must not be modified.
func (c *SpecCache) Of(kind Kind, object Object) (*Specs, error) {
	key := ObjectKey{Kind: kind.Name, Object: types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, found := c.known[key]
	if found && known.uid == object.GetUID() && known.generation == object.GetGeneration() {
		return known.specs, known.err
	}
	known = cachedSpecs{uid: object.GetUID(), generation: object.GetGeneration()}
	known.specs, known.err = NewSpecs(kind, object)
	if c.known == nil {
		c.known = map[ObjectKey]cachedSpecs{}
	}
	c.known[key] = known
	return known.specs, known.err
}

// Forget deletes the Specs of an object.
func (c *SpecCache) Forget(key ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}
