// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

func TestReadRegistration(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: "eu-1", UID: "u1",
			Labels: map[string]string{
				flotillav1.LabelCluster: "true", "region": "eu", "argocd.argoproj.io/instance": "x", "kustomize.toolkit.fluxcd.io/name": "x",
				"helm.sh/chart": "x", "app.kubernetes.io/instance": "x", "app.kubernetes.io/managed-by": "x", "app.kubernetes.io/name": "kept",
				"velero.io/backup-name": "x", "flotilla.dev/anything": "x",
			},
			Annotations: map[string]string{
				flotillav1.AnnotationPaused: "true", flotillav1.AnnotationDrain: "yes", flotillav1.AnnotationKinds: "Redis, ,NodePool",
				flotillav1.AnnotationReplace: "u9", flotillav1.AnnotationTakeOver: "old",
			},
		},
		Data: map[string][]byte{"kubeconfig": []byte("content")},
	}
	got := ConventionFlotilla.Read(secret)
	if got.refused != nil || string(got.kubeconfig.reveal()) != "content" {
		t.Errorf("content: got %q, %v", got.kubeconfig.reveal(), got.refused)
	}
	if diff := cmp.Diff(map[string]string{"region": "eu", "app.kubernetes.io/name": "kept"}, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Redis", "NodePool"}, got.Kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if got.ClusterName != "eu-1" || !got.Paused || got.Drain || got.Replace != "u9" || got.TakeOver != "old" {
		t.Errorf("got %+v", got)
	}

	for name, change := range map[string]func(*corev1.Secret){
		"content":  func(s *corev1.Secret) { s.Data["kubeconfig"] = []byte("other") },
		"key":      func(s *corev1.Secret) { s.Data = nil },
		"replace":  func(s *corev1.Secret) { s.Annotations[flotillav1.AnnotationReplace] = "u8" },
		"takeOver": func(s *corev1.Secret) { delete(s.Annotations, flotillav1.AnnotationTakeOver) },
	} {
		changed := secret.DeepCopy()
		change(changed)
		if ConventionFlotilla.Read(changed).Digest == got.Digest {
			t.Errorf("a change of %s must change the digest", name)
		}
	}
	relabelled := secret.DeepCopy()
	relabelled.Labels["region"] = "us"
	if ConventionFlotilla.Read(relabelled).Digest != got.Digest {
		t.Error("a label must not change the digest: nothing is reconnected for it")
	}
}

func TestReadRegistration_names(t *testing.T) {
	for name, tc := range map[string]struct {
		secret, annotation string
		convention         Convention
		wantName           string
		wantReason         string
	}{
		"the Secret's":               {secret: "eu-1", convention: ConventionFlotilla, wantName: "eu-1"},
		"the annotation's":           {secret: "eu-1", annotation: "us-1", convention: ConventionFlotilla, wantName: "us-1"},
		"not with multicluster-rt":   {secret: "eu-1", annotation: "us-1", convention: ConventionMulticlusterRuntime, wantName: "eu-1"},
		"a Secret name with dots":    {secret: "eu.1", convention: ConventionFlotilla, wantName: "eu.1", wantReason: flotillav1.ReasonInvalidName},
		"an annotation with capital": {secret: "eu-1", annotation: "EU", convention: ConventionFlotilla, wantName: "EU", wantReason: flotillav1.ReasonInvalidName},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tc.secret}, Data: map[string][]byte{"kubeconfig": {1}}}
			if tc.annotation != "" {
				secret.Annotations = map[string]string{flotillav1.AnnotationClusterName: tc.annotation}
			}
			got := tc.convention.Read(secret)
			reason := ""
			if got.refused != nil {
				reason = got.refused.Reason
			}
			if string(got.ClusterName) != tc.wantName || reason != tc.wantReason {
				t.Errorf("got %q with reason %q", got.ClusterName, reason)
			}
		})
	}
}

func TestAssign(t *testing.T) {
	at := func(name, secret string, age int) Registration {
		return Registration{
			ClusterName: multicluster.ClusterName(name), created: time.Unix(int64(1000-age), 0),
			Secret: SecretRef{Namespace: "fleet", Name: secret, UID: types.UID("uid-" + secret)},
		}
	}
	misnamed := func(secret string) Registration {
		r := at("Not A Name", secret, 0)
		r.refused = verdict.RefuseCredential(flotillav1.ReasonInvalidName, "bad")
		return r
	}
	for name, tc := range map[string]struct {
		asking       []Registration
		recorded     map[multicluster.ClusterName]SecretRef
		want         map[string]string
		wantLosers   []string
		wantReported string
	}{
		"one each": {asking: []Registration{at("a", "a", 0), at("b", "b", 0)}, want: map[string]string{"a": "a", "b": "b"}},
		"the oldest among unrecorded": {
			asking: []Registration{at("a", "young", 1), at("a", "old", 2)},
			want:   map[string]string{"a": "old"}, wantLosers: []string{"young"}, wantReported: flotillav1.ReasonContested,
		},
		"by name when of one age": {
			asking: []Registration{at("a", "z", 1), at("a", "y", 1)},
			want:   map[string]string{"a": "y"}, wantLosers: []string{"z"}, wantReported: flotillav1.ReasonContested,
		},
		"the recorded one even if younger": {
			asking:   []Registration{at("a", "young", 1), at("a", "old", 2)},
			recorded: map[multicluster.ClusterName]SecretRef{"a": {Namespace: "fleet", Name: "young", UID: "uid-young"}},
			want:     map[string]string{"a": "young"}, wantLosers: []string{"old"}, wantReported: flotillav1.ReasonContested,
		},
		"the recorded one made anew": {
			asking:   []Registration{at("a", "young", 1), at("a", "old", 2)},
			recorded: map[multicluster.ClusterName]SecretRef{"a": {Namespace: "fleet", Name: "young", UID: "uid-before"}},
			want:     map[string]string{"a": "young"}, wantLosers: []string{"old"}, wantReported: flotillav1.ReasonContested,
		},
		"misnamed under the Secret's name": {asking: []Registration{misnamed("m")}, want: map[string]string{"m": "m"}},
		"misnamed and the Secret's name taken": {
			asking: []Registration{misnamed("m"), at("m", "other", 0)},
			want:   map[string]string{"m": "other"}, wantLosers: []string{"m"}, wantReported: flotillav1.ReasonInvalidName,
		},
		"misnamed and the Secret's name unfit": {
			asking: []Registration{misnamed("m.1")}, want: map[string]string{}, wantLosers: []string{"m.1"}, wantReported: flotillav1.ReasonInvalidName,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Assign(tc.asking, tc.recorded)
			holders := map[string]string{}
			for name, r := range got.Holders {
				holders[string(name)] = r.Secret.Name
			}
			if diff := cmp.Diff(tc.want, holders); diff != "" {
				t.Errorf("holders (-want +got):\n%s", diff)
			}
			var losers []string
			for _, c := range got.Complaints {
				losers = append(losers, c.Secret.Name)
				if c.Reason != tc.wantReported {
					t.Errorf("complaint %+v, want reason %s", c, tc.wantReported)
				}
			}
			if diff := cmp.Diff(tc.wantLosers, losers); diff != "" {
				t.Errorf("losers (-want +got):\n%s", diff)
			}
		})
	}
}
