// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// withMember gives the fixture a member of its own, which the test may break.
func (f *fixture) withMember(member *testenv.Cluster) {
	f.member = counting(f.t, member.Config, f.writes)
	f.directory.Engage(eu1, uncached{client: f.member})
}

// ageSchema removes fields from the schema of Redis, as if an earlier release had installed it, and waits until the API server
// uses it.
func ageSchema(t *testing.T, member *testenv.Cluster, fields ...string) {
	t.Helper()
	g, ctx := NewWithT(t), context.Background()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	g.Expect(member.Client.Get(ctx, client.ObjectKey{Name: fleet.Redis.CRD}, definition)).To(Succeed())
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	for _, field := range fields {
		g.Expect(spec.Properties).To(HaveKey(field))
		delete(spec.Properties, field)
	}
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	g.Expect(member.Client.Update(ctx, definition)).To(Succeed())
	g.Eventually(func() string {
		probe := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
		probe.Spec.PriorityClassName = "dropped"
		if err := member.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err.Error()
		}
		return probe.Spec.PriorityClassName
	}).Should(BeEmpty())
}

func TestReconcile_in_a_member_with_an_older_schema(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	older := testenv.Start(t)
	f.withMember(older)
	ageSchema(t, older, "priorityClassName", "podAntiAffinity")
	user := f.newRedis(func(r *flotillav1.Redis) { r.Spec.PriorityClassName = "high" })
	other := f.newRedis()

	// Before the missing fields of the schema are known, the answer of the API server shows them.
	f.settle(user)
	f.wantOutcome(user, flotillav1.ReasonVersionSkew)
	f.wantEvents("Warning VersionSkew eu-1: ")
	f.directory.Change(eu1, func(s *clusters.Snapshot) {
		s.Definitions = "older"
		s.Lacks = map[string][]clusters.MissingField{"Redis": {{Path: "spec.podAntiAffinity", Default: `"Preferred"`}, {Path: "spec.priorityClassName"}}}
	})
	f.settle(user)
	f.wantOutcome(user, flotillav1.ReasonVersionSkew)
	if message := f.r.Table.Get(f.r.key(user), eu1).Message; !strings.Contains(message, "spec.priorityClassName") || strings.Contains(message, "podAntiAffinity") {
		t.Errorf("the message does not name the field: %s", message)
	}
	f.wantNoWrites(user)

	// An object that does not use the field is not affected, although the hub has set the default of another one.
	f.settle(other)
	f.wantOutcome(other, "")
	f.wantNoWrites(other)
	update(f, f.hub, other, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) })
	f.settle(other)
	placed := copyOf(other)
	if !f.get(f.member, placed) || *placed.Spec.Replicas != 2 {
		t.Errorf("the other object did not follow: %+v", placed.Spec)
	}
	f.wantNoWrites(other)

	// It continues when it does not use the field.
	update(f, f.hub, user, func(r *flotillav1.Redis) { r.Spec.PriorityClassName = "" })
	f.settle(user)
	f.wantOutcome(user, "")
	if !f.get(f.member, copyOf(user)) {
		t.Error("there is no copy")
	}
	f.wantNoWrites(user)
}

// dropPriority makes an API server store every Redis without its priority class.
func dropPriority(t *testing.T, member *testenv.Cluster) {
	t.Helper()
	g, ctx := NewWithT(t), context.Background()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-priority"},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"flotilla.dev"}, APIVersions: []string{"*"}, Resources: []string{"redises"}},
				},
			}}},
			MatchConditions:    []admissionv1.MatchCondition{{Name: "set", Expression: "has(object.spec.priorityClassName)"}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: "/spec/priorityClassName"}]`},
			}},
		},
	}
	g.Expect(member.Client.Create(ctx, policy)).To(Succeed())
	g.Expect(member.Client.Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-priority"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "no-priority"},
	})).To(Succeed())
	g.Eventually(func() string {
		probe := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
		probe.Spec.PriorityClassName = "dropped"
		if err := member.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err.Error()
		}
		return probe.Spec.PriorityClassName
	}).Should(BeEmpty())
}

func TestReconcile_a_dropped_field_is_not_sent_again(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	pruning := testenv.Start(t)
	f.withMember(pruning)
	dropPriority(t, pruning)
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.PriorityClassName = "high" })
	f.settle(redis)
	f.wantOutcome(redis, flotillav1.ReasonFieldDropped)
	if message := f.r.Table.Get(f.r.key(redis), eu1).Message; !strings.Contains(message, "spec.priorityClassName") {
		t.Errorf("the message does not name the field: %s", message)
	}
	f.wantEvents("Warning FieldDropped eu-1: ")
	f.wantNoWrites(redis)

	// A change of the hub object leads to exactly one more attempt.
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) })
	f.settle(redis)
	placed := copyOf(redis)
	if f.get(f.member, placed); *placed.Spec.Replicas != 2 {
		t.Error("a change of another field did not arrive")
	}
	f.wantOutcome(redis, flotillav1.ReasonFieldDropped)
	f.wantNoWrites(redis)

	// So does a change in the member.
	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(7)) })
	f.settle(redis)
	if f.get(f.member, placed); *placed.Spec.Replicas != 2 {
		t.Error("drift beside the dropped field was not put back")
	}
	f.wantNoWrites(redis)

	// And so does a change of the schema.
	for _, object := range []client.Object{
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-priority"}},
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-priority"}},
	} {
		if err := pruning.Client.Delete(context.Background(), object); err != nil {
			t.Fatal(err)
		}
	}
	definitions := 0
	NewWithT(t).Eventually(func() string {
		definitions++
		f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Definitions = strings.Repeat("x", definitions) })
		f.settle(redis)
		f.get(f.member, placed)
		return placed.Spec.PriorityClassName
	}).Should(Equal("high"))
	f.wantOutcome(redis, "")
	f.wantNoWrites(redis)
}

// An older manager is installed, and the schemas stay: fields that it does not know stay on the hub and, unless the hub sets
// them, in the member.
func TestReconcile_keeps_fields_that_only_newer_schemas_know(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	ctx := context.Background()
	for _, cluster := range []*testenv.Cluster{hubServer, memberServer} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: fleet.Redis.CRD}, definition); err != nil {
			t.Fatal(err)
		}
		spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		spec.Properties["invented"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
		if err := cluster.Client.Update(ctx, definition); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			delete(spec.Properties, "invented")
			if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
				t.Fatal(err)
			}
			definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
			if err := cluster.Client.Update(ctx, definition); err != nil {
				t.Fatal(err)
			}
		})
	}
	invented := func(c client.Client, object *flotillav1.Redis) string {
		raw := &unstructured.Unstructured{}
		raw.SetGroupVersionKind(flotillav1.GroupVersion.WithKind("Redis"))
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), raw); err != nil {
			t.Fatal(err)
		}
		value, _, _ := unstructured.NestedString(raw.Object, "spec", "invented")
		return value
	}
	redis := f.newRedis()
	f.settle(redis)
	for c, value := range map[client.Client]string{f.hub: "on the hub", f.member: "in the member"} {
		NewWithT(t).Eventually(func() string {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"invented":"`+value+`"}}`))
			if err := c.Patch(ctx, copyOf(redis), patch); err != nil {
				return err.Error()
			}
			return invented(c, redis)
		}).Should(Equal(value))
	}
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) })
	f.settle(redis)
	placed := copyOf(redis)
	if f.get(f.member, placed); *placed.Spec.Replicas != 2 {
		t.Error("the copy did not follow")
	}
	if onHub, inMember := invented(f.hub, redis), invented(f.member, redis); onHub != "on the hub" || inMember != "in the member" {
		t.Errorf("on the hub %q, in the member %q", onHub, inMember)
	}
	f.wantNoWrites(redis)
}
