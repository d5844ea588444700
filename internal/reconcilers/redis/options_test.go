// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
)

// TestReconcile_applies_each_object_once tests each rendered object separately: it is applied once, not written again, and
// written exactly once after it was changed.
func TestReconcile_applies_each_object_once(t *testing.T) {
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec})
			objects := map[string]client.Object{
				"web": &appsv1.StatefulSet{}, "web-record": &corev1.ConfigMap{}, "web-0": &corev1.Service{}, "web-any": &corev1.Service{},
				"web-headless": &corev1.Service{}, "web-primary": &corev1.Service{},
			}
			var wrote []string
			for range 5 {
				wrote = append(wrote, e.pass("web")...)
			}
			objects[e.configOf("web")] = &corev1.ConfigMap{}
			for child := range objects {
				if !slices.Contains(wrote, "apply "+child) {
					t.Errorf("%s was never applied: %v", child, wrote)
				}
			}
			e.redis = &redis.Reconciler{Members: e.directory, Recorder: e.recorder, Clock: e.clock}
			if wrote := e.pass("web"); len(wrote) > 0 {
				t.Errorf("what was applied is written again: %v", wrote)
			}
			for child, obj := range objects {
				e.get(child, obj)
				before, ok := obj.DeepCopyObject().(client.Object)
				if !ok {
					t.Fatalf("%T is not an object", obj)
				}
				labels := obj.GetLabels()
				labels["app.kubernetes.io/managed-by"] = "somebody"
				obj.SetLabels(labels)
				if err := member.Client.Patch(e.ctx, obj, client.MergeFrom(before)); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]string{"apply " + child}, e.pass("web")); diff != "" {
					t.Errorf("after a change of %s (-want +got):\n%s", child, diff)
				}
				if wrote := e.pass("web"); len(wrote) > 0 {
					t.Errorf("after %s was put right a pass wrote %v", child, wrote)
				}
			}
		})
	}
}

func TestReconcile_the_budget_comes_and_goes_as_asked(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	want := func(enabled bool) {
		t.Helper()
		e.change("web", func(r *flotillav1.Redis) { r.Spec.PodDisruptionBudget.Enabled = &enabled })
		e.settle("web")
		if gone := e.gone("web", &policyv1.PodDisruptionBudget{}); gone == enabled {
			t.Errorf("with enabled %t the budget is gone: %t", enabled, gone)
		}
		e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	}
	e.recorder.take()
	want(false)
	want(true)
	want(false)
	// It was not missing, as the event for a recreated object would claim.
	e.expectEvents()
	// A budget of the user may have the name that ours would have.
	e.create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	if wrote := e.pass("web"); len(wrote) > 0 {
		t.Errorf("beside a budget of somebody else a pass wrote %v", wrote)
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.get("web", &policyv1.PodDisruptionBudget{})
}

func TestReconcile_services_are_as_open_as_asked(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	address := &corev1.Service{}
	e.get("web-primary", address)
	for _, serviceType := range []corev1.ServiceType{"LoadBalancer", "NodePort", "ClusterIP"} {
		e.change("web", func(r *flotillav1.Redis) {
			r.Spec.Service = flotillav1.RedisService{Type: serviceType}
			if serviceType == "LoadBalancer" {
				r.Spec.Service.Annotations = map[string]flotillav1.RedisMetadataValue{"example.com/internal": "true"}
			}
		})
		e.settle("web")
		for name, want := range map[string]corev1.ServiceType{"web-primary": serviceType, "web-any": serviceType, "web-0": "ClusterIP", "web-headless": "ClusterIP"} {
			service := &corev1.Service{}
			e.get(name, service)
			open := serviceType != "ClusterIP" && want != "ClusterIP"
			if service.Spec.Type != want || (service.Spec.Ports[0].NodePort != 0) != open {
				t.Errorf("%s has type %s and node port %d, want %s", name, service.Spec.Type, service.Spec.Ports[0].NodePort, want)
			}
			_, annotated := service.Annotations["example.com/internal"]
			if annotated != (want == "LoadBalancer") {
				t.Errorf("%s of type %s has the annotation: %t", name, want, annotated)
			}
			if name == "web-primary" && service.Spec.ClusterIP != address.Spec.ClusterIP {
				t.Errorf("%s went from %s to %s", name, address.Spec.ClusterIP, service.Spec.ClusterIP)
			}
		}
	}
	if wrote := e.pass("web"); len(wrote) > 0 {
		t.Errorf("a settled pass wrote %v", wrote)
	}
}

func TestReconcile_a_supervised_primary_waits_for_approval(t *testing.T) {
	e := newEnv(t)
	e.running("web", 3)
	e.change("web", func(r *flotillav1.Redis) {
		r.Spec.UpdateStrategy.Primary = flotillav1.RedisPrimarySupervised
		r.Spec.Image = "redis:8.4"
	})
	e.settle("web")
	for _, next := range []string{"web-2", "web-1"} {
		e.runStatefulSet("web", true)
		e.pass("web")
		e.remaining(next)
		e.settle("web")
	}
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue, flotillav1.ReasonWaitingForApproval)
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonRollingUpdate)
	e.expectEvents("RolloutStarted", "PodReplaced web-2", "PodReplaced web-1", "RolloutBlocked")

	approve := func(hash string) {
		e.change("web", func(r *flotillav1.Redis) {
			r.Annotations = map[string]string{flotillav1.AnnotationApprovePrimaryUpdate: hash}
		})
	}
	approve("of-another-update")
	if wrote := e.pass("web"); len(wrote) > 0 {
		t.Errorf("with the approval of another update a pass wrote %v", wrote)
	}
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	hash := set.Spec.Template.Annotations[flotillav1.AnnotationSpecHash]
	reported := slices.ContainsFunc(e.status("web").Conditions, func(c metav1.Condition) bool {
		return c.Type == flotillav1.ConditionRolloutBlocked && strings.Contains(c.Message, flotillav1.AnnotationApprovePrimaryUpdate+"="+hash)
	})
	if !reported {
		t.Errorf("the condition does not say how to approve %s", hash)
	}
	approve(hash)
	e.pass("web")
	e.remaining("web-0")
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionFalse, flotillav1.ReasonNone)
}
