// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const quotaWords = `pods "web-2" is forbidden: exceeded quota: team, requested: requests.memory=1Gi, used: requests.memory=2Gi, limited: requests.memory=2Gi`

// refuseCreation does what the StatefulSet controller does when it cannot create a Pod of web.
func (e *env) refuseCreation(podName, cause string) {
	e.Helper()
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	e.create(&eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{GenerateName: "web-"},
		EventTime:           metav1.NowMicro(),
		ReportingController: "statefulset-controller", ReportingInstance: "0", Action: "Create", Type: corev1.EventTypeWarning, Reason: "FailedCreate",
		Regarding: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: e.namespace, Name: "web", UID: set.UID},
		Note:      "create Pod " + podName + " in StatefulSet web failed error: " + cause,
	})
}

// observeTemplate acts as the StatefulSet controller when a template changes: it only observes the generation.
func (e *env) observeTemplate() {
	e.Helper()
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	set.Status.ObservedGeneration = set.Generation
	e.Expect(member.Client.Status().Update(e.ctx, set)).To(Succeed())
}

func memory(size string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(size)}}
}

// withMemory runs web with three Pods that request 1Gi each, of which the last is missing.
func (e *env) withMemory() {
	e.Helper()
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{Replicas: new(int32(3)), Resources: memory("1Gi")}})
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	e.remove("web-2", &corev1.Pod{})
	e.settle("web")
	e.recorder.take()
}

func TestReconcile_a_pod_that_cannot_be_created_is_explained(t *testing.T) {
	e := newEnv(t)
	e.withMemory()
	e.expectCondition("web", flotillav1.ConditionPodsCreated, metav1.ConditionFalse, flotillav1.ReasonCreatingPods)
	result, err := e.try("web")
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 16*time.Second {
		t.Errorf("a pass over a Redis without a Pod returned %v, %v; want another one within 15 s", result, err)
	}

	e.refuseCreation("web-2", quotaWords)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.4" })
	e.settle("web")
	e.observeTemplate()
	e.later(17 * time.Second)
	e.settle("web")
	for condition, status := range map[string]metav1.ConditionStatus{
		flotillav1.ConditionPodsCreated: metav1.ConditionFalse, flotillav1.ConditionRolloutBlocked: metav1.ConditionTrue, flotillav1.ConditionDegraded: metav1.ConditionTrue,
	} {
		e.expectCondition("web", condition, status, flotillav1.ReasonPodNotCreated)
		e.expectMessage("web", condition, "exceeded quota: team")
	}
	e.expectMessage("web", flotillav1.ConditionReady, "exceeded quota: team")
	e.expectEvents("RolloutBlocked", "RolloutStarted", "PodNotCreated")
	if gone := e.going("web-0", "web-1"); len(gone) > 0 {
		t.Errorf("%v are replaced while a Pod cannot be created", gone)
	}

	// Once it is created, the rollout continues.
	e.runStatefulSet("web", true)
	e.pass("web")
	e.expectCondition("web", flotillav1.ConditionPodsCreated, metav1.ConditionTrue, flotillav1.ReasonPodsExist)
	e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionFalse, flotillav1.ReasonNone)
	e.Expect(e.going("web-0", "web-1")).To(Equal([]string{"web-1"}))
}

func TestReconcile_a_spec_that_asks_for_less_is_rolled_out_past_a_quota(t *testing.T) {
	e := newEnv(t)
	e.withMemory()
	e.refuseCreation("web-2", quotaWords)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Resources = memory("512Mi") })
	e.settle("web")
	e.observeTemplate()
	e.later(17 * time.Second)
	e.pass("web")
	e.Expect(e.going("web-0", "web-1")).To(Equal([]string{"web-1"}), "the replica that asks for more than the spec makes room")
	e.settle("web")
	e.Expect(e.going("web-0")).To(BeEmpty(), "the primary waits for the replicas")
	e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue, flotillav1.ReasonPodNotCreated)
	e.runStatefulSet("web", true)
	e.pass("web")
	e.Expect(e.going("web-0")).To(Equal([]string{"web-0"}))
}

func TestReconcile_a_quota_costs_no_primary_without_approval(t *testing.T) {
	e := newEnv(t)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{Replicas: new(int32(1)), Resources: memory("1Gi")}})
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Replicas, r.Spec.Resources = new(int32(2)), memory("512Mi") })
	e.settle("web")
	e.observeTemplate()
	e.refuseCreation("web-1", `pods "web-1" is forbidden: exceeded quota: team`)
	e.later(17 * time.Second)
	e.settle("web")
	e.Expect(e.going("web-0")).To(BeEmpty())
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	hash := set.Spec.Template.Annotations[flotillav1.AnnotationSpecHash]
	e.expectMessage("web", flotillav1.ConditionRolloutBlocked, "flotilla.dev/approve-primary-update="+hash)
	e.change("web", func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationApprovePrimaryUpdate: hash}
	})
	e.pass("web")
	e.Expect(e.going("web-0")).To(Equal([]string{"web-0"}))
}

func TestReconcile_an_old_event_explains_nothing(t *testing.T) {
	e := newEnv(t)
	e.withMemory()
	e.later(time.Hour)
	e.remove("web-1", &corev1.Pod{})
	e.runStatefulSet("web", true)
	e.settle("web")
	e.refuseCreation("web-2", quotaWords)
	e.remove("web-2", &corev1.Pod{})
	e.settle("web")
	e.later(17 * time.Second)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionPodsCreated, metav1.ConditionFalse, flotillav1.ReasonPodNotCreated)
	e.expectMessage("web", flotillav1.ConditionPodsCreated, "kubectl get events")
}

// node makes node-1, on which the Pods run.
func (e *env) node(name string, ready corev1.ConditionStatus) {
	e.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	e.Expect(member.Client.Create(e.ctx, node)).To(Succeed())
	e.Cleanup(func() { _ = member.Client.Delete(context.Background(), node) })
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	e.Expect(member.Client.Status().Update(e.ctx, node)).To(Succeed())
}

func TestReconcile_a_pod_that_does_not_end_is_explained(t *testing.T) {
	for name, tc := range map[string]struct {
		ready  corev1.ConditionStatus
		reason string
		says   string
	}{
		"on a node that is gone":       {reason: flotillav1.ReasonNodeLost, says: "is gone; if that node is off for certain, taint it node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or run kubectl delete pod web-1 -n "},
		"on a node that is not Ready":  {ready: corev1.ConditionUnknown, reason: flotillav1.ReasonNodeLost, says: "is not Ready; if that node is off"},
		"on a node that is well after": {ready: corev1.ConditionTrue, reason: flotillav1.ReasonTerminationStuck, says: "look at its finalizers"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.nodeName = e.namespace
			if tc.ready != "" {
				e.node(e.nodeName, tc.ready)
			}
			e.running("web", 2)
			e.change("web", func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.4" })
			e.settle("web")
			e.observeTemplate()
			e.later(0)
			e.pass("web")
			result, err := e.try("web")
			if err != nil || result.RequeueAfter > 3*time.Minute {
				t.Errorf("a pass while a Pod ends returned %v, %v; want another one when it should have ended", result, err)
			}
			e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionFalse, flotillav1.ReasonNone)
			// A grace period of a minute, and another minute.
			e.later(2*time.Minute + time.Second)
			e.settle("web")
			for _, condition := range []string{flotillav1.ConditionRolloutBlocked, flotillav1.ConditionDegraded} {
				e.expectCondition("web", condition, metav1.ConditionTrue, tc.reason)
				e.expectMessage("web", condition, tc.says)
			}
			e.expectMessage("web", flotillav1.ConditionReady, tc.says)
			if e.gone("web-1", &corev1.Pod{}) {
				t.Error("a Pod was deleted by force")
			}
		})
	}
}

func TestReconcile_a_node_that_is_lost_is_named(t *testing.T) {
	e := newEnv(t)
	e.nodeName = e.namespace
	e.node(e.nodeName, corev1.ConditionUnknown)
	e.running("web", 1)
	pod := &corev1.Pod{}
	e.setReady("web-0", false)
	e.get("web-0", pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "redis", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	e.Expect(member.Client.Status().Update(e.ctx, pod)).To(Succeed())
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionDegraded, metav1.ConditionTrue, flotillav1.ReasonNodeLost)
	e.expectMessage("web", flotillav1.ConditionReady, "Pod web-0 is not Ready: its node "+e.nodeName+" is not Ready")
}

func TestReconcile_a_volume_that_is_being_bound_is_no_alarm(t *testing.T) {
	e := newEnv(t)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	e.settle("web")
	e.runStatefulSet("web", false)
	pod := &corev1.Pod{}
	e.get("web-0", pod)
	since := metav1.Now().Rfc3339Copy()
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.", LastTransitionTime: since,
	}}}
	e.Expect(member.Client.Status().Update(e.ctx, pod)).To(Succeed())
	e.recorder.take()
	e.clock.SetTime(since.Add(5 * time.Second))
	e.settle("web")
	e.expectEvents()
	e.expectCondition("web", flotillav1.ConditionDegraded, metav1.ConditionTrue, flotillav1.ReasonReplicasNotReady)
	result, err := e.try("web")
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 10*time.Second {
		t.Errorf("the pass returned %v, %v; want another one when 15 s are over", result, err)
	}

	e.clock.SetTime(since.Add(15 * time.Second))
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionDegraded, metav1.ConditionTrue, flotillav1.ReasonUnschedulable)
	e.expectMessage("web", flotillav1.ConditionReady, "unbound immediate")
	e.expectEvents("Unschedulable web-0")
}

func TestReconcile_no_pod_is_missed_before_there_is_a_statefulset(t *testing.T) {
	e := newEnv(t)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{
		Auth: flotillav1.RedisAuth{SecretRef: &flotillav1.RedisSecretRef{Name: "mine"}},
	}})
	e.settle("web")
	e.clock.SetTime(e.clock.Now().Add(time.Hour))
	e.settle("web")
	e.expectEvents("SecretMissing")
	e.expectCondition("web", flotillav1.ConditionPodsCreated, metav1.ConditionFalse, flotillav1.ReasonCreatingPods)
	e.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{flotillav1.LabelRedisAuth: "true"}}, StringData: map[string]string{"password": "x"},
	})
	e.clock.SetTime(time.Now())
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionPodsCreated, metav1.ConditionFalse, flotillav1.ReasonCreatingPods)
}
