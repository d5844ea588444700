// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func benchSecret(t testing.TB) *corev1.Secret {
	t.Helper()
	ca, _ := keyPair(t, time.Now().Add(time.Hour))
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "flotilla-clusters", Name: "eu-1", UID: "u1",
			Labels:      map[string]string{flotillav1.LabelCluster: "true", "region": "eu", "tier": "gold", "app.kubernetes.io/managed-by": "argocd"},
			Annotations: map[string]string{flotillav1.AnnotationKinds: "Redis,NodePool"},
		},
		Data: map[string][]byte{"kubeconfig": kubeconfigFor(t, "https://api.eu-1.example.com:6443", ca, nil)},
	}
}

// benchPublication is a member that is ready, and its MemberCluster that says so.
func benchPublication() (*flotillav1.MemberCluster, publication) {
	wanted := publication{
		snapshot: Snapshot{Name: "eu-1", State: StateReady, Decided: true, UID: "u", Labels: map[string]string{"region": "eu", "tier": "gold"}},
		version:  "v1.34.0", endpoint: "api.eu-1.example.com:6443",
		secret:   secretRef{namespace: "flotilla-clusters", name: "eu-1", uid: "u1"},
		verdicts: map[string]verdict{},
	}
	for _, conditionType := range reported {
		wanted.verdicts[conditionType] = good(flotillav1.ReasonProbeSucceeded, "All is well")
	}
	object := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}}
	describe(object, wanted)
	report(object, wanted, time.Now())
	return object, wanted
}

// unchanged is what is done before it is known that nothing has to be published.
func unchanged(t testing.TB, object *flotillav1.MemberCluster, wanted publication) {
	if !describes(object, wanted) {
		t.Fatal("labels or the reference change")
	}
	desired := object.DeepCopy()
	report(desired, wanted, time.Now())
	if !equality.Semantic.DeepEqual(desired.Status, object.Status) {
		t.Fatal("the status changes")
	}
}

// TestAllocations_when_nothing_changes bounds what it takes to see that a Secret or a member is as it was.
func TestAllocations_when_nothing_changes(t *testing.T) {
	secret := benchSecret(t)
	object, wanted := benchPublication()
	for name, tc := range map[string]struct {
		run  func()
		most float64
	}{
		"a registration": {func() { readRegistration(secret, conventions[ConventionFlotilla]) }, 20},
		"a publication":  {func() { unchanged(t, object, wanted) }, 130},
	} {
		if got := testing.AllocsPerRun(100, tc.run); got > tc.most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", name, got, tc.most)
		}
	}
}

func BenchmarkReadRegistration(b *testing.B) {
	secret := benchSecret(b)
	b.ReportAllocs()
	for b.Loop() {
		if r := readRegistration(secret, conventions[ConventionFlotilla]); r.refused != nil {
			b.Fatal(r.refused)
		}
	}
}

func BenchmarkParseCredential(b *testing.B) {
	kubeconfig := benchSecret(b).Data["kubeconfig"]
	b.ReportAllocs()
	for b.Loop() {
		if _, refused := parseCredential(kubeconfig, &rules{}); refused != nil {
			b.Fatal(refused)
		}
	}
}

func BenchmarkPublish_unchanged(b *testing.B) {
	object, wanted := benchPublication()
	b.ReportAllocs()
	for b.Loop() {
		unchanged(b, object, wanted)
	}
}
