// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
)

// What a policy does to an object on its way in, as a list of JSON patches.
const (
	mirrorImages = `[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image",
		value: "mirror.example/" + object.spec.template.spec.containers[0].image.replace("mirror.example/", "")}]`
	mirrorAndResize = `[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image",
		value: "mirror.example/" + object.spec.template.spec.containers[0].image.replace("mirror.example/", "")},
		JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources", value: {"limits": {"memory": "2Gi"}, "requests": {"memory": "2Gi"}}}]`
	foreignHash   = `[JSONPatch{op: "replace", path: "/spec/template/metadata/annotations/flotilla.dev~1spec-hash", value: "foreign"}]`
	foreignScript = `has(object.data) && "start.sh" in object.data ? [JSONPatch{op: "replace", path: "/data/start.sh", value: "exec evil"}] : []`
	relabel       = `[JSONPatch{op: "add", path: "/metadata/labels/team", value: "shop"}, JSONPatch{op: "add", path: "/metadata/labels/app.kubernetes.io~1managed-by", value: "policy"}]`
)

// alter makes the API server change the objects of this namespace on admission, and returns a function that stops it.
func (e *env) alter(group, resources, patch string) func() {
	e.Helper()
	name := fmt.Sprintf("%s-%s-%d", e.namespace, resources, time.Now().UnixNano())
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resources}},
				},
			}}},
			MatchConditions:    []admissionv1.MatchCondition{{Name: "namespace", Expression: fmt.Sprintf("object.metadata.namespace == %q", e.namespace)}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			FailurePolicy:      ptr.To(admissionv1.Fail),
			Mutations:          []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: patch}}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	for _, obj := range []client.Object{policy, binding} {
		if err := member.Client.Create(e.ctx, obj); err != nil {
			e.Fatalf("creating %T: %v", obj, err)
		}
	}
	remove := func() {
		for _, obj := range []client.Object{binding, policy} {
			_ = client.IgnoreNotFound(member.Client.Delete(context.Background(), obj))
		}
	}
	e.Cleanup(remove)
	e.Eventually(func() bool { return e.altered(resources) }).Should(BeTrue())
	return func() {
		remove()
		e.Eventually(func() bool { return e.altered(resources) }).Should(BeFalse())
	}
}

// altered reports whether the API server changes an object of a kind.
func (e *env) altered(resources string) bool {
	e.Helper()
	meta := metav1.ObjectMeta{Namespace: e.namespace, Name: "probe", Labels: map[string]string{"app.kubernetes.io/managed-by": "flotilla"}, Annotations: map[string]string{"probe": "true"}}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{flotillav1.AnnotationSpecHash: "none"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "redis", Image: "redis"}}},
	}
	probe := map[string]client.Object{
		"statefulsets":         &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}},
		"services":             &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		"configmaps":           &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"start.sh": "exec ours"}},
		"poddisruptionbudgets": &policyv1.PodDisruptionBudget{ObjectMeta: meta},
	}[resources]
	sent := probe.DeepCopyObject().(client.Object)
	if err := member.Client.Create(e.ctx, probe, client.DryRunAll); err != nil {
		e.Fatalf("trying a policy for %s: %v", resources, err)
	}
	if set, ok := probe.(*appsv1.StatefulSet); ok {
		was, is := sent.(*appsv1.StatefulSet).Spec.Template, set.Spec.Template
		return was.Spec.Containers[0].Image != is.Spec.Containers[0].Image || len(is.Spec.Containers[0].Resources.Limits) > 0 ||
			was.Annotations[flotillav1.AnnotationSpecHash] != is.Annotations[flotillav1.AnnotationSpecHash]
	}
	if config, ok := probe.(*corev1.ConfigMap); ok && config.Data["start.sh"] != "exec ours" {
		return true
	}
	return fmt.Sprint(probe.GetLabels()) != fmt.Sprint(sent.GetLabels())
}

// rollOut simulates the controllers until no Pod is replaced any more, and returns the number of replacements.
func (e *env) rollOut(name string, replicas int) int {
	e.Helper()
	replaced := 0
	for range 3 * replicas {
		e.settle(name)
		e.runStatefulSet(name, true)
		e.pass(name)
		for ordinal := range replicas {
			pod := &corev1.Pod{}
			podName := fmt.Sprintf("%s-%d", name, ordinal)
			if e.gone(podName, pod) {
				replaced++
			} else if pod.DeletionTimestamp != nil {
				e.remove(podName, &corev1.Pod{})
				replaced++
			}
		}
		e.runStatefulSet(name, true)
	}
	e.settle(name)
	return replaced
}

func TestReconcile_a_webhook_that_changes_objects_stops_no_update(t *testing.T) {
	e := newEnv(t)
	e.alter("apps", "statefulsets", mirrorAndResize)
	e.alter("", "services", relabel)
	e.alter("", "configmaps", relabel)
	e.alter("policy", "poddisruptionbudgets", relabel)
	e.running("web", 2)
	e.change("web", func(r *flotillav1.Redis) {
		r.Spec.Image = "redis:8.4"
		r.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	})
	if replaced := e.rollOut("web", 2); replaced != 2 {
		t.Errorf("%d Pods were replaced, want 2", replaced)
	}
	for _, name := range []string{"web-0", "web-1"} {
		pod := &corev1.Pod{}
		if e.get(name, pod); pod.Spec.Containers[0].Image != "mirror.example/redis:8.4" {
			t.Errorf("Pod %s has image %s", name, pod.Spec.Containers[0].Image)
		}
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonUpdated)
	e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionFalse, flotillav1.ReasonNone)
	e.expectCondition("web", flotillav1.ConditionObjectsAltered, metav1.ConditionTrue, flotillav1.ReasonFieldDropped)
	e.expectMessage("web", flotillav1.ConditionObjectsAltered, "StatefulSet web: spec.template.spec.containers[redis].image, spec.template.spec.containers[redis].resources.limits.memory")

	before := e.versions()
	for range 5 {
		if wrote := e.pass("web"); len(wrote) > 0 {
			t.Fatalf("a pass over a settled Redis wrote %v", wrote)
		}
	}
	// A restarted manager writes at most once per object, and this changes nothing.
	e.redis = &redis.Reconciler{Members: e.directory, Recorder: e.recorder, Clock: e.clock}
	times := map[string]int{}
	for _, write := range e.pass("web") {
		times[write]++
	}
	for write, n := range times {
		objects := 1
		if write == "apply web" {
			objects = 2 // The StatefulSet and the budget.
		}
		if n > objects {
			t.Errorf("a new manager did %q %d times", write, n)
		}
	}
	for range 3 {
		if wrote := e.pass("web"); len(wrote) > 0 {
			t.Fatalf("a later pass of a new manager wrote %v", wrote)
		}
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		t.Errorf("a new manager changed objects (-before +after):\n%s", diff)
	}
}

func TestReconcile_what_a_person_changes_beside_a_webhook_is_put_back(t *testing.T) {
	e := newEnv(t)
	end := e.alter("apps", "statefulsets", mirrorImages)
	e.running("web", 1)
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	set.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(1))
	if err := member.Client.Update(e.ctx, set); err != nil {
		t.Fatal(err)
	}
	e.settle("web")
	if e.get("web", set); *set.Spec.Template.Spec.TerminationGracePeriodSeconds == 1 {
		t.Error("a field that a person has changed was not put back")
	}
	e.expectCondition("web", flotillav1.ConditionObjectsAltered, metav1.ConditionTrue, flotillav1.ReasonFieldDropped)

	// Once an hour the write is retried, in case the webhook was removed.
	end()
	if wrote := e.pass("web"); len(wrote) > 0 {
		t.Errorf("a pass wrote %v", wrote)
	}
	e.later(time.Hour)
	e.settle("web")
	if e.get("web", set); strings.Contains(set.Spec.Template.Spec.Containers[0].Image, "mirror") {
		t.Error("the field is not as asked although the webhook is gone")
	}
	if condition := apimeta.FindStatusCondition(e.status("web").Conditions, flotillav1.ConditionObjectsAltered); condition != nil {
		t.Errorf("there is still a condition: %+v", condition)
	}
}

func TestReconcile_a_webhook_that_changes_what_pods_start_with_stops_the_update(t *testing.T) {
	for name, changed := range map[string]struct{ group, resources, patch, field string }{
		"the hash":      {"apps", "statefulsets", foreignHash, "StatefulSet web: spec.template.metadata.annotations[flotilla.dev/spec-hash]"},
		"the ConfigMap": {"", "configmaps", foreignScript, "data[start.sh]"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.running("web", 2)
			e.alter(changed.group, changed.resources, changed.patch)
			e.change("web", func(r *flotillav1.Redis) { r.Spec.Config = map[string]flotillav1.ConfigValue{"hz": "20"} })
			for range 3 {
				e.settle("web")
				e.runStatefulSet("web", true)
			}
			e.settle("web")
			e.allThere("web-0", "web-1")
			e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue, flotillav1.ReasonFieldDropped)
			e.expectMessage("web", flotillav1.ConditionRolloutBlocked, changed.field)
			e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonFieldDropped)
		})
	}
}

func TestReconcile_no_pod_is_started_with_scripts_of_a_webhook(t *testing.T) {
	e := newEnv(t)
	e.alter("", "configmaps", foreignScript)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	e.settle("web")
	if !e.gone("web", &appsv1.StatefulSet{}) {
		t.Error("the StatefulSet was made with scripts of a webhook")
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonFieldDropped)
	e.expectMessage("web", flotillav1.ConditionReady, "data[start.sh]")
}
