// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestPool_names_the_cause_of_each_write_in_the_audit_log(t *testing.T) {
	workloads := memberOne.Namespace(t)
	mark := memberOne.AuditMark(t)
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("audited", memberOne.Kubeconfig())
	f.Eventually(f.condition("audited", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	member, err := f.pool.Member("audited")
	f.Expect(err).NotTo(HaveOccurred())
	writer := member.GetClient()

	redis := redisIn(t, workloads, "cart", nil)
	ctx := clusters.CausedBy(context.Background(), redis)
	object := configMap(workloads, "audited")
	f.Expect(writer.Create(ctx, object)).To(Succeed())
	object.Data = map[string]string{"a": "b"}
	f.Expect(writer.Update(ctx, object)).To(Succeed())
	f.Expect(writer.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"c"}}`)))).To(Succeed())
	f.Expect(writer.Delete(ctx, object)).To(Succeed())
	f.Expect(writer.Create(context.Background(), configMap(workloads, "uncaused"))).To(Succeed())
	f.Expect(member.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(object), &corev1.ConfigMap{})).NotTo(Succeed())
	f.unregister(secret)

	prefix := "flotilla-" + string(redis.UID) + "-1-"
	caused := func(a testenv.Audited) bool { return strings.HasPrefix(a.AuditID, prefix) }
	f.Eventually(func() []string {
		var verbs []string
		for _, request := range memberOne.AuditedSince(t, mark, caused) {
			verbs = append(verbs, request.Verb)
		}
		return slices.Sorted(slices.Values(verbs))
	}).Should(Equal([]string{"create", "delete", "patch", "update"}))
	var nameless []string
	for _, request := range memberOne.AuditedSince(t, mark, byUs) {
		if !strings.HasPrefix(request.AuditID, transport.AuditPrefix) {
			nameless = append(nameless, request.Verb+" "+request.RequestURI)
		}
	}
	f.Expect(nameless).To(BeEmpty(), "every write says that it is ours, the claim and its release included")
}
