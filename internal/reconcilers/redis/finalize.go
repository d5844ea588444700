// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// definition is the name of the CustomResourceDefinition of Redis.
const definition = "redises.flotilla.dev"

// ensureFinalizer adds or removes the finalizer, depending on whether the data is deleted with the Redis. It writes at
// most once.
func ensureFinalizer(ctx context.Context, member client.Client, redis *flotillav1.Redis) error {
	before := redis.DeepCopy()
	changed := controllerutil.RemoveFinalizer
	if redis.Spec.Storage.RetentionPolicy == flotillav1.RedisRetentionDelete {
		changed = controllerutil.AddFinalizer
	}
	if !changed(redis, flotillav1.FinalizerRedis) {
		return nil
	}
	// Others write the list of finalizers too.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := member.Patch(ctx, redis, patch, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("changing the finalizer: %w", err)
	}
	return nil
}

// finalize deletes the volumes and the generated password of a deleted Redis, if its retention policy requires it, and
// removes the finalizer. The children are garbage-collected. It returns the names of the deleted objects.
func finalize(ctx context.Context, member cluster.Cluster, redis *flotillav1.Redis) ([]string, error) {
	if !controllerutil.ContainsFinalizer(redis, flotillav1.FinalizerRedis) {
		return nil, nil
	}
	var removed []string
	if redis.Spec.Storage.RetentionPolicy == flotillav1.RedisRetentionDelete {
		meant, err := meantToGo(ctx, member.GetAPIReader())
		if err != nil {
			return nil, err
		}
		if meant {
			if removed, err = removeData(ctx, member, redis); err != nil {
				return removed, err
			}
		}
	}
	before := redis.DeepCopy()
	controllerutil.RemoveFinalizer(redis, flotillav1.FinalizerRedis)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := member.GetClient().Patch(ctx, redis, patch, client.FieldOwner(fieldOwner)); client.IgnoreNotFound(err) != nil {
		return removed, fmt.Errorf("removing the finalizer: %w", err)
	}
	return removed, nil
}

// meantToGo reports whether the Redis itself was deleted, and not the definition of its kind with all objects.
func meantToGo(ctx context.Context, reader client.Reader) (bool, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := reader.Get(ctx, client.ObjectKey{Name: definition}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading CustomResourceDefinition %q: %w", definition, err)
	}
	return crd.DeletionTimestamp == nil, nil
}

// removeData deletes by name, after a live read, the objects with the label of this Redis.
func removeData(ctx context.Context, member cluster.Cluster, redis *flotillav1.Redis) ([]string, error) {
	var candidates []client.Object
	for ordinal := range int32(maxOrdinals) {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Name = claimName(redis.Name, ordinal)
		candidates = append(candidates, claim)
	}
	shared, err := passwordIsShared(ctx, member.GetAPIReader(), redis)
	if err != nil {
		return nil, err
	}
	if !shared {
		secret := &corev1.Secret{}
		secret.Name = secretName(redis.Name)
		candidates = append(candidates, secret)
	}

	var removed []string
	for _, candidate := range candidates {
		name := candidate.GetName()
		err := member.GetAPIReader().Get(unlogged(ctx), client.ObjectKey{Namespace: redis.Namespace, Name: name}, candidate)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return removed, fmt.Errorf("reading %q: %w", name, err)
		}
		if candidate.GetLabels()[flotillav1.LabelRedis] != redis.Name || candidate.GetDeletionTimestamp() != nil {
			continue
		}
		uid := candidate.GetUID()
		if err := member.GetClient().Delete(unlogged(ctx), candidate, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return removed, fmt.Errorf("deleting %q: %w", name, err)
		}
		removed = append(removed, name)
	}
	return removed, nil
}

// passwordIsShared reports whether another Redis refers to the Secret that was generated for this one.
func passwordIsShared(ctx context.Context, reader client.Reader, redis *flotillav1.Redis) (bool, error) {
	var others flotillav1.RedisList
	if err := reader.List(ctx, &others, client.InNamespace(redis.Namespace)); err != nil {
		return false, fmt.Errorf("listing Redises: %w", err)
	}
	return slices.ContainsFunc(others.Items, func(other flotillav1.Redis) bool {
		ref := other.Spec.Auth.SecretRef
		return other.Name != redis.Name && ref != nil && ref.Name == secretName(redis.Name)
	}), nil
}
