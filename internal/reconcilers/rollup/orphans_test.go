// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

func TestSummary_keeps_orphaned_copies_for_as_long_as_they_are(t *testing.T) {
	f := newFixture(t, redisKind)
	f.directory.Replace()
	name := hubServer.Namespace(t)
	f.directory.Set(snapshotOf(name, clusters.StateReady, true))
	published := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: name}},
	}
	f.create(f.hub, published)
	namespace := memberServer.Namespace(t)
	f.create(f.member, &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign"}})
	copies := map[string]*flotillav1.Redis{}
	for _, copyName := range []string{"kept", "gone", "placed", "releasing"} {
		copies[copyName] = &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: copyName, Annotations: map[string]string{
			flotillav1.AnnotationHub: hubID, flotillav1.AnnotationPlacedFrom: namespace + "/" + copyName,
		}}}
		f.create(f.member, copies[copyName])
	}
	since := sanitize.Moment(noon)
	record := func(names ...string) {
		status(f, f.hub, published, func(m *flotillav1.MemberCluster) {
			for _, copyName := range names {
				m.Status.Attention = append(m.Status.Attention, flotillav1.Attention{
					Kind: "Redis", Namespace: namespace, Name: copyName, Reason: flotillav1.ReasonOrphaned, Since: since,
				})
			}
		})
	}
	wantOrphans := func(want ...string) {
		t.Helper()
		// Only the status outlives a process.
		f.restart(redisKind)
		f.summary.Members = renamed{f.directory}
		for range 2 {
			if _, err := f.summary.Reconcile(context.Background(), clusters.Request{Request: ctrl.Request{NamespacedName: client.ObjectKeyFromObject(published)}}); err != nil {
				t.Fatal(err)
			}
		}
		f.read(f.hub, published)
		var got []string
		for i, item := range published.Status.Attention {
			if !fleet.IsOrphan(item) {
				continue
			}
			got = append(got, item.Name)
			if i >= len(want) || !item.Since.Equal(since) {
				t.Errorf("line %d is %+v", i, item)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("orphaned are %v, want %v", got, want)
		}
		for _, item := range published.Status.Attention[len(want):] {
			if item.Namespace == namespace && slices.Contains(want, item.Name) {
				t.Errorf("an orphaned copy is listed twice: %+v", item)
			}
		}
	}
	record("kept", "gone", "placed", "releasing", "foreign", "never")
	f.directory.Set(snapshotOf(name, clusters.StateUnreachable, true))
	wantOrphans("kept", "gone", "placed", "releasing", "foreign", "never")

	// Hub objects of two of them are there; one is about to be released.
	for _, copyName := range []string{"placed", "releasing"} {
		f.createNamespace(namespace)
		hubObject := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: copyName}}
		if copyName == "releasing" {
			hubObject.Annotations = map[string]string{flotillav1.AnnotationRelease: name}
		}
		f.create(f.hub, hubObject)
		status(f, f.hub, hubObject, func(r *flotillav1.Redis) { r.Status.PlacedIn = []string{name} })
	}
	if err := f.member.Delete(context.Background(), copies["gone"]); err != nil {
		t.Fatal(err)
	}
	f.directory.Set(snapshotOf(name, clusters.StateReady, true))
	wantOrphans("kept", "releasing")

	// A copy without its annotations belongs to the member.
	spec(f, f.member, copies["kept"], func(r *flotillav1.Redis) { r.Annotations = nil })
	wantOrphans("releasing")
}

func TestCount_report_never_cuts_orphaned_copies_for_others(t *testing.T) {
	counted := count{orphaned: []flotillav1.Attention{{Kind: "Redis", Name: "given-up", Reason: flotillav1.ReasonOrphaned}}}
	for i := range 30 {
		counted.unwell = append(counted.unwell, flotillav1.Attention{Kind: "Redis", Name: fmt.Sprintf("r-%02d", i), Since: sanitize.Moment(noon)})
	}
	_, attention := counted.report()
	if len(attention) != 20 || attention[0].Name != "given-up" {
		t.Errorf("%d lines, the first is %+v", len(attention), attention[0])
	}
}

// createNamespace creates a namespace of the hub unless it exists.
func (f *fixture) createNamespace(name string) {
	f.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := f.hub.Create(context.Background(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		f.t.Fatal(err)
	}
}
