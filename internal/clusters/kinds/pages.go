// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// pageSize is how many objects a list requests at once. A page is decoded at once, so it bounds the memory that a list of
// large objects such as Nodes needs besides what is kept of them.
const pageSize = 100

// inPages lists page by page and trims each page before it requests the next one. The client pages, too, but API servers
// ignore that for its resourceVersion, and it trims when it has all pages.
func inPages(list toolscache.ListWithContextFunc, trim toolscache.TransformFunc) toolscache.ListWithContextFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.ResourceVersion, options.ResourceVersionMatch, options.Limit, options.Continue = "", "", pageSize, ""
		all := &internalversion.List{}
		for {
			page, err := list(ctx, options)
			if err != nil {
				return nil, err
			}
			err = apimeta.EachListItem(page, func(item runtime.Object) error {
				trimmed, err := trim(item)
				if kept, ok := trimmed.(runtime.Object); ok && err == nil {
					all.Items = append(all.Items, kept)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			meta, err := apimeta.ListAccessor(page)
			if err != nil {
				return nil, err
			}
			all.ResourceVersion, options.Continue = meta.GetResourceVersion(), meta.GetContinue()
			if options.Continue == "" {
				return all, nil
			}
		}
	}
}
