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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// mounted returns the ConfigMap that the container of a Pod would mount when it restarts.
func (e *env) mounted(podName string) *corev1.ConfigMap {
	e.Helper()
	pod := &corev1.Pod{}
	e.get(podName, pod)
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == "config" {
			config := &corev1.ConfigMap{}
			e.get(volume.ConfigMap.Name, config)
			return config
		}
	}
	e.Fatalf("Pod %s mounts no configuration", podName)
	return nil
}

// configs returns the names of the ConfigMaps of a Redis except its record.
func (e *env) configs(name string) []string {
	e.Helper()
	var list corev1.ConfigMapList
	if err := member.Client.List(e.ctx, &list, client.InNamespace(e.namespace), client.MatchingLabels{flotillav1.LabelRedis: name}); err != nil {
		e.Fatal(err)
	}
	var names []string
	for _, config := range list.Items {
		if config.Name != name+"-record" {
			names = append(names, config.Name)
		}
	}
	slices.Sort(names)
	return names
}

// replaced does what a StatefulSet controller and a kubelet do after a pass has deleted a Pod.
func (e *env) replaced(name, podName string, ready bool) {
	e.Helper()
	pod := &corev1.Pod{}
	if !e.gone(podName, pod) {
		if pod.DeletionTimestamp == nil {
			e.Fatalf("Pod %s was not deleted", podName)
		}
		e.remove(podName, &corev1.Pod{})
	}
	e.runStatefulSet(name, ready)
}

func TestReconcile_a_pod_keeps_what_it_was_started_with(t *testing.T) {
	for name, stop := range map[string]struct {
		mutate func(*flotillav1.Redis)
		ready  bool
	}{
		"a stopped update":                {func(*flotillav1.Redis) {}, false},
		"an update that waits for a word": {func(r *flotillav1.Redis) { r.Spec.UpdateStrategy.Primary = flotillav1.RedisPrimarySupervised }, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.running("web", 2)
			before := e.mounted("web-0")
			e.change("web", func(r *flotillav1.Redis) {
				stop.mutate(r)
				r.Spec.Config = map[string]flotillav1.ConfigValue{"maxclients": "nonsense"}
				r.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
			})
			e.settle("web")
			e.runStatefulSet("web", true)
			e.pass("web")
			e.replaced("web", "web-1", stop.ready)
			e.settle("web")

			after := e.mounted("web-0")
			if diff := cmp.Diff(before.Data, after.Data); diff != "" {
				t.Errorf("a restarted container of the primary would start with something else (-before +after):\n%s", diff)
			}
			if before.Immutable == nil || !*before.Immutable {
				t.Error("what a Pod was started with can be changed under it")
			}
			next := e.mounted("web-1")
			if !strings.Contains(next.Data["redis.conf"], "maxclients nonsense\n") || !strings.Contains(next.Data["redis.conf"], "maxmemory 805306368\n") {
				t.Errorf("the new Pod does not carry the new spec:\n%s", next.Data["redis.conf"])
			}
			if diff := cmp.Diff(2, len(e.configs("web"))); diff != "" {
				t.Errorf("ConfigMaps are %v", e.configs("web"))
			}

			// The one of before is used again after the change was reverted, and the other one goes with its last Pod.
			e.change("web", func(r *flotillav1.Redis) {
				r.Spec.Config, r.Spec.Resources.Limits, r.Spec.UpdateStrategy = nil, nil, flotillav1.RedisUpdateStrategy{}
			})
			e.settle("web")
			e.runStatefulSet("web", true)
			e.pass("web")
			if !slices.Contains(e.configs("web"), next.Name) {
				t.Error("the ConfigMap of a Pod that is going was removed")
			}
			e.replaced("web", "web-1", true)
			e.settle("web")
			if diff := cmp.Diff([]string{before.Name}, e.configs("web")); diff != "" {
				t.Errorf("ConfigMaps differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReconcile_a_config_that_any_pod_names_stays(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	before := e.mounted("web-0")
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "debug"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "debug", Image: "debug"}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: before.Name}}},
		}}}}},
	}}
	e.create(stranger)
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Config = map[string]flotillav1.ConfigValue{"hz": "20"} })
	e.settle("web")
	e.runStatefulSet("web", true)
	e.pass("web")
	e.replaced("web", "web-0", true)
	e.settle("web")
	if !slices.Contains(e.configs("web"), before.Name) {
		t.Fatal("the ConfigMap of a Pod was removed")
	}
	e.remove("debug", &corev1.Pod{})
	e.settle("web")
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Paused = true })
	e.settle("web")
	e.change("web", func(r *flotillav1.Redis) { r.Spec.Paused = false })
	e.settle("web")
	if slices.Contains(e.configs("web"), before.Name) {
		t.Error("a ConfigMap that no Pod names is still there")
	}
}

// becomeFormer converts a running Redis to the form of a version with one mutable ConfigMap.
func (e *env) becomeFormer(name string, replicas int) *corev1.ConfigMap {
	e.Helper()
	record, config, set := &corev1.ConfigMap{}, &corev1.ConfigMap{}, &appsv1.StatefulSet{}
	e.get(name+"-record", record)
	e.get(e.configOf(name), config)
	former := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-config", Labels: config.Labels, OwnerReferences: config.OwnerReferences},
		Data:       map[string]string{"redis.conf": "of before", "start.sh": "of before", "topology.env": "AUTH=Password\n" + record.Data["topology.env"]},
	}
	e.create(former)
	e.get(name, set)
	delete(set.Spec.Template.Annotations, flotillav1.AnnotationConfig)
	set.Spec.Template.Spec.Volumes = slices.DeleteFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "record" })
	mounts := &set.Spec.Template.Spec.Containers[0].VolumeMounts
	*mounts = slices.DeleteFunc(*mounts, func(m corev1.VolumeMount) bool { return m.Name == "record" })
	for i := range set.Spec.Template.Spec.Volumes {
		if set.Spec.Template.Spec.Volumes[i].Name == "config" {
			set.Spec.Template.Spec.Volumes[i].ConfigMap.Name = former.Name
		}
	}
	if err := member.Client.Update(e.ctx, set); err != nil {
		e.Fatal(err)
	}
	for ordinal := range replicas {
		e.remove(name+"-"+string(rune('0'+ordinal)), &corev1.Pod{})
	}
	e.runStatefulSet(name, true)
	e.remove(record.Name, &corev1.ConfigMap{})
	e.remove(config.Name, &corev1.ConfigMap{})
	e.get(former.Name, former)
	return former
}

func TestReconcile_an_upgrade_takes_over_the_record_and_restarts_nothing(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)
	former := e.becomeFormer("web", 2)
	// Neither the claims nor a Ready Pod show that there was data: only the record does.
	for _, name := range []string{"data-web-0", "data-web-1"} {
		claim := &corev1.PersistentVolumeClaim{}
		e.get(name, claim)
		claim.Annotations = nil
		if err := member.Client.Update(e.ctx, claim); err != nil {
			t.Fatal(err)
		}
	}
	e.setReady("web-0", false)
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	record := &corev1.ConfigMap{}
	e.get("web-record", record)
	for _, want := range []string{"INITIALIZED=true\n", "PASSWORD_GENERATED=true\n", "ADDRESS_PRIMARY="} {
		if !strings.Contains(record.Data["topology.env"], want) {
			t.Errorf("the record lacks %q:\n%s", want, record.Data["topology.env"])
		}
	}
	e.allThere("web-0", "web-1")
	if now := e.mounted("web-0"); now.Name != "web-config" || now.ResourceVersion != former.ResourceVersion {
		t.Errorf("what Pods of the former version mount was changed: %s at %s", now.Name, now.ResourceVersion)
	}
	if config := e.configOf("web"); config == "" || config == "web-config" {
		t.Errorf("new Pods would be started with %q", config)
	}
	for _, note := range e.recorder.take() {
		if strings.HasPrefix(note, "ConfigMapRecreated") {
			t.Errorf("the upgrade recorded %s", note)
		}
	}

	// A primary of the former version accepts the annotation as well.
	claim, redis := &corev1.PersistentVolumeClaim{}, &flotillav1.Redis{}
	e.get("data-web-0", claim)
	e.setReady("web-0", false)
	e.get("web", redis)
	metav1.SetMetaDataAnnotation(&redis.ObjectMeta, flotillav1.AnnotationForceEmptyPrimary, string(claim.UID))
	if err := member.Client.Update(e.ctx, redis); err != nil {
		t.Fatal(err)
	}
	e.settle("web")
	now := e.mounted("web-0")
	if !strings.Contains(now.Data["topology.env"], "FORCE_EMPTY_PRIMARY=true\n") || now.Data["start.sh"] != "of before" || now.Data["redis.conf"] != "of before" {
		t.Errorf("the former ConfigMap is %v", now.Data)
	}

	// It is removed when the last Pod of that version is replaced.
	e.setReady("web-0", true)
	e.settle("web")
	for _, name := range []string{"web-1", "web-0"} {
		if !slices.Contains(e.configs("web"), "web-config") {
			t.Fatal("the former ConfigMap was removed too early")
		}
		e.remove(name, &corev1.Pod{})
		e.runStatefulSet("web", true)
		e.settle("web")
	}
	if diff := cmp.Diff([]string{e.configOf("web")}, e.configs("web")); diff != "" {
		t.Errorf("ConfigMaps differ (-want +got):\n%s", diff)
	}
}

func TestReconcile_no_pod_is_started_with_foreign_scripts(t *testing.T) {
	e := newEnv(t)
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	e.settle("web")
	name := e.configOf("web")
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{flotillav1.LabelRedis: "web"}}, Data: map[string]string{"start.sh": "exec evil"}}
	e.remove(name, &corev1.ConfigMap{})
	e.remove("web", &appsv1.StatefulSet{})
	e.create(foreign)
	e.settle("web")
	if !e.gone("web", &appsv1.StatefulSet{}) {
		t.Error("the StatefulSet was made with foreign scripts")
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonNameConflict)
	e.remove(name, &corev1.ConfigMap{})
	e.settle("web")
	e.get("web", &appsv1.StatefulSet{})

	// Ours by its owner, but not by its content.
	config := &corev1.ConfigMap{}
	e.get(name, config)
	foreign = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: config.Labels, OwnerReferences: config.OwnerReferences}, Immutable: new(true), Data: map[string]string{"start.sh": "exec evil"}}
	e.remove(name, &corev1.ConfigMap{})
	e.remove("web", &appsv1.StatefulSet{})
	e.create(foreign)
	if _, err := e.try("web"); err == nil {
		t.Error("a pass that cannot correct the scripts has no error")
	}
	if !e.gone("web", &appsv1.StatefulSet{}) {
		t.Error("the StatefulSet was made with scripts of a person")
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonChildRejected)
}
