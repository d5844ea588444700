// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

func benchSecret(t testing.TB) *corev1.Secret {
	t.Helper()
	ca, _ := clusterstest.KeyPair(t, time.Now().Add(time.Hour))
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "flotilla-clusters", Name: "eu-1", UID: "u1",
			Labels:      map[string]string{flotillav1.LabelCluster: "true", "region": "eu", "tier": "gold", "app.kubernetes.io/managed-by": "argocd"},
			Annotations: map[string]string{flotillav1.AnnotationKinds: "Redis,NodePool"},
		},
		Data: map[string][]byte{"kubeconfig": clusterstest.Kubeconfig(t, "https://api.eu-1.example.com:6443", ca, nil)},
	}
}

// TestAllocations_of_a_registration bounds what it takes to see that a Secret is as it was.
func TestAllocations_of_a_registration(t *testing.T) {
	secret := benchSecret(t)
	if got := testing.AllocsPerRun(100, func() { ConventionFlotilla.Read(secret) }); got > 20 {
		t.Errorf("%.0f allocations, want at most 20", got)
	}
}

func BenchmarkReadRegistration(b *testing.B) {
	secret := benchSecret(b)
	b.ReportAllocs()
	for b.Loop() {
		if r := ConventionFlotilla.Read(secret); r.refused != nil {
			b.Fatal(r.refused)
		}
	}
}

func BenchmarkParseCredential(b *testing.B) {
	kubeconfig := benchSecret(b).Data["kubeconfig"]
	b.ReportAllocs()
	for b.Loop() {
		if _, refused := Parse(kubeconfig, &Rules{}); refused != nil {
			b.Fatal(refused)
		}
	}
}
