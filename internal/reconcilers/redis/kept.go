// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// The Secret and the claims of a Redis outlive it, so they have no owner. A GitOps tool that tracks by label treats an
// object without an owner as part of the application that its label names, and prunes it if it is not in Git.

// labelInstance is the label by which Argo CD tracks objects, unless it is configured to use annotations.
const labelInstance = "app.kubernetes.io/instance"

// keptOptions make Argo CD keep an object that it tracks, by annotation.
var keptOptions = map[string][]string{
	"argocd.argoproj.io/sync-options":    {"Prune=false", "Delete=false"},
	"argocd.argoproj.io/compare-options": {"IgnoreExtraneous"},
}

// keptLabels are the labels of objects that outlive their Redis.
func keptLabels(redis string) map[string]string {
	labels := childLabels(redis)
	delete(labels, labelInstance)
	return labels
}

// keptAnnotations returns the annotations of an object that outlives its Redis, based on its present ones. Other
// options are kept.
func keptAnnotations(have map[string]string) map[string]string {
	want := map[string]string{}
	for key, options := range keptOptions {
		values := strings.FieldsFunc(have[key], func(r rune) bool { return r == ',' || r == ' ' })
		for _, option := range options {
			if !slices.Contains(values, option) {
				values = append(values, option)
			}
		}
		want[key] = strings.Join(values, ",")
	}
	return want
}

// metadataPatch changes labels and annotations of one object; nil removes a key.
type metadataPatch struct {
	kind, name          string
	uid                 types.UID
	labels, annotations map[string]*string
}

// keepPatch returns the patch that protects an object of an earlier version from being pruned, or false if none is
// needed.
func keepPatch(kind string, obj metav1.Object) (metadataPatch, bool) {
	patch := metadataPatch{kind: kind, name: obj.GetName(), uid: obj.GetUID(), labels: map[string]*string{}, annotations: map[string]*string{}}
	if _, tracked := obj.GetLabels()[labelInstance]; !tracked {
		return patch, false
	}
	patch.labels[labelInstance] = nil
	for key, value := range keptAnnotations(obj.GetAnnotations()) {
		if obj.GetAnnotations()[key] != value {
			patch.annotations[key] = &value
		}
	}
	// With the annotations the label does no harm. An earlier policy of the member does not allow its removal.
	return patch, len(patch.annotations) > 0
}

// patchMetadata executes a patch. If the member does not allow labels to change, it only changes annotations. The
// response contains metadata only, because the object may be a Secret.
func patchMetadata(ctx context.Context, member client.Client, namespace string, patch metadataPatch) error {
	err := patchMetadataOnce(ctx, member, namespace, patch)
	if apierrors.IsForbidden(err) && len(patch.labels) > 0 && len(patch.annotations) > 0 {
		patch.labels = nil
		err = patchMetadataOnce(ctx, member, namespace, patch)
	}
	if err != nil {
		return fmt.Errorf("marking %s %q: %w", patch.kind, patch.name, err)
	}
	return nil
}

func patchMetadataOnce(ctx context.Context, member client.Client, namespace string, patch metadataPatch) error {
	// The UID ensures that an object that has just replaced this one is not changed.
	metadata := map[string]any{"uid": patch.uid, "annotations": patch.annotations}
	if len(patch.labels) > 0 {
		metadata["labels"] = patch.labels
	}
	raw, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(patch.kind))
	obj.SetNamespace(namespace)
	obj.SetName(patch.name)
	return member.Patch(ctx, obj, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(fieldOwner))
}

// claimsToMark returns the patches of claims whose volumes have served, or that could be pruned.
func claimsToMark(s *state) []metadataPatch {
	var mark []metadataPatch
	for _, ordinal := range slices.Sorted(maps.Keys(s.claims)) {
		claim := s.claims[ordinal]
		if claim.DeletionTimestamp != nil {
			continue
		}
		patch, needed := keepPatch("PersistentVolumeClaim", claim)
		if !needed {
			patch.labels = nil
		}
		if p, found := s.podAt(ordinal); found && p.ready && keepsData(&s.spec) && claim.Annotations[flotillav1.AnnotationInitialized] != "true" {
			patch.annotations[flotillav1.AnnotationInitialized] = new("true")
		}
		if len(patch.annotations) > 0 {
			mark = append(mark, patch)
		}
	}
	return mark
}
