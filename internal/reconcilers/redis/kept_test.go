// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	instanceLabel  = "app.kubernetes.io/instance"
	syncOptions    = "argocd.argoproj.io/sync-options"
	compareOptions = "argocd.argoproj.io/compare-options"
)

// asMadeBefore sets the metadata of earlier versions on the password and the volumes of web.
func (e *env) asMadeBefore(claims ...string) {
	e.Helper()
	objects := []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web-auth"}}}
	for _, name := range claims {
		objects = append(objects, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, obj := range objects {
		e.get(obj.GetName(), obj)
		obj.GetLabels()[instanceLabel] = "web"
		annotations := obj.GetAnnotations()
		delete(annotations, syncOptions)
		delete(annotations, compareOptions)
		obj.SetAnnotations(annotations)
		if err := member.Client.Update(e.ctx, obj); err != nil {
			e.Fatal(err)
		}
	}
}

func (e *env) expectKept(obj client.Object, name string) {
	e.Helper()
	e.get(name, obj)
	if value, found := obj.GetLabels()[instanceLabel]; found {
		e.Errorf("%T %s has label %s=%s, by which a tool may prune it", obj, name, instanceLabel, value)
	}
	e.Expect(obj.GetLabels()).To(HaveKeyWithValue(flotillav1.LabelRedis, "web"))
	e.expectOptions(obj)
}

func (e *env) expectOptions(obj client.Object) {
	e.Helper()
	e.Expect(obj.GetAnnotations()).To(And(
		HaveKeyWithValue(syncOptions, ContainSubstring("Prune=false,Delete=false")), HaveKeyWithValue(compareOptions, ContainSubstring("IgnoreExtraneous"))))
}

func TestReconcile_what_outlives_a_redis_has_no_label_by_which_tools_prune(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)
	e.expectKept(&corev1.Secret{}, "web-auth")
	e.expectKept(&corev1.PersistentVolumeClaim{}, "data-web-0")
	e.expectKept(&corev1.PersistentVolumeClaim{}, "data-web-1")
}

func TestReconcile_the_password_and_volumes_of_an_earlier_version_are_protected(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)
	before := &corev1.Secret{}
	e.get("web-auth", before)
	e.asMadeBefore("data-web-0", "data-web-1")
	// The volume of a Pod that is no longer desired is kept too.
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(1)) })
	e.remove("web-1", &corev1.Pod{})
	e.settle("web")
	secret := &corev1.Secret{}
	e.expectKept(secret, "web-auth")
	e.Expect(secret.Data).To(Equal(before.Data))
	e.expectKept(&corev1.PersistentVolumeClaim{}, "data-web-0")
	e.expectKept(&corev1.PersistentVolumeClaim{}, "data-web-1")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
}

func TestReconcile_options_of_a_person_for_a_volume_stay(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	e.asMadeBefore("data-web-0")
	claim := &corev1.PersistentVolumeClaim{}
	e.get("data-web-0", claim)
	claim.Annotations[syncOptions] = "Replace=true"
	e.Expect(member.Client.Update(e.ctx, claim)).To(Succeed())
	e.settle("web")
	e.expectKept(claim, "data-web-0")
	e.Expect(claim.Annotations[syncOptions]).To(Equal("Replace=true,Prune=false,Delete=false"))
}

// TestReconcile_a_member_with_earlier_rights_is_told_of_what_may_be_pruned has the rights of a member whose role and
// policies are those of an earlier version: no labels of claims change, and no Secret does.
func TestReconcile_a_member_with_earlier_rights_is_told_of_what_may_be_pruned(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	e.asMadeBefore("data-web-0")
	forbidden := func(resource, name string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, nil)
	}
	e.writes.refusePatch = func(obj client.Object, patch string) error {
		switch {
		case obj.GetName() == "web-auth":
			return forbidden("secrets", "web-auth")
		case obj.GetName() == "data-web-0" && strings.Contains(patch, instanceLabel):
			return forbidden("persistentvolumeclaims", "data-web-0")
		default:
			return nil
		}
	}
	e.pass("web")
	e.pass("web")
	claim := &corev1.PersistentVolumeClaim{}
	e.get("data-web-0", claim)
	e.expectOptions(claim)
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectCondition("web", flotillav1.ConditionDataAtRisk, metav1.ConditionTrue, flotillav1.ReasonPrunable)
	e.expectMessage("web", flotillav1.ConditionDataAtRisk, "kubectl label secret web-auth -n "+e.namespace+" app.kubernetes.io/instance-")

	e.writes.refusePatch = nil
	e.settle("web")
	e.expectKept(&corev1.Secret{}, "web-auth")
	e.expectCondition("web", flotillav1.ConditionDataAtRisk, metav1.ConditionTrue, flotillav1.ReasonMaxMemoryUnset)
}
