// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "flotilla.dev", Version: "v1alpha1"}

// SchemeBuilder collects what AddToScheme registers.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme adds the kinds of this package to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Redis{}, &RedisList{},
		&NodePool{}, &NodePoolList{},
		&MemberCluster{}, &MemberClusterList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
