// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis/drift"
)

// outcome is what a pass has done, for the events.
type outcome struct {
	// created are the children that did not exist.
	created []change
	// moved are the Services whose previous address is in use by another Service.
	moved []change
	// replaced are the Pods that were deleted for an update.
	replaced []pod
	// grown are the claims whose request was increased.
	grown []*corev1.PersistentVolumeClaim
	// altered are the children that the member has just stored with other fields than were sent.
	altered []altered
	// secretCreated reports whether a password was generated.
	secretCreated bool
}

// generateSecret creates the Secret with a new password. It uses POST, so that an existing password is never
// overwritten, even if this pass has read stale data.
func generateSecret(ctx context.Context, member cluster.Cluster, s *state) error {
	// 26 letters and digits have more than 128 bits of entropy.
	secret := renderSecret(s.redis, rand.Text())
	if err := member.GetClient().Create(unlogged(ctx), secret, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("creating Secret %q: %w", secret.Name, err)
	}
	var err error
	s.password, err = viewSecret(client.ObjectKeyFromObject(s.redis), secret, flotillav1.RedisSecretKeyPassword)
	return err
}

// apply executes a plan. It tries every object, so that a refused one does not block the others. Pods are replaced only
// if everything else succeeded.
func apply(ctx context.Context, member cluster.Cluster, s *state, p plan, done *outcome) error {
	var errs []error
	for _, c := range p.changes {
		errs = append(errs, applyChange(ctx, member.GetClient(), s, c, done))
	}
	if p.dropBudget {
		err := member.GetClient().Delete(ctx, s.budget, client.Preconditions{UID: &s.budget.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("removing PodDisruptionBudget %q: %w", s.budget.Name, err))
		}
	}
	errs = append(errs, dropConfigs(ctx, member, s, p.dropConfigs))
	for _, patch := range p.mark {
		err := patchMetadata(unlogged(ctx), member.GetClient(), s.redis.Namespace, patch)
		if patch.kind == "Secret" && apierrors.IsForbidden(err) {
			// The hub has the rights of an earlier version in this member. Everything else continues.
			s.keepRefused, err = true, nil
		}
		errs = append(errs, err)
	}
	errs = append(errs, growClaims(ctx, member.GetClient(), s, p, done))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return replacePods(ctx, member, s, p, done)
}

// patchClaim changes a claim, on condition that it has not changed since it was read.
func patchClaim(ctx context.Context, member client.Client, claim *corev1.PersistentVolumeClaim, doing string, mutate func(*corev1.PersistentVolumeClaim)) error {
	before, claim := claim, claim.DeepCopy()
	mutate(claim)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := member.Patch(ctx, claim, patch, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("%s PersistentVolumeClaim %q: %w", doing, claim.Name, err)
	}
	return nil
}

// growClaims requests larger volumes. A refusal, for example by a StorageClass without expansion, is an observation and
// not a failure of the pass.
func growClaims(ctx context.Context, member client.Client, s *state, p plan, done *outcome) error {
	var errs []error
	for _, claim := range p.grow {
		err := patchClaim(ctx, member, claim, "growing", func(claim *corev1.PersistentVolumeClaim) {
			if claim.Spec.Resources.Requests == nil {
				claim.Spec.Resources.Requests = corev1.ResourceList{}
			}
			claim.Spec.Resources.Requests[corev1.ResourceStorage] = s.spec.Storage.Size
		})
		switch reason, message := refusal(err); {
		case err == nil:
			done.grown = append(done.grown, claim)
		case reason != "":
			s.growthRefused = cmp.Or(s.growthRefused, message)
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func applyChange(ctx context.Context, member client.Client, s *state, c change, done *outcome) error {
	stored, err := applyPatiently(ctx, member, c)
	if apierrors.IsInvalid(err) && c.address != "" {
		anyAddress := c
		anyAddress.address = ""
		if stored, err = serverSideApply(ctx, member, anyAddress); err == nil {
			done.moved = append(done.moved, c)
		}
	}
	if apierrors.IsInvalid(err) && c.uid != "" {
		// An apply keeps list elements of others, which may conflict with the rendered ones.
		if overwrite(ctx, member, c) == nil {
			stored, err = serverSideApply(ctx, member, c)
		}
	}
	if err != nil {
		return fmt.Errorf("applying %s %q: %w", c.kind, c.desired.GetName(), err)
	}
	if c.uid == "" {
		done.created = append(done.created, c)
	}
	if differ := drift.Between(stored, c.desired); len(differ) > 0 {
		done.altered = append(done.altered, alteredBy(c.kind, c.desired.GetName(), stored.GetUID(), c.sent, differ, s.now))
	}
	return nil
}

// addressPatience spreads the attempts to restore an address over about a second and a half.
var addressPatience = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 6}

// applyPatiently applies a change, and retries a Service with an address: an API server removes a Service a moment
// before it releases the address, and reports the address as in use meanwhile.
func applyPatiently(ctx context.Context, member client.Client, c change) (client.Object, error) {
	if c.address == "" {
		return serverSideApply(ctx, member, c)
	}
	var stored client.Object
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, addressPatience, func(ctx context.Context) (bool, error) {
		stored, last = serverSideApply(ctx, member, c)
		return !apierrors.IsInvalid(last), nil
	})
	return stored, cmp.Or(last, err)
}

// serverSideApply applies a change and returns the stored object.
func serverSideApply(ctx context.Context, member client.Client, c change) (client.Object, error) {
	content := drift.Fields(c.desired)
	options := []client.ApplyOption{client.FieldOwner(fieldOwner)}
	if c.uid != "" {
		// The UID ensures that an object that has just replaced this one is not changed.
		if err := unstructured.SetNestedField(content, string(c.uid), "metadata", "uid"); err != nil {
			return nil, err
		}
		options = append(options, client.ForceOwnership)
	}
	if c.address != "" {
		if err := unstructured.SetNestedField(content, c.address, "spec", "clusterIP"); err != nil {
			return nil, err
		}
	}
	answer := &unstructured.Unstructured{Object: content}
	if err := member.Apply(ctx, client.ApplyConfigurationFromUnstructured(answer), options...); err != nil {
		return nil, err
	}
	// It is compared like typed objects from the caches.
	stored, ok := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(c.desired).Elem()))
	if !ok {
		return nil, fmt.Errorf("%T is not an object", c.desired)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, stored); err != nil {
		return nil, fmt.Errorf("reading what was stored: %w", err)
	}
	return stored, nil
}

// overwrite replaces the lists in the spec of an object by the rendered ones.
func overwrite(ctx context.Context, member client.Client, c change) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.uid}, "spec": drift.Fields(c.desired)["spec"]})
	if err != nil {
		return err
	}
	obj, ok := c.desired.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is not an object", c.desired)
	}
	return member.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
}

// replacePods deletes the Pods of the rollout, after planning it again from live reads: caches may be stale, and
// deleting one Pod too many is an outage.
func replacePods(ctx context.Context, member cluster.Cluster, s *state, p plan, done *outcome) error {
	if len(p.rollout.replace) == 0 {
		return nil
	}
	var live []pod
	for ordinal := range *s.spec.Replicas {
		seen := &corev1.Pod{}
		err := member.GetAPIReader().Get(ctx, client.ObjectKey{Namespace: s.redis.Namespace, Name: podName(s.redis.Name, ordinal)}, seen)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading Pod %q: %w", podName(s.redis.Name, ordinal), err)
		}
		view, ok := viewPod(seen, s.statefulSet)
		if !ok {
			continue
		}
		if err := readProbe(ctx, member.GetAPIReader(), seen, &view); err != nil {
			return err
		}
		live = append(live, view)
	}
	s.markPrimary(live)
	for i := range live {
		var err error
		if live[i].risk, err = liveRisk(ctx, member.GetAPIReader(), s, live[i]); err != nil {
			return err
		}
	}
	for _, now := range rolloutOf(s, p.hash, live).replace {
		if !slices.ContainsFunc(p.rollout.replace, func(planned pod) bool { return planned.uid == now.uid }) {
			continue
		}
		victim := &corev1.Pod{}
		victim.Namespace, victim.Name = s.redis.Namespace, now.name
		err := member.GetClient().Delete(ctx, victim, client.Preconditions{UID: &now.uid, ResourceVersion: &now.resourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("replacing Pod %q: %w", now.name, err)
		}
		done.replaced = append(done.replaced, now)
	}
	return nil
}

// liveRisk returns the problem that forbids replacing a Pod, according to a live read of its claim.
func liveRisk(ctx context.Context, reader client.Reader, s *state, p pod) (*problem, error) {
	if !keepsData(&s.spec) {
		return nil, nil
	}
	now := &state{redis: s.redis, claims: map[int32]*corev1.PersistentVolumeClaim{}}
	if err := now.readClaim(ctx, reader, p.ordinal); err != nil {
		return nil, err
	}
	return riskOf(&s.spec, p, now.claims[p.ordinal]), nil
}

// forgetForce removes the annotation by which a person has chosen a primary, or accepted an empty one. It applies to one volume, once.
func forgetForce(ctx context.Context, member client.Client, redis *flotillav1.Redis) error {
	before := redis.DeepCopy()
	delete(redis.Annotations, forceAnnotation(redis))
	if err := member.Patch(ctx, redis, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("removing annotation %s: %w", forceAnnotation(redis), err)
	}
	return nil
}
