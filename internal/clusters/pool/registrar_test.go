// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
)

func TestTenants(t *testing.T) {
	said := func(list string) map[string]string {
		return map[string]string{flotillav1.AnnotationAllowedNamespaces: list}
	}
	for name, tc := range map[string]struct {
		annotations    map[string]string
		open, enforced []string
	}{
		"not said":    {nil, nil, []string{}},
		"everybody":   {said("*"), nil, nil},
		"two":         {said("team-a, team-b,"), []string{"", "team-a", "team-b"}, []string{"team-a", "team-b"}},
		"nobody":      {said(""), []string{""}, []string{}},
		"all and one": {said("team-a,*"), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
			namespaces := registration.ConventionFlotilla.Read(secret).Namespaces
			if diff := cmp.Diff(tc.open, (&Pool{}).tenants(namespaces)); diff != "" {
				t.Errorf("open (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.enforced, (&Pool{cfg: Config{EnforceTenancy: true}}).tenants(namespaces)); diff != "" {
				t.Errorf("enforced (-want +got):\n%s", diff)
			}
		})
	}
}
