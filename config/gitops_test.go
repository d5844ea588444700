// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestBundles_refuse_what_flux_would_take_back writes annotations on objects as kubectl and as the plugin do.
func TestBundles_refuse_what_flux_would_take_back(t *testing.T) {
	const (
		inGit           = "in Git, or pass --field-manager=flotilla-cli"
		onMemberCluster = "on the MemberCluster"
	)
	flux := map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	annotated := func(key, value string) map[string]string { return map[string]string{key: value} }
	redis := func(labels, annotations map[string]string) client.Object {
		return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
	}
	secret := func(labels map[string]string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	tests := map[string]struct {
		object              client.Object
		manager, key, value string
		refusal             string
	}{
		"a removal is confirmed by kubectl annotate":   {redis(flux, nil), "kubectl-annotate", flotillav1.AnnotationConfirmRemoval, "1", inGit},
		"... by kubectl edit":                          {redis(flux, nil), "kubectl-edit", flotillav1.AnnotationConfirmRemoval, "1", inGit},
		"... by the plugin":                            {redis(flux, nil), "flotilla-cli", flotillav1.AnnotationConfirmRemoval, "1", ""},
		"... where Flux does not apply the object":     {redis(nil, nil), "kubectl-annotate", flotillav1.AnnotationConfirmRemoval, "1", ""},
		"... where Flux merges":                        {redis(flux, annotated("kustomize.toolkit.fluxcd.io/ssa", "Merge")), "kubectl-annotate", flotillav1.AnnotationConfirmRemoval, "1", ""},
		"... where Flux leaves the object alone":       {redis(flux, annotated("kustomize.toolkit.fluxcd.io/reconcile", "disabled")), "kubectl-annotate", flotillav1.AnnotationConfirmRemoval, "1", ""},
		"another value of what is there":               {redis(flux, annotated(flotillav1.AnnotationConfirmRemoval, "1")), "kubectl-annotate", flotillav1.AnnotationConfirmRemoval, "2", inGit},
		"what is there already":                        {redis(flux, annotated(flotillav1.AnnotationConfirmRemoval, "1")), "kubectl-annotate", flotillav1.AnnotationConfirmRemoval, "1", ""},
		"what means nothing here":                      {redis(flux, nil), "kubectl-annotate", "example.com/note", "x", ""},
		"a copy is released":                           {redis(flux, nil), "kubectl-annotate", flotillav1.AnnotationRelease, "eu-1", inGit},
		"an update is approved":                        {redis(flux, nil), "kubectl-annotate", flotillav1.AnnotationApprovePrimaryUpdate, "abc", inGit},
		"a pool is protected":                          {&flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Labels: flux}}, "kubectl-annotate", flotillav1.AnnotationDeletionProtection, "true", inGit},
		"a member is drained by its registration":      {secret(flux), "kubectl-annotate", flotillav1.AnnotationDrain, "true", onMemberCluster},
		"a member is paused by its registration":       {secret(flux), "kubectl-annotate", flotillav1.AnnotationPaused, "true", onMemberCluster},
		"a member is replaced":                         {secret(flux), "kubectl-annotate", flotillav1.AnnotationReplace, "uid", inGit},
		"... that a person has registered":             {secret(nil), "kubectl-annotate", flotillav1.AnnotationDrain, "true", ""},
		"a MemberCluster, which Git does not describe": {&flotillav1.MemberCluster{Spec: flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "a", Name: "b"}}}, "kubectl-annotate", flotillav1.AnnotationDrain, "true", ""},
	}
	for path, cluster := range map[string]*testenv.Cluster{hubBundle: hub, memberBundle: member} {
		install(t, cluster, path)
		for name, tc := range tests {
			if _, here := tc.object.(*flotillav1.MemberCluster); here && cluster == member {
				continue
			}
			t.Run(path+" "+name, func(t *testing.T) {
				expectRefusal(t, cluster, tc.object.DeepCopyObject().(client.Object), tc.manager, tc.key, tc.value, tc.refusal)
			})
		}
	}
}

// expectRefusal makes an object, annotates it by dry run and compares the error. A policy takes effect a moment after it
// was applied.
func expectRefusal(t *testing.T, cluster *testenv.Cluster, object client.Object, manager, key, value, want string) {
	t.Helper()
	ctx := t.Context()
	object.SetGenerateName("gitops-")
	if namespaced, err := cluster.Client.IsObjectNamespaced(object); err == nil && namespaced {
		object.SetNamespace("default")
	}
	must(t, cluster.Client.Create(ctx, object))
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), object) })
	refusal := ""
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		tried := object.DeepCopyObject().(client.Object)
		annotations := map[string]string{key: value}
		for k, v := range object.GetAnnotations() {
			if k != key {
				annotations[k] = v
			}
		}
		tried.SetAnnotations(annotations)
		refusal = ""
		if err := cluster.Client.Patch(ctx, tried, client.MergeFrom(object), client.FieldOwner(manager), client.DryRunAll); err != nil {
			refusal = err.Error()
		}
		return (want == "") == (refusal == "") && strings.Contains(refusal, want), nil
	})
	if err != nil {
		t.Errorf("it is answered with %q, want %q", refusal, want)
	}
}
