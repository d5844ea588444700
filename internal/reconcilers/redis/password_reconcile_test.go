// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// setPasswords writes the keys of a Secret; an empty value removes its key.
func (e *env) setPasswords(secretName string, values map[string]string) {
	e.Helper()
	secret := &corev1.Secret{}
	e.get(secretName, secret)
	for key, value := range values {
		secret.Data[key] = []byte(value)
		if value == "" {
			delete(secret.Data, key)
		}
	}
	if err := member.Client.Update(e.ctx, secret); err != nil {
		e.Fatal(err)
	}
}

// going returns the Pods of web that are gone or terminating, and completes the termination, because there is no kubelet.
func (e *env) going(names ...string) []string {
	e.Helper()
	var going []string
	for _, name := range names {
		pod := &corev1.Pod{}
		gone := e.gone(name, pod)
		if !gone && pod.DeletionTimestamp != nil {
			e.remove(name, &corev1.Pod{})
			gone = true
		}
		if gone {
			going = append(going, name)
		}
	}
	return going
}

// rollout updates web's Pods to its template and returns which Pods were replaced together, in order.
func (e *env) rollout(names ...string) [][]string {
	e.Helper()
	var steps [][]string
	for range 2 * len(names) {
		e.settle("web")
		e.runStatefulSet("web", true)
		e.pass("web")
		going := e.going(names...)
		if len(going) == 0 {
			break
		}
		steps = append(steps, going)
		e.runStatefulSet("web", true)
	}
	e.settle("web")
	return steps
}

func TestReconcile_a_password_is_rotated_with_both_accepted(t *testing.T) {
	e := newEnv(t)
	e.running("web", 3)
	secret := &corev1.Secret{}
	e.get("web-auth", secret)
	old := string(secret.Data["password"])
	pods := []string{"web-0", "web-1", "web-2"}
	result, err := e.try("web")
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Minute {
		t.Errorf("the pass over a settled Redis returned %v, %v; want its Secret read again within a minute", result, err)
	}

	e.setPasswords("web-auth", map[string]string{"password": "new", "previous": old})
	oneByOne := [][]string{{"web-2"}, {"web-1"}, {"web-0"}}
	e.expectSteps("both passwords", oneByOne, e.rollout(pods...))
	e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonTwoPasswords)
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.expectEvents("RolloutStarted", "PodReplaced web-2", "PodReplaced web-1", "PodReplaced web-0", "PrimaryNotReady web-0", "RolloutCompleted", "TwoPasswords", "Ready")

	e.setPasswords("web-auth", map[string]string{"previous": ""})
	e.expectSteps("the new password only", oneByOne, e.rollout(pods...))
	e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonUpdated)
	e.recorder.take()

	e.setPasswords("web-auth", map[string]string{"password": "newest"})
	e.expectSteps("another password without the previous one", [][]string{pods}, e.rollout(pods...))

	e.setPasswords("web-auth", map[string]string{"previous": "two\nlines"})
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonSecretMissing)
}

func (e *env) expectSteps(what string, want, got [][]string) {
	e.Helper()
	e.Expect(got).To(Equal(want), what)
}

func TestReconcile_a_referenced_secret_is_followed(t *testing.T) {
	e := newEnv(t)
	labels := map[string]string{flotillav1.LabelRedisAuth: "true"}
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: labels}, StringData: map[string]string{"pw": "a", "note": "x"}})
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{
		Auth: flotillav1.RedisAuth{SecretRef: &flotillav1.RedisSecretRef{Name: "mine", Key: "pw"}},
	}})
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)

	e.setPasswords("mine", map[string]string{"note": "y"})
	e.expectSteps("a key of somebody else", nil, e.rollout("web-0"))
	e.setPasswords("mine", map[string]string{"pw": "b"})
	e.expectSteps("the password", [][]string{{"web-0"}}, e.rollout("web-0"))

	// Without its Secret nothing is changed, the Pods keep running, and the Redis recovers when the Secret is restored.
	e.recorder.take()
	e.remove("mine", &corev1.Secret{})
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.4" })
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonSecretMissing)
	e.expectCondition("web", flotillav1.ConditionPrimaryAvailable, metav1.ConditionTrue, flotillav1.ReasonPrimaryReady)
	e.expectEvents("SecretMissing")
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: labels}, StringData: map[string]string{"pw": "b"}})
	e.expectSteps("the image that waited", [][]string{{"web-0"}}, e.rollout("web-0"))
}

func TestReconcile_a_rotation_concerns_its_own_key(t *testing.T) {
	e := newEnv(t)
	e.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "shared", Labels: map[string]string{flotillav1.LabelRedisAuth: "true"}},
		StringData: map[string]string{"web": "web-old", "api": "api-old"},
	})
	for _, name := range []string{"web", "api"} {
		e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flotillav1.RedisSpec{
			Replicas: new(int32(2)), Auth: flotillav1.RedisAuth{SecretRef: &flotillav1.RedisSecretRef{Name: "shared", Key: name}},
		}})
		e.settle(name)
		e.runStatefulSet(name, true)
		e.settle(name)
	}
	set := &appsv1.StatefulSet{}
	e.get("web", set)
	e.Expect(fmt.Sprint(set.Spec.Template.Spec.Volumes)).To(ContainSubstring("previous-web"))

	e.setPasswords("shared", map[string]string{"web": "web-new", "previous-web": "web-old"})
	e.settle("api")
	e.Expect(e.going("api-0", "api-1")).To(BeEmpty())
	e.expectCondition("api", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonUpdated)
	e.expectSteps("both passwords of web", [][]string{{"web-1"}, {"web-0"}}, e.rollout("web-0", "web-1"))
	e.expectMessage("web", flotillav1.ConditionConfigApplied, "remove key previous-web from Secret shared")

	// The plain key is of key password alone.
	e.setPasswords("shared", map[string]string{"previous": "of-somebody-else"})
	for _, name := range []string{"web", "api"} {
		e.settle(name)
		e.Expect(e.going(name+"-0", name+"-1")).To(BeEmpty())
	}
}

func TestReconcile_a_previous_password_that_no_pod_has_is_refused(t *testing.T) {
	e := newEnv(t)
	e.running("web", 3)
	pods := []string{"web-0", "web-1", "web-2"}
	secret := &corev1.Secret{}
	e.get("web-auth", secret)
	old := string(secret.Data["password"])
	set, after := &appsv1.StatefulSet{}, &appsv1.StatefulSet{}
	e.get("web", set)

	e.setPasswords("web-auth", map[string]string{"password": "new", "previous": old + "x"})
	e.settle("web")
	e.Expect(e.going(pods...)).To(BeEmpty())
	e.get("web", after)
	if set.Generation != after.Generation {
		t.Error("the StatefulSet has changed, so that a Pod that ends comes back with another password")
	}
	for _, condition := range []string{flotillav1.ConditionReady, flotillav1.ConditionConfigApplied} {
		e.expectCondition("web", condition, metav1.ConditionFalse, flotillav1.ReasonPreviousRejected)
		e.expectMessage("web", condition, "Key previous of Secret web-auth is not a password that a Pod runs with")
	}
	e.expectEvents("PreviousRejected")
	e.Expect(fmt.Sprint(e.status("web").Conditions)).NotTo(ContainSubstring(old))

	// A change of the port restarts them together anyway, but not with a password that is wrong.
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Port = 7000 })
	e.settle("web")
	e.Expect(e.going(pods...)).To(BeEmpty())
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Port = 6379 })

	e.setPasswords("web-auth", map[string]string{"previous": old})
	e.expectSteps("the corrected one", [][]string{{"web-2"}, {"web-1"}, {"web-0"}}, e.rollout(pods...))
	e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonTwoPasswords)
}
