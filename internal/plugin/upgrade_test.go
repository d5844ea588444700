// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// identityOf returns what a hub knows a member by.
func identityOf(t *testing.T, cluster *testenv.Cluster) (uid string) {
	t.Helper()
	s, err := site.New(cluster.Config, "the member", "")
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Identity(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return string(found)
}

func TestUpgradeMember_applies_what_differs(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	letAllGo(t)
	t.Cleanup(func() {
		letAllGo(t)
		cleanAccess(t)
	})
	knownMember(t, "eu-1", "")
	knownMember(t, "us-1", "")
	for name, cluster := range map[string]*testenv.Cluster{"eu-1": eu1, "us-1": us1} {
		member := w.member(name)
		member.Status.UID = identityOf(t, cluster)
		if err := hubServer.Client.Status().Update(ctx, member); err != nil {
			t.Fatal(err)
		}
	}
	ways := []string{"--member-context", "eu-1=eu-1-admin", "--member-context", "us-1=us-1-admin"}
	upgrade := func(args ...string) string {
		return w.must(append(append([]string{"upgrade-member"}, ways...), args...)...).out
	}
	upgrade("--all")
	if got := upgrade("eu-1"); !strings.Contains(got, "✓ eu-1: 0 of ") || strings.Contains(got, "us-1") {
		t.Errorf("of a member that is up to date it says\n%s", got)
	}

	// An administrator applied the file before, as the pages say. It is the same content, so there is no conflict with it.
	objects, err := manifests.Member()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := eu1.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("kubectl")); err != nil {
			t.Errorf("kubectl apply --server-side: %v", err)
		}
	}

	// The member has an older role and, from a later version, a newer schema.
	role := &rbacv1.ClusterRole{}
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" {
			role.Name = object.GetName()
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	change := func(object client.Object, name string, change func()) {
		t.Helper()
		if err := eu1.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			t.Fatal(err)
		}
		before := object.DeepCopyObject().(client.Object)
		change()
		if err := eu1.Client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	change(role, role.Name, func() { role.Rules = role.Rules[:1] })
	revision := ""
	change(crd, "redises.flotilla.dev", func() {
		revision = crd.Annotations[flotillav1.AnnotationCRDRevision]
		crd.Annotations[flotillav1.AnnotationCRDRevision] = "1000"
	})
	t.Cleanup(func() {
		change(crd, crd.Name, func() { crd.Annotations[flotillav1.AnnotationCRDRevision] = revision })
	})
	show(t, "upgrade-member-dry-run", "upgrade-member --all --dry-run", w.must(append([]string{"upgrade-member", "--all", "--dry-run"}, ways...)...))
	if err := eu1.Client.Get(ctx, client.ObjectKeyFromObject(role), role); err != nil || len(role.Rules) != 1 {
		t.Errorf("a dry run has written %d rules (%v)", len(role.Rules), err)
	}
	upgrade("eu-1")
	if err := eu1.Client.Get(ctx, client.ObjectKeyFromObject(role), role); err != nil || len(role.Rules) < 2 {
		t.Errorf("the role has %d rules (%v)", len(role.Rules), err)
	}
	if err := eu1.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil || crd.Annotations[flotillav1.AnnotationCRDRevision] != "1000" {
		t.Errorf("the schema went back to %v (%v)", crd.Annotations, err)
	}

	w.fails([]string{"not upgraded: eu-1", "--member-context"}, "upgrade-member", "eu-1", "--member-context", "eu-1=us-1-admin")
	w.fails([]string{"not upgraded: eu-1", "--member-context"}, "upgrade-member", "eu-1")
	w.fails([]string{"not upgraded: us-1"}, "upgrade-member", "us-1", "--member-context", "us-1=viewer")
	w.fails([]string{"not clear which members", "--all"}, "upgrade-member")
	w.fails([]string{`no member is called "eu-9"`}, "upgrade-member", "eu-9")
}
