// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package statuspatch

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// write returns what Write sends, and the field manager that it names.
func write(t *testing.T, before, after client.Object, guard Guard, opts ...client.SubResourcePatchOption) (sent []string, manager string, err error) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, sub string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			metadata, ok := object.(*metav1.PartialObjectMetadata)
			if !ok || sub != "status" {
				t.Fatalf("a patch of %s of a %T", sub, object)
			}
			data, err := patch.Data(object)
			applied := client.SubResourcePatchOptions{}
			applied.ApplyOptions(opts)
			sent, manager = append(sent, metadata.Kind+" "+metadata.Namespace+"/"+metadata.Name+" "+string(data)), applied.FieldManager
			metadata.ResourceVersion = "8"
			return err
		},
	}).Build()
	err = Write(t.Context(), c, before, after, guard, opts...)
	return sent, manager, err
}

func TestWrite_sends_what_has_changed(t *testing.T) {
	before := &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "u1", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Status:     flotillav1.RedisStatus{Selector: "old", ReadyReplicas: 1},
	}
	bare := &metav1.PartialObjectMetadata{ObjectMeta: before.ObjectMeta}
	for name, tc := range map[string]struct {
		before client.Object
		guard  Guard
		sent   string
	}{
		"to the same object":            {before, SameUID, `{"metadata":{"uid":"u1"},"status":{"selector":"new"}}`},
		"to this version":               {before, SameVersion, `{"metadata":{"resourceVersion":"7"},"status":{"selector":"new"}}`},
		"a first status with its zeros": {bare, SameUID, `{"metadata":{"uid":"u1"},"status":{"desiredReplicas":0,"readyReplicas":1,"replicas":0,"selector":"new","updatedReplicas":0}}`},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			after.Status.Selector = "new"
			sent, manager, err := write(t, tc.before, after, tc.guard, client.FieldOwner("test"))
			if err != nil || len(sent) != 1 || sent[0] != "Redis shop/cart "+tc.sent || manager != "test" {
				t.Errorf("sent %q as %q: %v", sent, manager, err)
			}
			if after.ResourceVersion != "8" || after.Status.Selector != "new" {
				t.Errorf("the object is %+v", after)
			}
		})
	}
}

func TestWrite_sends_nothing_if_nothing_has_changed(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1", ResourceVersion: "7"}, Status: flotillav1.MemberClusterStatus{
		Removals: []flotillav1.Removal{{Name: "cart", Time: metav1.NewTime(at)}},
	}}
	for name, change := range map[string]func(*flotillav1.MemberCluster){
		"the same": func(*flotillav1.MemberCluster) {},
		"less than the API stores": func(m *flotillav1.MemberCluster) {
			m.Status.Removals[0].Time = metav1.NewTime(at.Add(time.Millisecond))
		},
		"an empty list": func(m *flotillav1.MemberCluster) { m.Status.Attention = []flotillav1.Attention{} },
		"labels":        func(m *flotillav1.MemberCluster) { m.Labels = map[string]string{"a": "b"} },
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			change(after)
			if sent, _, err := write(t, before, after, SameVersion); err != nil || sent != nil {
				t.Errorf("sent %q: %v", sent, err)
			}
		})
	}
}

func TestWrite_without_a_version_to_compare_with(t *testing.T) {
	before := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
	after := before.DeepCopy()
	after.Status.Selector = "new"
	if sent, _, err := write(t, before, after, SameVersion); err == nil || sent != nil {
		t.Errorf("sent %q without a lock: %v", sent, err)
	}
}
