// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// bind acts as provisioner and kubelet: it binds a claim and sets the requested size.
func (e *env) bind(names ...string) {
	e.Helper()
	for _, name := range names {
		claim := &corev1.PersistentVolumeClaim{}
		e.get(name, claim)
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
		if err := member.Client.Status().Update(e.ctx, claim); err != nil {
			e.Fatal(err)
		}
	}
}

// runningOn creates a Redis of two Pods on volumes of a new StorageClass and brings it to Ready.
func (e *env) runningOn(grows bool) {
	e.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace}, Provisioner: "example.com/none", AllowVolumeExpansion: new(grows),
	}
	if err := member.Client.Create(e.ctx, class); err != nil {
		e.Fatal(err)
	}
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{
		Replicas: ptr.To[int32](2), Storage: flotillav1.RedisStorage{StorageClassName: &class.Name},
	}})
	e.settle("web")
	e.runStatefulSet("web", true)
	e.bind("data-web-0", "data-web-1")
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionStorageReady, metav1.ConditionTrue, flotillav1.ReasonBound)
	e.recorder.take()
}

func (e *env) requested(claim string) string {
	e.Helper()
	obj := &corev1.PersistentVolumeClaim{}
	e.get(claim, obj)
	return obj.Spec.Resources.Requests.Storage().String()
}

func TestReconcile_storage_grows_without_a_restart(t *testing.T) {
	e := newEnv(t)
	e.runningOn(true)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("3Gi") })
	if diff := cmp.Diff([]string{"patch data-web-0", "patch data-web-1", "patch status web"}, e.pass("web")); diff != "" {
		t.Errorf("writes differ (-want +got):\n%s", diff)
	}
	e.settle("web")
	for _, claim := range []string{"data-web-0", "data-web-1"} {
		if got := e.requested(claim); got != "3Gi" {
			t.Errorf("claim %s asks for %s", claim, got)
		}
	}
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	if got := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String(); got != "1Gi" {
		t.Errorf("the template of the claims asks for %s, want it as at birth", got)
	}
	e.expectCondition("web", flotillav1.ConditionStorageReady, metav1.ConditionFalse, flotillav1.ReasonExpanding)
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectEvents("VolumeExpanding data-web-0", "VolumeExpanding data-web-1")

	e.bind("data-web-0", "data-web-1")
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionStorageReady, metav1.ConditionTrue, flotillav1.ReasonBound)
	e.expectEvents("VolumesExpanded")

	// The claim of a new replica is made from the template, and grown.
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Replicas = ptr.To[int32](3) })
	e.settle("web")
	e.runStatefulSet("web", true)
	if got := e.requested("data-web-2"); got != "1Gi" {
		t.Fatalf("the new claim asks for %s", got)
	}
	e.bind("data-web-2")
	e.settle("web")
	if got := e.requested("data-web-2"); got != "3Gi" {
		t.Errorf("the claim of the new replica asks for %s", got)
	}
}

func TestReconcile_a_class_that_does_not_grow_is_named(t *testing.T) {
	e := newEnv(t)
	e.runningOn(false)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("3Gi") })
	result, err := e.try("web")
	if err != nil || result.RequeueAfter < 5*time.Minute {
		t.Errorf("the pass returned %v, %v; want it to be tried again, but not soon", result, err)
	}
	e.expectCondition("web", flotillav1.ConditionStorageReady, metav1.ConditionFalse, flotillav1.ReasonExpansionRefused)
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectEvents("ExpansionRefused")
	if _, err := e.try("web"); err != nil {
		t.Fatal(err)
	}
	e.expectEvents()
	if got := e.requested("data-web-0"); got != "1Gi" {
		t.Errorf("the claim asks for %s", got)
	}

	class := &storagev1.StorageClass{}
	e.get(e.namespace, class)
	class.AllowVolumeExpansion = new(true)
	if err := member.Client.Update(e.ctx, class); err != nil {
		t.Fatal(err)
	}
	e.Eventually(func() string {
		if _, err := e.try("web"); err != nil {
			t.Fatal(err)
		}
		return e.requested("data-web-1")
	}).Should(Equal("3Gi"))
}

func TestReconcile_the_primary_stays_while_its_claim_is_being_deleted(t *testing.T) {
	e := newEnv(t)
	e.runningOn(true)
	// The protection finalizer, which a controller manager would set, keeps the claim as long as its Pod.
	claim := &corev1.PersistentVolumeClaim{}
	e.get("data-web-0", claim)
	claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
	if err := member.Client.Update(e.ctx, claim); err != nil {
		t.Fatal(err)
	}
	if err := member.Client.Delete(e.ctx, claim); err != nil {
		t.Fatal(err)
	}
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Port = 7000 })
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	for _, name := range []string{"web-0", "web-1"} {
		pod := &corev1.Pod{}
		e.get(name, pod)
		if pod.DeletionTimestamp != nil {
			t.Errorf("Pod %s was replaced", name)
		}
	}
	e.expectCondition("web", flotillav1.ConditionStorageReady, metav1.ConditionFalse, flotillav1.ReasonVolumeDeleting)
	e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue, flotillav1.ReasonVolumeDeleting)
	e.expectEvents("RolloutStarted", "RolloutBlocked", "VolumeDeleting")
}

func TestReconcile_a_smaller_size_blocks_no_other_change(t *testing.T) {
	e := newEnv(t)
	e.runningOn(true)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("3Gi") })
	e.settle("web")
	e.bind("data-web-0", "data-web-1")
	e.settle("web")

	// A hub that knows nothing of the emergency, or an override that is gone, brings the size of before with other changes.
	e.change("web", func(r *flotillav1.Redis) {
		r.Spec.Storage.Size, r.Spec.Replicas = resource.MustParse("1Gi"), new(int32(3))
	})
	e.settle("web")
	for _, claim := range []string{"data-web-0", "data-web-1"} {
		if size := e.requested(claim); size != "3Gi" {
			t.Errorf("%s asks for %s", claim, size)
		}
	}
	e.runStatefulSet("web", true)
	e.bind("data-web-2")
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectCondition("web", flotillav1.ConditionStorageReady, metav1.ConditionTrue, flotillav1.ReasonLarger)
	e.expectMessage("web", flotillav1.ConditionStorageReady, "larger than storage.size 1Gi, and left so because volumes do not shrink: data-web-0, data-web-1")
}
