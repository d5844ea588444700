// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// rightsOf gives a ServiceAccount of a member what the manager asks for, but for what is left out.
func rightsOf(t *testing.T, c *testenv.Cluster, name string, leaveOut func(preflight.Right) bool) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "delete"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
		{APIGroups: []string{flotillav1.GroupVersion.Group}, Resources: []string{"memberclusters"}, Verbs: []string{"list"}},
	}}
	for _, r := range slices.DeleteFunc(preflight.RequiredRights(false), leaveOut) {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{resource}, Verbs: []string{r.Verb}})
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
	}
	ctx := context.Background()
	g := NewWithT(t)
	current := &rbacv1.ClusterRole{}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(role), current); err == nil {
		current.Rules = role.Rules
		g.Expect(c.Client.Update(ctx, current)).To(Succeed())
		return
	}
	g.Expect(c.Client.Create(ctx, role)).To(Succeed())
	g.Expect(c.Client.Create(ctx, binding)).To(Succeed())
	t.Cleanup(func() {
		_ = c.Client.Delete(ctx, role)
		_ = c.Client.Delete(ctx, binding)
	})
}

// everyRight leaves nothing out.
func everyRight(preflight.Right) bool { return false }

// TestPool_switches_off_the_kind_that_rights_are_missing_for takes rights away before and after a member is engaged.
func TestPool_switches_off_the_kind_that_rights_are_missing_for(t *testing.T) {
	clk := &leapClock{}
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.Clock, c.ClaimRenewal = clk, time.Minute })
	const name = "rights"
	noNodes := func(r preflight.Right) bool { return r.Resource == "nodes" }
	noPods := func(r preflight.Right) bool { return r.Resource == "pods" }
	rightsOf(t, memberOne, name, noNodes)
	f.register(name, withToken(t, tokenIn(t, memberOne, name, false)))

	snapshot := func() clusters.Snapshot { s, _ := f.pool.Snapshot(name); return s }
	off := func() map[string]string { return snapshot().Off }
	// recheck lets the time pass after which a member is asked again.
	recheck := func() map[string]string { clk.leap(recheckPause); return off() }

	f.Eventually(f.condition(name, flotillav1.ConditionReady)).Should(Equal("True Forbidden"))
	f.Eventually(f.condition(name, flotillav1.ConditionAPIsServed)).Should(Equal("False Forbidden"))
	f.Expect(f.says(name, flotillav1.ConditionAPIsServed)).To(And(ContainSubstring("list nodes"), ContainSubstring("NodePool is off")))
	f.Expect(f.says(name, flotillav1.ConditionReady)).To(ContainSubstring("NodePool is off"))
	f.Expect(snapshot().Serves("NodePool")).To(BeFalse())
	f.Expect(snapshot().TakesPart("NodePool")).To(BeTrue(), "placement goes on choosing it")
	f.Expect(snapshot().Serves("Redis")).To(BeTrue())
	f.Expect(snapshot().Writable()).To(BeTrue())

	member, err := f.pool.Member(name)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(member.GetCache().List(t.Context(), &flotillav1.RedisList{})).To(Succeed())
	notCached := &cache.ErrResourceNotCached{}
	f.Expect(errors.As(member.GetCache().List(t.Context(), &corev1.NodeList{}), &notCached)).To(BeTrue(), "what is off is not read")
	_, err = member.GetCache().GetInformer(t.Context(), &corev1.Node{})
	f.Expect(errors.As(err, &notCached)).To(BeTrue(), "what is off is not watched")

	rightsOf(t, memberOne, name, everyRight)
	f.Eventually(recheck).Should(BeEmpty(), "the kind comes back by itself")
	f.Eventually(f.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(f.condition(name, flotillav1.ConditionAPIsServed)).Should(Equal("True AllServed"))
	member, err = f.pool.Member(name)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(member.GetCache().List(t.Context(), &corev1.NodeList{})).To(Succeed())
	f.Eventually(func() int { return f.engaged.count(name) }).Should(Equal(2), "the kind is read with a new incarnation")

	// A right that is lost later shows once the watch has been refused for a while.
	rightsOf(t, memberOne, name, noPods)
	f.pool.member(name).cutWatches()
	f.Eventually(func() map[string]string { clk.leap(transport.UnreadTime); return off() }).WithPolling(200 * time.Millisecond).
		Should(Equal(map[string]string{"Redis": flotillav1.ReasonForbidden}))
	f.Eventually(f.condition(name, flotillav1.ConditionAPIsServed)).Should(Equal("False Forbidden"))
	f.Expect(f.says(name, flotillav1.ConditionAPIsServed)).To(And(ContainSubstring("list pods"), ContainSubstring("Redis is off")))

	rightsOf(t, memberOne, name, everyRight)
	f.Eventually(recheck).WithPolling(200 * time.Millisecond).Within(90 * time.Second).Should(BeEmpty())
	f.Expect(f.engaged.count(name)).To(Equal(2), "what was cached stays")

	// Without any kind there is no use in the member.
	rightsOf(t, memberOne, name, func(r preflight.Right) bool { return r.Resource == "nodes" || r.Resource == "redises" })
	f.pool.member(name).cutWatches()
	f.Eventually(func() string { clk.leap(transport.UnreadTime); return f.condition(name, flotillav1.ConditionReady)() }).
		WithPolling(200 * time.Millisecond).Should(Equal("False Forbidden"))
	f.Eventually(f.state(name)).Should(Equal(clusters.StateIncompatible))

	var notes []string
	f.Eventually(func() []string { notes = f.warnings(name)(); return notes }).Should(ContainElement(HavePrefix("KindOff")), strings.Join(notes, ", "))
}

// TestPool_misses_no_rights_for_a_kind_that_is_not_asked_for registers a member for one kind.
func TestPool_misses_no_rights_for_a_kind_that_is_not_asked_for(t *testing.T) {
	f := startPool(t, hubCluster.Namespace(t))
	const name = "rights-one-kind"
	rightsOf(t, memberOne, name, func(r preflight.Right) bool { return r.Kind == flotillav1.KindNodePool })
	f.register(name, withToken(t, tokenIn(t, memberOne, name, false)), func(secret *corev1.Secret) {
		secret.Annotations = map[string]string{flotillav1.AnnotationKinds: "Redis"}
	})
	f.Eventually(f.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(f.condition(name, flotillav1.ConditionAPIsServed)).Should(Equal("True AllServed"))
	snapshot, _ := f.pool.Snapshot(name)
	f.Expect(snapshot.Serves("Redis")).To(BeTrue())
	f.Expect(snapshot.Serves("NodePool")).To(BeFalse())
}

// says is the message of a condition.
func (f *fixture) says(name, conditionType string) string {
	object := &flotillav1.MemberCluster{}
	f.Expect(hubCluster.Client.Get(context.Background(), client.ObjectKey{Name: name}, object)).To(Succeed())
	condition := apimeta.FindStatusCondition(object.Status.Conditions, conditionType)
	if condition == nil {
		return ""
	}
	return condition.Message
}

// cutWatches ends the member's watches, as a proxy would.
func (m *member) cutWatches() {
	done := make(chan struct{})
	m.hand(func() {
		defer close(done)
		if m.session != nil {
			m.session.transport.EndWatches()
		}
	})
	<-done
}
