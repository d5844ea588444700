// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	finalizer = "baseline.example.com/placed"
	// hashAnnotation is a hash of the spec that a copy was given.
	hashAnnotation = "baseline.example.com/hash"
)

// Placer makes every member have a copy of every hub object.
type Placer struct {
	Hub     client.Client
	Members *kubeconfig.Provider
}

// Reconcile places one hub object, or removes its copies.
func (p *Placer) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	pool := &flotillav1.NodePool{}
	if err := p.Hub.Get(ctx, req.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, p.remove(ctx, pool)
	}
	before := pool.DeepCopy()
	if controllerutil.AddFinalizer(pool, finalizer) {
		if err := p.Hub.Patch(ctx, pool, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	want, hash, err := copyOf(pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for _, name := range p.Members.ListClusters() {
		if err := p.place(ctx, name, want.DeepCopy(), hash); err != nil {
			errs = append(errs, fmt.Errorf("placing in %q: %w", name, err))
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// place applies the copy unless the member has it already.
func (p *Placer) place(ctx context.Context, name multicluster.ClusterName, want *unstructured.Unstructured, hash string) error {
	member, err := p.Members.Get(ctx, name)
	if err != nil {
		return err
	}
	found := &flotillav1.NodePool{}
	err = member.GetClient().Get(ctx, client.ObjectKeyFromObject(want), found)
	if err == nil && found.Annotations[hashAnnotation] == hash {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return member.GetClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner("baseline"), client.ForceOwnership)
}

// remove deletes the copies and lets the hub object go.
func (p *Placer) remove(ctx context.Context, pool *flotillav1.NodePool) error {
	if !controllerutil.ContainsFinalizer(pool, finalizer) {
		return nil
	}
	var errs []error
	for _, name := range p.Members.ListClusters() {
		member, err := p.Members.Get(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		copied := &flotillav1.NodePool{}
		if err = member.GetClient().Get(ctx, client.ObjectKeyFromObject(pool), copied); err == nil {
			err = member.GetClient().Delete(ctx, copied)
		}
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting in %q: %w", name, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	before := pool.DeepCopy()
	controllerutil.RemoveFinalizer(pool, finalizer)
	return client.IgnoreNotFound(p.Hub.Patch(ctx, pool, client.MergeFrom(before)))
}

// copyOf returns the copy of a hub object and the hash of its spec.
func copyOf(pool *flotillav1.NodePool) (*unstructured.Unstructured, string, error) {
	spec := pool.Spec.DeepCopy()
	spec.Placement = nil
	content, err := json.Marshal(spec)
	if err != nil {
		return nil, "", fmt.Errorf("hashing the spec: %w", err)
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:8])
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, "", fmt.Errorf("converting the spec: %w", err)
	}
	copied := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	copied.SetGroupVersionKind(flotillav1.GroupVersion.WithKind("NodePool"))
	copied.SetName(pool.Name)
	copied.SetAnnotations(map[string]string{hashAnnotation: hash})
	return copied, hash, nil
}
