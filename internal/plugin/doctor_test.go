// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// doctor examines a member whose hub may do more than it needs.
func (s *story) doctor(t *testing.T) {
	ctx := context.Background()
	if well := s.must("doctor", "eu-1"); strings.Contains(well.out, "✗") || !strings.Contains(well.out, "rights as config/member gives them") {
		t.Errorf("of a member that is well it says\n%s", well.out)
	}
	ensure(t, us1, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "too-much"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}},
	})
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "too-much"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "too-much"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: flotillav1.SystemNamespace, Name: flotillav1.HubServiceAccount}},
	}
	ensure(t, us1, binding)
	s.eventually("the surplus shows", func() (bool, error) {
		return strings.Contains(s.run("doctor", "us-1").out, "list secrets"), nil
	})
	show(t, "doctor", "doctor", s.must("doctor"))
	examined := read[itemList[examinedItem]](t, s.must("doctor", "us-1", "-o", "json")).Items
	if len(examined) != 2 || examined[0].Where != "hub" || len(examined[1].Findings) == 0 || examined[1].Findings[0].Severity != "warning" {
		t.Errorf("a script reads %+v", examined)
	}
	if err := us1.Client.Delete(ctx, binding); err != nil {
		t.Fatal(err)
	}
	ensure(t, hubServer, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.RegistrationNamespace, Name: "broken", Labels: map[string]string{flotillav1.LabelCluster: "true"}}})
	s.eventually("the broken registration is a problem", func() (bool, error) {
		got := s.run("doctor", "broken")
		return got.code == 1 && strings.Contains(got.out, "✗ CredentialsAccepted is False: KeyMissing"), nil
	})
	if err := hubServer.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.RegistrationNamespace, Name: "broken"}}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the broken registration goes", func() (bool, error) {
		err := hubServer.Client.Get(ctx, client.ObjectKey{Name: "broken"}, &flotillav1.MemberCluster{})
		return apierrors.IsNotFound(err), err
	})
	s.fails([]string{`no member is called "eu-9"`}, "doctor", "eu-9")
}
