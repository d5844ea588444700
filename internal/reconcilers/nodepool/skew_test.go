// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestReconcile_in_a_member_with_older_schemas has the first schemas, and then one that lacks what is always reported.
func TestReconcile_in_a_member_with_older_schemas(t *testing.T) {
	control := testenv.Start(t)
	control.GoBack(t)
	h := newHarness(t, control)
	control.Node(t, "node-a", map[string]string{"example.com/pool": "web"})
	pool := &flotillav1.NodePool{}
	pool.Name = "web"
	pool.Spec.NodeSelector = &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/pool": "web"}}
	pool.Spec.Labels = map[string]flotillav1.LabelValue{"example.com/team": "web"}
	pool.Spec.Handler = "runc"
	h.create(pool)
	h.applied("web", 1)
	h.quiet("web")

	definition := &apiextensionsv1.CustomResourceDefinition{}
	h.get(crdName, definition)
	delete(definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "capacity")
	delete(definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "nodeCount")
	if err := h.api.Update(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	h.members.Change(memberName, func(s *clusters.Snapshot) {
		s.LacksStatus = map[string][]string{kindNodePool: {"status.capacity", "status.nodeCount"}}
	})
	NewWithT(t).Eventually(func(g Gomega) {
		h.update(pool, func() { pool.Annotations = map[string]string{"example.com/at": time.Now().String()} })
		g.Expect(h.pool("web").Status.NodeCount).To(BeZero(), "the API server drops the field")
	}).Should(Succeed())
	h.update(pool, func() { pool.Spec.Labels["example.com/team"] = "other" })
	after := h.applied("web", 1)
	if len(after.Status.Capacity) > 0 || after.Status.ReadyNodes != 1 {
		t.Errorf("the status is %+v", after.Status)
	}
	h.quiet("web")
	if err := h.api.Delete(context.Background(), pool); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	h.until("web", func(g Gomega) {
		g.Expect(client.IgnoreNotFound(h.api.Get(context.Background(), client.ObjectKeyFromObject(pool), pool))).To(Succeed())
		g.Expect(h.node("node-a").Labels).NotTo(HaveKey("example.com/team"), "what is lacking does not keep the nodes from being cleaned")
	})
}
