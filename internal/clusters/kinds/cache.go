// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// kindCache is the cache of a member without the kinds that are off there, because watching them would only be rejected
// again and again. Sources skip kinds that are not cached, and reads of them fail immediately.
type kindCache struct {
	cache.Cache
	scheme  *runtime.Scheme
	without Denials
}

// Without returns a cache that does not cache objects of the kinds that are off.
func Without(all cache.Cache, scheme *runtime.Scheme, off Denials) cache.Cache {
	return &kindCache{Cache: all, scheme: scheme, without: off}
}

// has reports whether objects of this type are cached.
func (c *kindCache) has(object client.Object) bool {
	_, off := c.without[watchedAs(object).Of]
	return !off
}

// GetInformer implements cache.Informers.
func (c *kindCache) GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if !c.has(object) {
		gvk, err := apiutil.GVKForObject(object, c.scheme)
		if err != nil {
			return nil, err
		}
		return nil, &cache.ErrResourceNotCached{GVK: gvk}
	}
	return c.Cache.GetInformer(ctx, object, opts...)
}

// IndexField implements client.FieldIndexer.
func (c *kindCache) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	if !c.has(object) {
		return nil
	}
	return c.Cache.IndexField(ctx, object, field, extract)
}

// Denials maps each kind that is off in a member to the names of its missing permissions. The list is empty for a kind
// that the registration does not ask for.
type Denials map[string][]string

// Missed returns the kinds that are off although the registration asks for them, sorted, and the permissions that they
// need.
func (d Denials) Missed() (kinds, names []string) {
	for _, kind := range slices.Sorted(maps.Keys(d)) {
		if len(d[kind]) > 0 {
			kinds, names = append(kinds, kind), append(names, d[kind]...)
		}
	}
	return kinds, names
}
