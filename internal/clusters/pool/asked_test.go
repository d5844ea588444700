// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// TestPool_pauses_and_drains_by_the_MemberCluster asks for both where no GitOps tool takes them back.
func TestPool_pauses_and_drains_by_the_MemberCluster(t *testing.T) {
	ctx := context.Background()
	namespace := hubCluster.Namespace(t)
	f := startPool(t, namespace)
	secret := f.register("asked", memberOne.Kubeconfig())
	f.Eventually(f.condition("asked", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	annotate := func(key, value string) {
		t.Helper()
		object := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "asked"}}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value)
		f.Expect(hubCluster.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}
	shown := func() (is struct{ paused, draining bool }) {
		snapshot, _ := f.pool.Snapshot("asked")
		is.paused, is.draining = snapshot.Paused, snapshot.Draining
		return is
	}
	both := struct{ paused, draining bool }{paused: true, draining: true}

	annotate(flotillav1.AnnotationPaused, `"true"`)
	f.Eventually(f.condition("asked", flotillav1.ConditionPaused)).Should(Equal("True Paused"))
	annotate(flotillav1.AnnotationDrain, `"true"`)
	f.Eventually(shown).Should(Equal(both))
	// The registration is applied again, as a GitOps tool does all the time: it says nothing of either.
	f.patch(secret, func() { secret.Labels["region"] = "eu" })
	f.Eventually(func() string { s, _ := f.pool.Snapshot("asked"); return s.Labels["region"] }).Should(Equal("eu"))
	f.Expect(shown()).To(Equal(both))

	// A manager that starts finds both before it writes anything.
	f.stop()
	f = startPool(t, namespace)
	f.Eventually(f.condition("asked", flotillav1.ConditionDrained)).ShouldNot(Equal("none"))
	f.Eventually(f.state("asked")).Should(Equal(clusters.StateReady))
	f.Expect(shown()).To(Equal(both))

	annotate(flotillav1.AnnotationPaused, "null")
	annotate(flotillav1.AnnotationDrain, `"false"`)
	f.Eventually(f.condition("asked", flotillav1.ConditionPaused)).Should(Equal("none"))
	f.Eventually(f.condition("asked", flotillav1.ConditionDrained)).Should(Equal("none"))
	f.unregister(secret)
}
