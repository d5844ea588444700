// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestAuditID(t *testing.T) {
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{UID: "3d0f", Generation: 7}}
	first, second := auditID(CausedBy(t.Context(), redis)), auditID(CausedBy(t.Context(), redis))
	for _, id := range []string{first, second} {
		if !regexp.MustCompile(`^flotilla-3d0f-7-[0-9a-z]+$`).MatchString(id) {
			t.Errorf("got %q", id)
		}
	}
	if first == second {
		t.Errorf("two writes have the same identifier %q", first)
	}
	unnamed := &flotillav1.Redis{}
	for _, ctx := range []context.Context{t.Context(), CausedBy(t.Context(), unnamed)} {
		if id := auditID(ctx); !regexp.MustCompile(`^flotilla-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(id) {
			t.Errorf("got %q for no object", id)
		}
	}
	longest := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strings.Repeat("u", 36)), Generation: 99_999}}
	// API servers cut what they answer with to 64 bytes.
	if id := auditID(CausedBy(t.Context(), longest)); len(id) > 64 {
		t.Errorf("%q is too long", id)
	}
}

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
	ctx := CausedBy(context.Background(), redis)
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
		if !strings.HasPrefix(request.AuditID, auditPrefix) {
			nameless = append(nameless, request.Verb+" "+request.RequestURI)
		}
	}
	f.Expect(nameless).To(BeEmpty(), "every write says that it is ours, the claim and its release included")
}
