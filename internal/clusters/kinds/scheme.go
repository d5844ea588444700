// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Scheme returns the scheme of all members. It has only the kinds that are read or written there: an answer states its
// kind itself, and a decoder creates any kind of its scheme.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	add := func(version schema.GroupVersion, objects ...runtime.Object) {
		scheme.AddKnownTypes(version, objects...)
		metav1.AddToGroupVersion(scheme, version)
	}
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	add(corev1.SchemeGroupVersion,
		&corev1.Pod{}, &corev1.PodList{}, &corev1.Service{}, &corev1.ServiceList{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Secret{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{},
		&corev1.ServiceAccount{}, &corev1.ServiceAccountList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Namespace{}, &corev1.NamespaceList{})
	add(appsv1.SchemeGroupVersion, &appsv1.StatefulSet{}, &appsv1.StatefulSetList{})
	add(policyv1.SchemeGroupVersion, &policyv1.PodDisruptionBudget{}, &policyv1.PodDisruptionBudgetList{})
	add(nodev1.SchemeGroupVersion, &nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{})
	add(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	add(eventsv1.SchemeGroupVersion, &eventsv1.Event{}, &eventsv1.EventList{})
	add(authorizationv1.SchemeGroupVersion, &authorizationv1.SelfSubjectAccessReview{})
	return scheme
})
