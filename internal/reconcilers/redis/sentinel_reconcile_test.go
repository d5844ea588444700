// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// tell does what the kubelet does when the keeper of a Pod has ended with a message: the Pod is the primary at an epoch.
// All containers run.
func (e *env) tell(podName string, epoch int) {
	e.Helper()
	pod := &corev1.Pod{}
	e.get(podName, pod)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: new(true), State: running,
		})
	}
	if epoch >= 0 {
		pod.Status.ContainerStatuses[2].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Message: fmt.Sprintf("primary %d\n", epoch), FinishedAt: metav1.Now(), Reason: "Completed",
		}
	}
	if err := member.Client.Status().Update(e.ctx, pod); err != nil {
		e.Fatalf("setting the status of Pod %s: %v", podName, err)
	}
}

// run runs the Pods of a Redis in mode Sentinel with all their containers, Ready.
func (e *env) run(name string) {
	e.Helper()
	e.runStatefulSet(name, true)
	set := &appsv1.StatefulSet{}
	e.get(name, set)
	for ordinal := range *set.Spec.Replicas {
		pod := &corev1.Pod{}
		e.get(fmt.Sprintf("%s-%d", name, ordinal), pod)
		if len(pod.Spec.Containers) > 1 && len(pod.Status.ContainerStatuses) == 0 {
			e.tell(pod.Name, -1)
		}
	}
}

// sentinelRunning creates a Redis in mode Sentinel whose primary is Pod 0.
func (e *env) sentinelRunning(name string, replicas int32) {
	e.Helper()
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flotillav1.RedisSpec{Mode: flotillav1.RedisModeSentinel, Replicas: &replicas}})
	e.settle(name)
	e.run(name)
	e.tell(name+"-0", 0)
	e.settle(name)
	e.expectCondition(name, flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.recorder.take()
}

// record returns the record of a Redis as a map.
func (e *env) record(name string) map[string]string {
	e.Helper()
	configMap, record := &corev1.ConfigMap{}, map[string]string{}
	e.get(name+"-record", configMap)
	for line := range strings.Lines(configMap.Data["topology.env"]) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		record[key] = strings.Trim(value, `"`)
	}
	return record
}

func (e *env) addressOf(service string) string {
	e.Helper()
	obj := &corev1.Service{}
	e.get(service, obj)
	return obj.Spec.ClusterIP
}

// TestReconcile_sentinel_pods_start_when_all_have_addresses runs with the rights of the hub under the policies of a
// member.
func TestReconcile_sentinel_pods_start_when_all_have_addresses(t *testing.T) {
	e := newEnv(t)
	replicas := int32(3)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{Mode: flotillav1.RedisModeSentinel, Replicas: &replicas}})
	for range 2 {
		e.pass("web")
		if !e.gone("web", &appsv1.StatefulSet{}) {
			t.Error("Pods start before the record has their addresses")
		}
	}
	e.settle("web")
	var addresses []string
	for ordinal := range replicas {
		addresses = append(addresses, e.addressOf(fmt.Sprintf("web-%d", ordinal)))
	}
	record := e.record("web")
	if got := record["ADDRESSES"]; got != strings.Join(addresses, " ") || record["MIGRATING"] != "false" || record["INITIALIZED"] != "false" {
		t.Errorf("the record is %v, want the addresses %v", record, addresses)
	}
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	pod := set.Spec.Template.Spec
	if len(pod.Containers) != 4 || len(pod.InitContainers) > 0 || pod.ServiceAccountName != "" || *pod.AutomountServiceAccountToken {
		t.Errorf("the Pods have %d containers, %d init containers and ServiceAccount %q", len(pod.Containers), len(pod.InitContainers), pod.ServiceAccountName)
	}
	e.expectEvents("PasswordGenerated", "Created")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonPrimaryUnknown)

	e.run("web")
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonPrimaryUnknown)
	e.tell("web-0", 0)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectCondition("web", flotillav1.ConditionPrimaryAvailable, metav1.ConditionTrue, flotillav1.ReasonPrimaryReady)
	e.expectCondition("web", flotillav1.ConditionDataAtRisk, metav1.ConditionTrue, flotillav1.ReasonSingleNode)
	if record := e.record("web"); record["INITIALIZED"] != "true" {
		t.Errorf("a Redis that has served is recorded as %v", record)
	}
	e.expectEvents("Ready")
	if status := e.status("web"); status.Primary != "web-0" || *status.PrimaryEpoch != 0 || status.Failovers != 0 || status.Members[0].Role != "primary" {
		t.Errorf("status is %+v", status)
	}
	if wrote := e.pass("web"); len(wrote) > 0 {
		t.Errorf("a pass without a difference wrote %v", wrote)
	}
}

func TestReconcile_sentinel_reports_who_is_the_primary(t *testing.T) {
	e := newEnv(t)
	e.sentinelRunning("web", 3)
	e.tell("web-2", 1)
	e.settle("web")
	status := e.status("web")
	if status.Primary != "web-2" || *status.PrimaryEpoch != 1 || status.Failovers != 1 || status.LastFailoverTime == nil {
		t.Errorf("status is %+v", status)
	}
	e.expectEvents("PrimaryChanged web-2")
	// Deleted by a person: nobody is known until another Pod tells.
	e.remove("web-2", &corev1.Pod{})
	e.run("web")
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionPrimaryAvailable, metav1.ConditionFalse, flotillav1.ReasonPrimaryUnknown)
	if status := e.status("web"); status.Primary != "" || *status.PrimaryEpoch != 1 {
		t.Errorf("status is %+v", status)
	}
	e.later(time.Minute)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonPrimaryUnknown)
	e.tell("web-1", 2)
	e.settle("web")
	if status := e.status("web"); status.Primary != "web-1" || status.Failovers != 2 {
		t.Errorf("status is %+v", status)
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
}

func TestReconcile_sentinel_services_come_back_with_their_addresses(t *testing.T) {
	e := newEnv(t)
	e.sentinelRunning("web", 3)
	names := []string{"web-0", "web-1", "web-2", "web-any", "web-primary"}
	before := map[string]string{}
	for _, name := range names {
		before[name] = e.addressOf(name)
		e.remove(name, &corev1.Service{})
	}
	e.settle("web")
	after := map[string]string{}
	for _, name := range names {
		after[name] = e.addressOf(name)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the addresses differ (-before +after):\n%s", diff)
	}
}

// TestReconcile_sentinel_scales has Pods start only with an address, and keeps those of Pods that are gone.
func TestReconcile_sentinel_scales(t *testing.T) {
	e := newEnv(t)
	e.sentinelRunning("web", 3)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(5)) })
	set := &appsv1.StatefulSet{}
	e.pass("web")
	if e.get("web", set); *set.Spec.Replicas != 3 {
		t.Error("a Pod is created before its address is known to the others")
	}
	e.settle("web")
	if e.get("web", set); *set.Spec.Replicas != 5 || len(strings.Fields(e.record("web")["ADDRESSES"])) != 5 {
		t.Errorf("there are %d replicas, and the record is %v", *set.Spec.Replicas, e.record("web"))
	}
	e.run("web")
	e.settle("web")
	kept := e.addressOf("web-4")
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(3)) })
	e.settle("web")
	if e.get("web", set); *set.Spec.Replicas != 3 || e.addressOf("web-4") != kept || len(strings.Fields(e.record("web")["ADDRESSES"])) != 5 {
		t.Errorf("there are %d replicas, and the record is %v", *set.Spec.Replicas, e.record("web"))
	}
}

// ended ends the Pod that is being deleted, as a kubelet does, and returns its name, or "" if there is none.
func (e *env) ended(name string) string {
	e.Helper()
	for ordinal := range 3 {
		pod := &corev1.Pod{}
		podName := fmt.Sprintf("%s-%d", name, ordinal)
		if e.gone(podName, pod) || pod.DeletionTimestamp == nil {
			continue
		}
		e.remove(podName, &corev1.Pod{})
		return podName
	}
	return ""
}

// updated runs an update to its end and returns the order of the Pods. step is called after each.
func (e *env) updated(name string, step func(string)) []string {
	e.Helper()
	var order []string
	e.settle(name)
	e.run(name)
	for range 10 {
		e.settle(name)
		gone := e.ended(name)
		if gone == "" {
			return order
		}
		order = append(order, gone)
		e.run(name)
		step(gone)
	}
	e.Fatalf("the update does not end: %v", order)
	return nil
}

func TestReconcile_sentinel_updates_the_primary_last(t *testing.T) {
	e := newEnv(t)
	e.sentinelRunning("web", 3)
	e.tell("web-1", 1)
	e.settle("web")
	e.recorder.take()
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.4" })
	order := e.updated("web", func(pod string) {
		if pod == "web-1" {
			e.tell("web-2", 2)
		}
	})
	if want := []string{"web-2", "web-0", "web-1"}; !slices.Equal(order, want) {
		t.Errorf("the Pods were replaced in order %v, want %v", order, want)
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	if status := e.status("web"); status.Primary != "web-2" || status.Failovers != 2 {
		t.Errorf("status is %+v", status)
	}
	if events := e.recorder.take(); !slices.Contains(events, "PrimaryChanged web-2") || slices.Contains(events, "FailedOver web-2") {
		t.Errorf("events are %v", events)
	}
}

// TestReconcile_the_mode_changes_while_it_runs goes from mode Replication to mode Sentinel.
func TestReconcile_the_mode_changes_while_it_runs(t *testing.T) {
	e := newEnv(t)
	e.running("web", 3)
	before := e.addressOf("web-primary")
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Mode = flotillav1.RedisModeSentinel })
	direct := func() bool {
		service := &corev1.Service{}
		e.get("web-primary", service)
		return service.Spec.Selector[flotillav1.LabelRedisProxy] == ""
	}
	e.settle("web")
	e.run("web")
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionModeChanging, metav1.ConditionTrue, flotillav1.ReasonMigratingToSentinel)
	var order []string
	var clients []bool
	for range 3 {
		order = append(order, e.ended("web"))
		if record := e.record("web"); record["MIGRATING"] != "true" {
			t.Errorf("the record while the mode changes is %v", record)
		}
		clients = append(clients, direct())
		e.run("web")
		e.settle("web")
		if len(order) == 2 {
			if gone := e.ended("web"); gone != "" {
				t.Errorf("Pod %s does not wait until the sentinels have met", gone)
			}
			e.later(11 * time.Second)
			e.settle("web")
		}
	}
	if want := []string{"web-2", "web-1", "web-0"}; !slices.Equal(order, want) {
		t.Errorf("the Pods were replaced in order %v, want %v", order, want)
	}
	if want := []bool{true, true, false}; !slices.Equal(clients, want) {
		t.Errorf("clients went to Pod 0 directly: %v, want %v", clients, want)
	}
	e.tell("web-1", 1)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	if found := apimeta.FindStatusCondition(e.status("web").Conditions, flotillav1.ConditionModeChanging); found != nil {
		t.Errorf("the mode has changed, and the condition is %v", found)
	}
	if record := e.record("web"); record["MIGRATING"] != "false" || e.addressOf("web-primary") != before {
		t.Errorf("the record after the change is %v", record)
	}
	if events := e.recorder.take(); !slices.Contains(events, "ModeChanged") {
		t.Errorf("events are %v", events)
	}
}

func TestReconcile_a_person_chooses_the_primary(t *testing.T) {
	e := newEnv(t)
	e.sentinelRunning("web", 3)
	// All Pods died, and the volume of the primary is empty.
	for ordinal := range 3 {
		e.remove(fmt.Sprintf("web-%d", ordinal), &corev1.Pod{})
	}
	e.runStatefulSet("web", false)
	claim := &corev1.PersistentVolumeClaim{}
	e.get("data-web-2", claim)
	e.change("web", func(r *flotillav1.Redis) {
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, flotillav1.AnnotationForcePrimary, "web-2@"+string(claim.UID))
	})
	e.settle("web")
	if record := e.record("web"); record["FORCE_PRIMARY"] != "2" || record["FORCE_EMPTY_PRIMARY"] != "false" {
		t.Errorf("the record is %v", record)
	}
	for ordinal := range 3 {
		e.setReady(fmt.Sprintf("web-%d", ordinal), true)
	}
	e.tell("web-2", 1)
	e.settle("web")
	redis := &flotillav1.Redis{}
	e.get("web", redis)
	if record := e.record("web"); record["FORCE_PRIMARY"] != "" || redis.Annotations[flotillav1.AnnotationForcePrimary] != "" {
		t.Errorf("the choice is still there: the record is %v, the annotations are %v", record, redis.Annotations)
	}
}
