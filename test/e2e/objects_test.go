// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// awaitAnother waits until there is an object of the name that is not the one of before, and reads it.
func (r *instance) awaitAnother(t *testing.T, obj client.Object, name string, before types.UID) {
	t.Helper()
	eventually(t, settleTime, fmt.Sprintf("%T %s is there again", obj, name), func(ctx context.Context) error {
		if err := r.member.Get(ctx, r.key(name), obj); err != nil {
			return err
		}
		if obj.GetUID() == before || obj.GetDeletionTimestamp() != nil {
			return fmt.Errorf("it is still the old one")
		}
		return nil
	})
}

func deleteServices(t *testing.T, s *story) {
	s.mustKeepAll(t, func(*writer) {
		for _, suffix := range []string{"-primary", "-0", "-any", "-headless"} {
			name := redisName + suffix
			var before, after corev1.Service
			s.get(t, name, &before)
			s.drop(t, &corev1.Service{}, name)
			if suffix == "-primary" {
				s.whenBroken(t)
			}
			s.awaitAnother(t, &after, name, before.UID)
			if after.Spec.ClusterIP != before.Spec.ClusterIP {
				t.Errorf("Service %s came back with address %s instead of %s", name, after.Spec.ClusterIP, before.Spec.ClusterIP)
			}
		}
	})
	s.awaitEvent(t, "ServiceRecreated", "")
	s.tell("same addresses")
}

func deleteChildren(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) {
		pods := s.identities(t, s.member)
		var config, newConfig corev1.ConfigMap
		var budget, newBudget policyv1.PodDisruptionBudget
		var set appsv1.StatefulSet
		s.get(t, redisName, &set)
		s.get(t, set.Spec.Template.Annotations[flotillav1.AnnotationConfig], &config)
		s.get(t, redisName, &budget)
		s.drop(t, &corev1.ConfigMap{}, config.Name)
		s.drop(t, &policyv1.PodDisruptionBudget{}, budget.Name)
		s.whenBroken(t)
		s.awaitAnother(t, &newConfig, config.Name, config.UID)
		s.awaitAnother(t, &newBudget, budget.Name, budget.UID)
		for key, value := range config.Data {
			if newConfig.Data[key] != value {
				t.Errorf("key %s of the ConfigMap was\n%s\nand is\n%s", key, value, newConfig.Data[key])
			}
		}
		s.mustBeUntouched(t, s.member, pods)
	})
	w.mustFlow(t, "no Pod was touched")
}

// deleteSecret takes the generated password away: it is not generated anew, and everything goes on until it is restored.
func deleteSecret(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) {
		pods := s.identities(t, s.member)
		var secret corev1.Secret
		s.get(t, redisName+"-auth", &secret)
		s.drop(t, &corev1.Secret{}, secret.Name)
		s.whenBroken(t)
		// Secrets are never listed nor watched: the next pass sees it, and any change makes one.
		s.ask(t, func(spec *flotillav1.RedisSpec) { spec.TerminationGracePeriodSeconds = new(int64(61)) })
		s.awaitCondition(t, flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonAuthLost)
		s.ask(t, func(spec *flotillav1.RedisSpec) { spec.TerminationGracePeriodSeconds = new(int64(60)) })
		restored := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels},
			Data:       secret.Data,
		}
		if err := s.member.Create(t.Context(), restored); err != nil {
			t.Fatalf("restoring the Secret: %v", err)
		}
		s.settle(t)
		s.mustBeUntouched(t, s.member, pods)
	})
	w.mustFlow(t, "no Pod was touched")
	s.tell("AuthLost until restored")
}

// loseVolumes deletes the claims of some Pods together with the Pods, as when their disks are gone, and returns the new claims.
func (s *story) loseVolumes(t *testing.T, ordinals ...int) []corev1.PersistentVolumeClaim {
	t.Helper()
	claimName := func(ordinal int) string { return fmt.Sprintf("data-%s-%d", redisName, ordinal) }
	before, after := make([]corev1.PersistentVolumeClaim, len(ordinals)), make([]corev1.PersistentVolumeClaim, len(ordinals))
	for i, ordinal := range ordinals {
		s.get(t, claimName(ordinal), &before[i])
		s.drop(t, &corev1.PersistentVolumeClaim{}, claimName(ordinal))
		s.drop(t, &corev1.Pod{}, podName(ordinal))
	}
	s.whenBroken(t)
	for i, ordinal := range ordinals {
		claim := claimName(ordinal)
		// A Pod that comes back before its claim is gone waits for a claim that does not come: it is deleted once more.
		eventually(t, settleTime, "the claim "+claim+" is a new one", func(ctx context.Context) error {
			err := s.member.Get(ctx, s.key(claim), &after[i])
			if err == nil && after[i].UID == before[i].UID {
				return fmt.Errorf("it is still the old one")
			}
			return err
		})
	}
	return after
}

func loseReplicaVolume(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) { s.loseVolumes(t, 2) })
	w.mustFlow(t, "the primary was not touched")
}

// losePrimaryVolume loses the only copy that may serve: it must not start empty, or the replicas would follow it there.
func losePrimaryVolume(t *testing.T, s *story) {
	w := s.startWriter(t)
	w.awaitWrites(t)
	s.stopWriter(w)
	claim := s.loseVolumes(t, 0)[0]
	s.awaitCondition(t, flotillav1.ConditionEmptyPrimaryBlocked, metav1.ConditionTrue, "")
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{redisName + "-1", redisName + "-2"} {
		if lost := s.lost(t, pods[name], 0); lost > 0 {
			t.Errorf("%s lost %d acknowledged writes while the primary was blocked", name, lost)
		}
	}
	total := 0
	for _, l := range s.ledgers {
		total += l.total()
	}
	s.tell("blocked with all %d writes on the replicas", total)

	seen, err := s.copyOf(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	before := seen.DeepCopy()
	metav1.SetMetaDataAnnotation(&seen.ObjectMeta, flotillav1.AnnotationForceEmptyPrimary, string(claim.UID))
	if err := s.member.Patch(t.Context(), seen, client.MergeFrom(before)); err != nil {
		t.Fatalf("forcing the primary to start empty: %v", err)
	}
	s.settle(t)
	s.forget()
	after := s.startWriter(t)
	after.awaitWrites(t)
	eventually(t, settleTime, "the annotation is gone", func(ctx context.Context) error {
		seen, err := s.copyOf(ctx, s.member)
		if err != nil {
			return err
		}
		if _, found := seen.Annotations[flotillav1.AnnotationForceEmptyPrimary]; found {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	s.stopWriter(after)
	if lost := s.check(t); lost > 0 {
		t.Errorf("%d acknowledged writes were lost after the forced start", lost)
	}
	s.tell("started empty when forced")
}

// growStorage asks for larger volumes. On clusters of this machine nothing can grow a host path, so the suite plays the
// storage driver there and reports the new size.
func growStorage(t *testing.T, s *story) {
	size := resource.MustParse("2Gi")
	pods := s.identities(t, s.member)
	w := s.mustKeepAll(t, func(*writer) {
		s.ask(t, func(spec *flotillav1.RedisSpec) { spec.Storage.Size = size })
		s.whenBroken(t)
		for _, c := range []cluster{s.member, s.other} {
			for ordinal := range 3 {
				s.awaitGrown(t, c, fmt.Sprintf("data-%s-%d", redisName, ordinal), size)
			}
		}
		s.awaitCondition(t, flotillav1.ConditionStorageReady, metav1.ConditionTrue, "")
	})
	s.mustBeUntouched(t, s.member, pods)
	w.mustFlow(t, "no Pod was touched")
	s.tell("to %s", size.String())
}

func (s *story) awaitGrown(t *testing.T, c cluster, name string, size resource.Quantity) {
	t.Helper()
	eventually(t, settleTime, fmt.Sprintf("%s in %s has grown", name, c.name), func(ctx context.Context) error {
		var claim corev1.PersistentVolumeClaim
		if err := c.Get(ctx, s.key(name), &claim); err != nil {
			return err
		}
		if asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]; asked.Cmp(size) != 0 {
			return fmt.Errorf("it asks for %s", asked.String())
		}
		if have := claim.Status.Capacity[corev1.ResourceStorage]; have.Cmp(size) < 0 {
			if s.ours() {
				return s.playDriver(ctx, c, &claim, size)
			}
			return fmt.Errorf("it has %s", have.String())
		}
		return nil
	})
}

// playDriver does what a storage driver's resizer does at the end of its work.
func (s *story) playDriver(ctx context.Context, c cluster, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	var volume corev1.PersistentVolume
	if err := c.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName}, &volume); err != nil {
		return err
	}
	before := volume.DeepCopy()
	volume.Spec.Capacity[corev1.ResourceStorage] = size
	if err := c.Patch(ctx, &volume, client.MergeFrom(before)); err != nil {
		return err
	}
	grown := claim.DeepCopy()
	grown.Status.Capacity[corev1.ResourceStorage] = size
	if err := c.Status().Patch(ctx, grown, client.MergeFrom(claim)); err != nil {
		return err
	}
	return fmt.Errorf("the driver has just grown it")
}

// noPasswordAnywhere searches what people and other programs can read.
func (r *instance) noPasswordAnywhere(t *testing.T) {
	places, bytes := 0, 0
	for _, c := range []cluster{r.hub, r.member, r.other} {
		for where, text := range r.readable(t, c) {
			places++
			bytes += len(text)
			for _, spelling := range []string{r.password, base64.StdEncoding.EncodeToString([]byte(r.password))} {
				if strings.Contains(text, spelling) {
					t.Errorf("%s: %s has the password of the Redis", c.name, where)
				}
			}
		}
	}
	if !t.Failed() {
		say("ok   %-52s searched %d logs, objects, metrics and command lines, %d kB", "no password anywhere, "+r.namespace, places, bytes/1000)
	}
}
