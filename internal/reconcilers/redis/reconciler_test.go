// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

func TestReconcile_creates_what_a_redis_needs_and_then_rests(t *testing.T) {
	e := newEnv(t)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{Replicas: ptr.To[int32](3)}})
	e.settle("web")

	set, configMap, secret := &appsv1.StatefulSet{}, &corev1.ConfigMap{}, &corev1.Secret{}
	e.get("web", set)
	e.get("web-record", configMap)
	e.get(e.configOf("web"), &corev1.ConfigMap{})
	e.get("web-auth", secret)
	e.get("web", &policyv1.PodDisruptionBudget{})
	for _, name := range []string{"web-0", "web-primary", "web-any", "web-headless"} {
		e.get(name, &corev1.Service{})
	}
	if secret.Labels[flotillav1.LabelRedisAuth] != "true" || len(secret.OwnerReferences) > 0 || len(secret.Data["password"]) < 20 {
		t.Errorf("Secret web-auth has labels %v, %d owners and a password of %d bytes", secret.Labels, len(secret.OwnerReferences), len(secret.Data["password"]))
	}
	primary := &corev1.Service{}
	e.get("web-primary", primary)
	if !strings.Contains(configMap.Data["topology.env"], "ADDRESS_PRIMARY="+primary.Spec.ClusterIP+"\n") {
		t.Errorf("the cluster IP %s of web-primary is not recorded in:\n%s", primary.Spec.ClusterIP, configMap.Data["topology.env"])
	}
	e.expectEvents("PasswordGenerated", "Created")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonPrimaryNotReady)

	// No controller creates the Pods here, which is reported once.
	for range 2 {
		e.later(time.Hour)
		e.pass("web")
		if wrote := e.pass("web"); len(wrote) > 0 {
			t.Errorf("a pass without a difference wrote %v", wrote)
		}
	}
	e.expectEvents("PodNotCreated")
	e.clock.SetTime(time.Now())

	e.runStatefulSet("web", false)
	e.setReady("web-0", true)
	e.setReady("web-2", true)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonReplicasNotReady)
	e.expectCondition("web", flotillav1.ConditionPrimaryAvailable, metav1.ConditionTrue, flotillav1.ReasonPrimaryReady)
	e.setReady("web-1", true)
	e.settle("web")
	got := e.status("web")
	got.Conditions = nil
	want := flotillav1.RedisStatus{
		ObservedGeneration: 1, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3, DesiredReplicas: 3,
		Selector: "flotilla.dev/redis=web", Primary: "web-0",
		Members: []flotillav1.RedisMember{
			{Name: "web-0", Role: "primary", Ready: true, Node: "node-1"},
			{Name: "web-1", Role: "replica", Ready: true, Node: "node-1"},
			{Name: "web-2", Role: "replica", Ready: true, Node: "node-1"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status differs (-want +got):\n%s", diff)
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectCondition("web", flotillav1.ConditionStorageReady, metav1.ConditionFalse, flotillav1.ReasonVolumesPending)
	e.expectEvents("Ready")
}

func TestReconcile_deleted_children_come_back(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)
	addresses := map[string]string{}
	for _, name := range []string{"web-0", "web-primary", "web-any"} {
		service := &corev1.Service{}
		e.get(name, service)
		addresses[name] = service.Spec.ClusterIP
		e.remove(name, &corev1.Service{})
	}
	e.remove("web-headless", &corev1.Service{})
	e.remove("web", &policyv1.PodDisruptionBudget{})
	e.settle("web")
	for name, address := range addresses {
		service := &corev1.Service{}
		e.get(name, service)
		if service.Spec.ClusterIP != address {
			t.Errorf("Service %s came back with cluster IP %s, want %s", name, service.Spec.ClusterIP, address)
		}
	}
	e.expectEvents("ServiceRecreated web-0", "ServiceRecreated web-primary", "ServiceRecreated web-any", "ServiceRecreated web-headless", "PodDisruptionBudgetRecreated web")

	for _, name := range []string{"web-record", e.configOf("web")} {
		before := &corev1.ConfigMap{}
		e.get(name, before)
		e.remove(name, &corev1.ConfigMap{})
		e.settle("web")
		after := &corev1.ConfigMap{}
		e.get(name, after)
		if diff := cmp.Diff(before.Data, after.Data); diff != "" {
			t.Errorf("ConfigMap %s came back different (-before +after):\n%s", name, diff)
		}
		e.expectEvents("ConfigMapRecreated " + name)
	}

	// An address that another Service uses meanwhile cannot be restored.
	e.remove("web-any", &corev1.Service{})
	e.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{ClusterIP: addresses["web-any"], Ports: []corev1.ServicePort{{Port: 80}}}})
	e.settle("web")
	e.get("web-any", &corev1.Service{})
	e.expectEvents("ServiceRecreated web-any", "ServiceAddressChanged web-any")
}

func TestReconcile_a_Service_waits_for_its_address_to_be_free(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	service := &corev1.Service{}
	e.get("web-any", service)
	address := service.Spec.ClusterIP
	e.remove("web-any", &corev1.Service{})
	// The API server still treats the address as in use when the Service is gone.
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}}}
	e.create(other)
	e.writes.onApplyFailed = sync.OnceFunc(func() { _ = member.Client.Delete(t.Context(), other) })
	e.settle("web")
	e.get("web-any", service)
	if service.Spec.ClusterIP != address {
		t.Errorf("the Service came back with cluster IP %s, want %s", service.Spec.ClusterIP, address)
	}
	e.expectEvents("ServiceRecreated web-any")
}

func TestReconcile_drift_is_put_right(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	service := &corev1.Service{}
	e.get("web-primary", service)
	service.Spec.Ports[0].Port = 1
	service.Spec.Selector["foreign"] = "true"
	service.Labels["foreign"] = "kept"
	delete(service.Labels, flotillav1.LabelRedis)
	if err := member.Client.Update(e.ctx, service); err != nil {
		t.Fatal(err)
	}
	e.settle("web")
	healed := &corev1.Service{}
	e.get("web-primary", healed)
	if healed.UID != service.UID || healed.Spec.Ports[0].Port != 6379 || healed.Labels["foreign"] != "kept" || healed.Labels[flotillav1.LabelRedis] != "web" {
		t.Errorf("Service web-primary is not put right: %v %v", healed.Labels, healed.Spec)
	}
	e.expectEvents()

	// A field that the spec no longer sets is removed.
	e.change("web", func(r *flotillav1.Redis) { r.Spec.NodeSelector = map[string]string{"disk": "fast"} })
	e.settle("web")
	e.change("web", func(r *flotillav1.Redis) { r.Spec.NodeSelector = nil })
	e.settle("web")
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	if len(set.Spec.Template.Spec.NodeSelector) > 0 {
		t.Errorf("the node selector is still %v", set.Spec.Template.Spec.NodeSelector)
	}
}

func TestReconcile_a_deleted_pod_is_told_once(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)

	// Seen in between.
	e.remove("web-1", &corev1.Pod{})
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonReplicasNotReady)
	e.expectCondition("web", flotillav1.ConditionDegraded, metav1.ConditionTrue, flotillav1.ReasonReplicasNotReady)
	if status := e.status("web"); status.ReadyReplicas != 1 || len(status.Members) != 1 {
		t.Errorf("status has %d ready replicas and members %v", status.ReadyReplicas, status.Members)
	}
	e.expectEvents("PodRecreated web-1")
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectEvents("Ready")

	// It is back before the next pass: only its age shows that. The clock is set back, because creation times have whole seconds.
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Paused = true })
	e.settle("web")
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Paused = false })
	e.settle("web")
	e.recorder.take()
	ready := &flotillav1.Redis{}
	e.get("web", ready)
	for i := range ready.Status.Conditions {
		ready.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	if err := member.Client.Status().Update(e.ctx, ready); err != nil {
		t.Fatal(err)
	}
	e.remove("web-0", &corev1.Pod{})
	e.remove("web-1", &corev1.Pod{})
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectEvents("PodRecreated web-0", "PodRecreated web-1")
}

func TestReconcile_a_pod_that_ends_slowly_is_no_rollout(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)
	for _, name := range []string{"web-1", "web-0"} {
		pod := &corev1.Pod{}
		e.get(name, pod)
		if err := member.Client.Delete(e.ctx, pod); err != nil {
			t.Fatal(err)
		}
		e.settle("web")
		e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonUpdated)
		if name == "web-0" {
			e.expectEvents("PodRecreated web-0", "PrimaryNotReady web-0")
		} else {
			e.expectEvents("PodRecreated web-1")
		}
		e.remove(name, &corev1.Pod{})
		e.settle("web")
		e.runStatefulSet("web", false)
		e.settle("web")
		e.expectEvents()
		e.setReady(name, true)
		e.settle("web")
		e.expectEvents("Ready")
	}
}

func TestReconcile_a_redis_that_is_gone_is_done_with(t *testing.T) {
	e := newEnv(t)
	result, err := e.try("web")
	if err != nil || !result.IsZero() {
		t.Errorf("a pass over a Redis that does not exist ends with %+v and error %v; want neither", result, err)
	}
	if found := e.dump(); len(found) > 0 {
		t.Errorf("it left %d objects behind", len(found))
	}
}

func TestReconcile_foreign_objects_are_never_touched(t *testing.T) {
	e := newEnv(t)
	e.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web-primary"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	e.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web-record", Labels: map[string]string{flotillav1.LabelRedis: "web"}}, Data: map[string]string{"theirs": "1"}})
	service, configMap := &corev1.Service{}, &corev1.ConfigMap{}
	e.get("web-primary", service)
	e.get("web-record", configMap)

	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonNameConflict)
	e.expectEvents("PasswordGenerated", "NameConflict")
	for name, before := range map[string]client.Object{"web-primary": service, "web-record": configMap} {
		now := before.DeepCopyObject().(client.Object)
		e.get(name, now)
		if now.GetResourceVersion() != before.GetResourceVersion() {
			t.Errorf("%s was touched", name)
		}
	}

	e.remove("web-primary", &corev1.Service{})
	e.remove("web-record", &corev1.ConfigMap{})
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonPrimaryNotReady)
	e.expectEvents("Created")
}

func TestReconcile_a_lost_password_stops_everything(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	secret := &corev1.Secret{}
	e.get("web-auth", secret)
	e.remove("web-auth", &corev1.Secret{})
	e.remove("web-any", &corev1.Service{})
	result, err := e.try("web")
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("the pass returned %v, %v; want to look again, as Secrets are not watched", result, err)
	}
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonAuthLost)
	e.expectEvents("AuthLost")
	if !e.gone("web-auth", &corev1.Secret{}) || !e.gone("web-any", &corev1.Service{}) {
		t.Error("objects were created although the password is lost")
	}

	secret.ObjectMeta = metav1.ObjectMeta{Name: secret.Name, Labels: secret.Labels}
	e.create(secret)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectEvents("Ready", "ServiceRecreated web-any")
}

func TestReconcile_a_kept_password_is_used_again(t *testing.T) {
	e := newEnv(t)
	e.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "web-auth", Labels: map[string]string{flotillav1.LabelRedisAuth: "true"}},
		StringData: map[string]string{"password": "from before"},
	})
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	e.settle("web")
	secret := &corev1.Secret{}
	e.get("web-auth", secret)
	if string(secret.Data["password"]) != "from before" {
		t.Error("the password was replaced")
	}
	e.expectEvents("Created")
}

func TestReconcile_a_referenced_secret_needs_its_label(t *testing.T) {
	e := newEnv(t)
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, StringData: map[string]string{"pw": "x"}})
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{
		Auth: flotillav1.RedisAuth{SecretRef: &flotillav1.RedisSecretRef{Name: "mine", Key: "pw"}},
	}})
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonSecretMissing)
	if !e.gone("web", &appsv1.StatefulSet{}) || !e.gone("web-auth", &corev1.Secret{}) {
		t.Error("objects were created without a password")
	}
	secret := &corev1.Secret{}
	e.get("mine", secret)
	secret.Labels = map[string]string{flotillav1.LabelRedisAuth: "true"}
	if err := member.Client.Update(e.ctx, secret); err != nil {
		t.Fatal(err)
	}
	e.settle("web")
	e.get("web", &appsv1.StatefulSet{})
}

func TestReconcile_an_update_replaces_one_pod_at_a_time(t *testing.T) {
	e := newEnv(t)
	e.running("web", 3)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.4" })
	if wrote := e.pass("web"); cmp.Diff([]string{"apply web", "patch status web"}, wrote) != "" {
		t.Errorf("the first pass wrote %v, want the StatefulSet and the status only", wrote)
	}
	if wrote := e.pass("web"); len(wrote) > 0 {
		t.Errorf("before the StatefulSet's controller has seen the template a pass wrote %v", wrote)
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonRollingUpdate)
	e.expectEvents("RolloutStarted")
	for _, next := range []string{"web-2", "web-1", "web-0"} {
		e.runStatefulSet("web", true)
		e.pass("web")
		e.remaining(next)
		e.settle("web")
		e.remaining(next)
		e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, map[bool]string{true: flotillav1.ReasonPrimaryNotReady, false: flotillav1.ReasonReplicasNotReady}[next == "web-0"])
	}
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonUpdated)
	e.expectEvents("PodReplaced web-2", "PodReplaced web-1", "PodReplaced web-0", "PrimaryNotReady web-0", "RolloutCompleted", "Ready")
}

// remaining expects that of three Pods exactly one is gone or terminating, and completes its termination.
func (e *env) remaining(missing string) {
	e.Helper()
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		pod := &corev1.Pod{}
		gone := e.gone(name, pod)
		if !gone && pod.DeletionTimestamp != nil {
			e.remove(name, &corev1.Pod{})
			gone = true
		}
		if gone != (name == missing) {
			e.Fatalf("Pod %s gone: %t, but %s was to be replaced", name, gone, missing)
		}
	}
}

func TestReconcile_a_change_of_port_replaces_all_pods_together(t *testing.T) {
	e := newEnv(t)
	e.running("web", 3)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Port = 7000 })
	e.settle("web")
	e.runStatefulSet("web", true)
	e.pass("web")
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		pod := &corev1.Pod{}
		if !e.gone(name, pod) && pod.DeletionTimestamp == nil {
			t.Errorf("Pod %s still runs on the old port", name)
		}
	}
}

func TestReconcile_paused(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Paused, r.Spec.Image = true, "redis:8.4" })
	e.remove("web-any", &corev1.Service{})
	if wrote := e.pass("web"); cmp.Diff([]string{"patch status web"}, wrote) != "" {
		t.Errorf("a pass over a paused Redis wrote %v, want the status only", wrote)
	}
	e.expectCondition("web", flotillav1.ConditionPaused, metav1.ConditionTrue, flotillav1.ReasonPaused)
	e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionFalse, flotillav1.ReasonPaused)

	e.change("web", func(r *flotillav1.Redis) { r.Spec.Paused = false })
	e.directory.Change(memberName, func(s *clusters.Snapshot) { s.Paused = true })
	if wrote := e.pass("web"); len(wrote) > 0 {
		t.Errorf("a pass in a paused member wrote %v", wrote)
	}
}

func TestReconcile_deletion_keeps_data_unless_told(t *testing.T) {
	for name, tc := range map[string]struct {
		policy string
		kept   bool
	}{"retain": {"Retain", true}, "delete": {"Delete", false}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.running("web", 2)
			e.create(&corev1.PersistentVolumeClaim{ // Of somebody else.
				ObjectMeta: metav1.ObjectMeta{Name: "data-web-5"},
				Spec:       *claimSpec(e, "data-web-0"),
			})
			e.change("web", func(r *flotillav1.Redis) { r.Spec.Storage.RetentionPolicy = tc.policy })
			e.settle("web")
			e.remove("web", &flotillav1.Redis{})
			e.pass("web")
			if !e.gone("web", &flotillav1.Redis{}) {
				t.Error("the Redis is still there")
			}
			for _, claim := range []string{"data-web-0", "data-web-1"} {
				pvc := &corev1.PersistentVolumeClaim{}
				// Nothing takes the protection finalizer off here.
				if kept := !e.gone(claim, pvc) && pvc.DeletionTimestamp == nil; kept != tc.kept {
					t.Errorf("claim %s kept: %t, want %t", claim, kept, tc.kept)
				}
			}
			if kept := !e.gone("web-auth", &corev1.Secret{}); kept != tc.kept {
				t.Errorf("Secret web-auth kept: %t, want %t", kept, tc.kept)
			}
			foreign := &corev1.PersistentVolumeClaim{}
			e.get("data-web-5", foreign)
			if foreign.DeletionTimestamp != nil {
				t.Error("a claim without our label was deleted")
			}
		})
	}
}

func TestReconcile_a_password_that_another_redis_uses_stays(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "api"}, Spec: flotillav1.RedisSpec{
		Auth: flotillav1.RedisAuth{SecretRef: &flotillav1.RedisSecretRef{Name: "web-auth"}},
	}})
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Storage.RetentionPolicy = flotillav1.RedisRetentionDelete })
	e.settle("web")
	e.remove("web", &flotillav1.Redis{})
	e.pass("web")
	if !e.gone("web", &flotillav1.Redis{}) || e.gone("web-auth", &corev1.Secret{}) {
		t.Error("the password of api went with web")
	}
	claim := &corev1.PersistentVolumeClaim{}
	if !e.gone("data-web-0", claim) && claim.DeletionTimestamp == nil {
		t.Error("the volume stays too")
	}
}

func claimSpec(e *env, name string) *corev1.PersistentVolumeClaimSpec {
	claim := &corev1.PersistentVolumeClaim{}
	e.get(name, claim)
	return &corev1.PersistentVolumeClaimSpec{AccessModes: claim.Spec.AccessModes, Resources: claim.Spec.Resources}
}

func TestReconcile_a_primary_that_served_marks_its_volume(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)
	for _, name := range []string{"data-web-0", "data-web-1"} {
		claim := &corev1.PersistentVolumeClaim{}
		e.get(name, claim)
		if claim.Annotations[flotillav1.AnnotationInitialized] != "true" {
			t.Errorf("claim %s is not marked", name)
		}
	}
	configMap := &corev1.ConfigMap{}
	e.get("web-record", configMap)
	if !strings.Contains(configMap.Data["topology.env"], "INITIALIZED=true\n") {
		t.Errorf("the topology does not say that there is data:\n%s", configMap.Data["topology.env"])
	}
}

func TestReconcile_a_member_that_forbids_says_so(t *testing.T) {
	e := newEnv(t)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	e.create(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}},
		Status:     corev1.ResourceQuotaStatus{},
	})
	quota := &corev1.ResourceQuota{}
	e.get("none", quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}}
	if err := member.Client.Status().Update(e.ctx, quota); err != nil {
		t.Fatal(err)
	}
	if _, err := e.try("web"); !apierrors.IsForbidden(err) {
		t.Errorf("the pass returned %v, want the refusal, to be tried again", err)
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonForbidden)
	// A refused object does not block objects that do not need it.
	e.get("web-primary", &corev1.Service{})
	if !e.gone("web", &appsv1.StatefulSet{}) {
		t.Error("the StatefulSet was made without what its Pods are started with")
	}
}

func TestSchema_refuses_a_change_of_persistence_that_would_drop_data(t *testing.T) {
	e := newEnv(t)
	for from, refused := range map[string][]string{"AOF": {"RDB"}, "RDB": {"AOF", "AOFAndRDB"}, "AOFAndRDB": {"RDB"}} {
		for _, to := range []string{"AOF", "RDB", "AOFAndRDB"} {
			obj := &flotillav1.Redis{
				ObjectMeta: metav1.ObjectMeta{Name: "p-" + strings.ToLower(from+"-"+to)},
				Spec:       flotillav1.RedisSpec{Persistence: flotillav1.RedisPersistence{Mode: from}},
			}
			e.create(obj)
			obj.Spec.Persistence.Mode = to
			err := member.Client.Update(e.ctx, obj)
			if got, want := apierrors.IsInvalid(err), slices.Contains(refused, to); got != want {
				t.Errorf("changing persistence from %s to %s: refused is %t, want %t (%v)", from, to, got, want, err)
			}
		}
	}
}
