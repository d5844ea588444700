// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// kindCache is the cache of a member without what is watched for a kind that is off there: to ask for it would only be
// refused, again and again. Sources do not watch what it does not have, and reads of it fail at once.
type kindCache struct {
	cache.Cache
	scheme  *runtime.Scheme
	without denials
}

// has says whether objects like this one are cached.
func (c *kindCache) has(object client.Object) bool {
	_, off := c.without[watchedAs(object).of]
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
