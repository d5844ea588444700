// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
)

// scale does what kubectl scale and an autoscaler do.
func (e *env) scale(name string, replicas int32) error {
	e.Helper()
	obj, scale := &flotillav1.Redis{}, &autoscalingv1.Scale{}
	e.get(name, obj)
	if err := member.Client.SubResource("scale").Get(e.ctx, obj, scale); err != nil {
		e.Fatal(err)
	}
	scale.Spec.Replicas = replicas
	return member.Client.SubResource("scale").Update(e.ctx, obj, client.WithSubResourceBody(scale))
}

func TestReconcile_scales_through_the_subresource(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	if err := e.scale("web", 3); err != nil {
		t.Fatal(err)
	}
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectEvents("ScaledUp", "Ready")

	obj, scale := &flotillav1.Redis{}, &autoscalingv1.Scale{}
	e.get("web", obj)
	if err := member.Client.SubResource("scale").Get(e.ctx, obj, scale); err != nil {
		t.Fatal(err)
	}
	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil || selector.Empty() {
		t.Fatalf("the selector %q selects nothing in particular: %v", scale.Status.Selector, err)
	}
	pods := &corev1.PodList{}
	if err := member.Client.List(e.ctx, pods, client.InNamespace(e.namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		t.Fatal(err)
	}
	if scale.Status.Replicas != 3 || len(pods.Items) != 3 {
		t.Errorf("the scale has %d replicas, and its selector finds %d Pods; want 3 and 3", scale.Status.Replicas, len(pods.Items))
	}

	if err := e.scale("web", 10); !apierrors.IsInvalid(err) {
		t.Errorf("scaling beyond 9 gets %v, want a refusal", err)
	}
	if err := e.scale("web", 1); err != nil {
		t.Fatal(err)
	}
	e.settle("web")
	e.expectEvents("ScaledDown")
	e.remove("web-2", &corev1.Pod{})
	e.remove("web-1", &corev1.Pod{})
	e.settle("web")
	e.expectEvents()
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	for _, claim := range []string{"data-web-0", "data-web-1", "data-web-2"} {
		e.get(claim, &corev1.PersistentVolumeClaim{})
	}

	if err := e.scale("web", 0); err != nil {
		t.Fatal(err)
	}
	e.remove("web-0", &corev1.Pod{})
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonScaledToZero)
	e.expectEvents("ScaledDown")
}

func TestReconcile_children_belong_to_their_redis(t *testing.T) {
	e := newEnv(t)
	e.running("web", 1)
	owner := &flotillav1.Redis{}
	e.get("web", owner)
	children := map[string]client.Object{
		"web": &appsv1.StatefulSet{}, "web-record": &corev1.ConfigMap{}, e.configOf("web"): &corev1.ConfigMap{}, "web-primary": &corev1.Service{}, "web-0": &corev1.Service{},
		"web-any": &corev1.Service{}, "web-headless": &corev1.Service{},
	}
	for name, child := range children {
		e.get(name, child)
		if !metav1.IsControlledBy(child, owner) {
			t.Errorf("%T %s would stay when its Redis goes: owners %v", child, name, child.GetOwnerReferences())
		}
	}
	budget := &policyv1.PodDisruptionBudget{}
	e.get("web", budget)
	if !metav1.IsControlledBy(budget, owner) {
		t.Error("the PodDisruptionBudget would stay when its Redis goes")
	}
}

// specs are as different as specs can be.
func specs() map[string]flotillav1.RedisSpec {
	return map[string]flotillav1.RedisSpec{
		"defaults": {},
		"everything": {
			Replicas: ptr.To[int32](3), Image: "valkey/valkey:9.0", Port: 7000,
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.5"), corev1.ResourceMemory: resource.MustParse("1024Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
			Storage:                       flotillav1.RedisStorage{Size: resource.MustParse("1024Mi"), StorageClassName: new("fast"), RetentionPolicy: "Delete"},
			Persistence:                   flotillav1.RedisPersistence{Mode: "AOFAndRDB", AppendFsync: "always"},
			Memory:                        &flotillav1.RedisMemory{MaxMemoryPercent: ptr.To[int32](60), MaxMemoryPolicy: "allkeys-lru"},
			Config:                        map[string]flotillav1.ConfigValue{"timeout": "300", "notify-keyspace-events": "KEA"},
			NodeSelector:                  map[string]string{"disk": "ssd"},
			Tolerations:                   []corev1.Toleration{{Key: "a", Operator: "Exists"}, {Key: "a", Operator: "Equal", Value: "b", Effect: "NoExecute", TolerationSeconds: ptr.To[int64](5)}},
			PodAntiAffinity:               "Required",
			PriorityClassName:             "system-cluster-critical",
			ImagePullSecrets:              []corev1.LocalObjectReference{{Name: "b"}, {Name: "a"}},
			ImagePullPolicy:               "Always",
			TerminationGracePeriodSeconds: ptr.To[int64](90),
			Affinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: "In", Values: []string{"ssd", "nvme"}}}},
				}}},
				PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "noisy"}}},
				}},
			},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: "ScheduleAnyway"},
				{MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: "DoNotSchedule", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}},
			},
			PodMetadata: &flotillav1.RedisPodMetadata{
				Labels:      map[string]flotillav1.RedisMetadataValue{"team": "shop", "app": "cache"},
				Annotations: map[string]flotillav1.RedisMetadataValue{"example.com/scrape": "true"},
			},
			Service:             flotillav1.RedisService{Type: "LoadBalancer", Annotations: map[string]flotillav1.RedisMetadataValue{"example.com/internal": "true"}},
			PodDisruptionBudget: flotillav1.RedisPodDisruptionBudget{Enabled: new(false)},
			UpdateStrategy:      flotillav1.RedisUpdateStrategy{Primary: "Supervised"},
		},
		"in memory": {
			Storage: flotillav1.RedisStorage{Type: "EmptyDir"}, Persistence: flotillav1.RedisPersistence{Mode: "None"},
			Auth: flotillav1.RedisAuth{Mode: "Disabled"}, PodAntiAffinity: "Disabled",
		},
		"scaled to zero": {Replicas: ptr.To[int32](0)},
	}
}

func TestReconcile_a_settled_redis_costs_no_writes(t *testing.T) {
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec})
			e.settle("web")
			e.runStatefulSet("web", true)
			e.settle("web")
			e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonUpdated)
			before := e.versions()
			for range 10 {
				e.later(time.Minute)
				// Another process, as after a crash or an upgrade.
				e.redis = &redis.Reconciler{Members: e.directory, Recorder: e.recorder, Clock: e.clock}
				if wrote := e.pass("web"); len(wrote) > 0 {
					t.Errorf("a pass over a settled Redis wrote %v", wrote)
				}
			}
			if diff := cmp.Diff(before, e.versions()); diff != "" {
				t.Errorf("objects have changed:\n%s", diff)
			}
		})
	}
}

// versions are the resource versions of everything in the namespace.
func (e *env) versions() map[string]string {
	e.Helper()
	found := map[string]string{}
	for name, raw := range e.dump() {
		var meta metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &meta); err != nil {
			e.Fatal(err)
		}
		found[name] = meta.ResourceVersion
	}
	return found
}

// dump is everything in the namespace but Secrets, as JSON.
func (e *env) dump() map[string][]byte {
	e.Helper()
	found := map[string][]byte{}
	for _, list := range append(cachedLists(), &appsv1.ControllerRevisionList{}, &corev1.EventList{}) {
		if err := member.Client.List(e.ctx, list, client.InNamespace(e.namespace)); err != nil {
			e.Fatal(err)
		}
		raw, err := json.Marshal(list)
		if err != nil {
			e.Fatal(err)
		}
		var items struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(raw, &items); err != nil {
			e.Fatal(err)
		}
		for i, item := range items.Items {
			found[fmt.Sprintf("%T %d", list, i)] = item
		}
	}
	return found
}

func TestReconcile_tells_no_password(t *testing.T) {
	e := newEnv(t)
	var logged strings.Builder
	e.passes = logf.IntoContext(e.ctx, funcr.New(func(prefix, args string) { logged.WriteString(prefix + args + "\n") }, funcr.Options{Verbosity: 10}))
	passwords := []string{"correct-horse", "battery-staple"}
	e.running("generated", 2)
	secret := &corev1.Secret{}
	e.get("generated-auth", secret)
	e.expectSearched(logged.String())
	passwords = append(passwords, string(secret.Data["password"]))
	e.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{flotillav1.LabelRedisAuth: "true"}},
		StringData: map[string]string{"password": passwords[0], "previous": passwords[1]},
	})
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: flotillav1.RedisSpec{
		Auth: flotillav1.RedisAuth{SecretRef: &flotillav1.RedisSecretRef{Name: "mine"}},
	}})
	e.settle("web")
	e.runStatefulSet("web", true)
	e.settle("web")
	e.expectCondition("web", flotillav1.ConditionConfigApplied, metav1.ConditionTrue, flotillav1.ReasonTwoPasswords)
	texts := e.dump()
	// An invalid password is refused and not quoted.
	e.setPasswords("mine", map[string]string{"password": passwords[0] + "\nx"})
	if _, err := e.try("web"); err != nil {
		t.Fatal(err)
	}
	e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonSecretMissing)
	for name, raw := range e.dump() {
		texts["later "+name] = raw
	}
	texts["events"] = []byte(strings.Join(e.recorder.notes, "\n"))
	texts["log"] = []byte(logged.String())
	// client-go logs binary bodies as hexdump -C does, with the text in a column.
	for _, column := range regexp.MustCompile(`\|([^|]{1,16})\|`).FindAllStringSubmatch(logged.String(), -1) {
		texts["bodies in the log"] = append(texts["bodies in the log"], column[1]...)
	}
	if len(texts) < 20 || len(e.recorder.notes) == 0 {
		t.Fatalf("only %d texts and %d events to search", len(texts), len(e.recorder.notes))
	}
	for name, text := range texts {
		for _, password := range passwords {
			if strings.Contains(string(text), password) {
				t.Errorf("a password is in %s", name)
			}
		}
	}
}

// expectSearched makes sure that the log is one with the bodies of requests in it.
func (e *env) expectSearched(log string) {
	e.Helper()
	if !strings.Contains(log, "Body") {
		e.Fatalf("the log of client-go is not searched: %.200q", log)
	}
}

func TestReconcile_events_survive_a_lost_status_write_and_come_once(t *testing.T) {
	e := newEnv(t)
	e.running("web", 2)
	e.remove("web-1", &corev1.Pod{})
	e.writes.refuseStatus = errors.New("the connection broke")
	if _, err := e.try("web"); err == nil {
		t.Fatal("the pass does not say that the status was not written")
	}
	e.expectEvents()
	e.pass("web")
	e.expectEvents("PodRecreated web-1")
	// The process ends right after the status write, and another one takes over.
	e.runStatefulSet("web", true)
	deaf := &redis.Reconciler{Members: e.directory, Recorder: nobody{}, Clock: e.clock}
	e.redis, deaf = deaf, e.redis
	e.settle("web")
	e.redis = deaf
	e.settle("web")
	e.expectEvents()
}

// nobody simulates a process that ends before it records events.
type nobody struct{}

func (nobody) Record(multicluster.ClusterName, client.Object, clusters.Event) {}

// The member's schema lacks both fields: the status does not contain them, and is not written repeatedly because of them.
func TestReconcile_what_an_older_schema_lacks_is_not_reported(t *testing.T) {
	e := newEnv(t)
	e.directory.Change(memberName, func(s *clusters.Snapshot) {
		s.LacksStatus = map[string][]string{"Redis": {"status.primary", "status.members[].node"}}
	})
	e.running("cache", 2)
	status := e.status("cache")
	if status.ReadyReplicas != 2 || len(status.Members) != 2 || status.Primary != "" || status.Members[0].Node != "" {
		t.Errorf("the status is %+v", status)
	}
	if wrote := e.pass("cache"); len(wrote) > 0 {
		t.Errorf("a pass without a difference wrote %v", wrote)
	}
}
