// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// Objects as the first schemas took them. The NodePools "loose" and "foreign" break rules that came later.
const firstObjects = `
apiVersion: flotilla.dev/v1alpha1
kind: Redis
metadata: {name: cache, namespace: default, finalizers: [flotilla.dev/placement], annotations: {flotilla.dev/hub: hub}}
spec:
  replicas: 3
  port: 6380
  config: {activerehashing: "yes"}
  storage: {type: PersistentVolumeClaim, size: 2Gi, retentionPolicy: Delete}
  placement:
    clusters: [eu-1, us-1]
    overrides: [{clusters: [us-1], patch: {replicas: 1}}]
status:
  observedGeneration: 1
  replicas: 4
  readyReplicas: 3
  placedIn: [eu-1, us-1]
  clusterCounts: {desired: 2, applied: 2, ready: 1, notReady: 0, unknown: 1}
  clusters:
  - {name: eu-1, ready: "True", observedGeneration: 1, replicas: 3, readyReplicas: 3}
  - {name: us-1, ready: Unknown, reason: ClusterUnreachable, replicas: 1, readyReplicas: 0}
  conditions:
  - {type: Ready, status: "True", reason: AllReady, message: "1 of 2 clusters are ready", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}
---
apiVersion: flotilla.dev/v1alpha1
kind: NodePool
metadata: {name: web, finalizers: [flotilla.dev/node-pool]}
spec:
  nodeSelector: {matchLabels: {example.com/group: web}}
  labels: {example.com/team: web}
  taints: [{key: example.com/dedicated, value: web, effect: NoSchedule}]
  handler: runc
status:
  observedGeneration: 1
  status: 200
  nodeCount: 5
  readyNodes: 5
  ownedKeys: ["label:example.com/team"]
  capacity: {cpu: "20", memory: 40Gi}
  conditions:
  - {type: Ready, status: "True", reason: AllNodesUpdated, message: "Nothing is left to do on 5 nodes", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}
---
apiVersion: flotilla.dev/v1alpha1
kind: NodePool
metadata: {name: loose}
spec:
  nodeSelector: {matchLabels: {"not a label key": web}}
  rollout: {maxUnavailable: many}
---
apiVersion: flotilla.dev/v1alpha1
kind: NodePool
metadata: {name: foreign}
spec:
  nodeSelector: {matchLabels: {example.com/group: web}}
  annotations: {cluster.x-k8s.io/cluster-name: web}
  taints: [{key: cluster.x-k8s.io/web, effect: NoSchedule}]
---
apiVersion: flotilla.dev/v1alpha1
kind: MemberCluster
metadata: {name: eu-1}
spec: {secretRef: {namespace: flotilla-clusters, name: eu-1}}
status:
  uid: 11111111-2222-3333-4444-555555555555
  kubernetesVersion: v1.33.0
  conditions:
  - {type: Ready, status: "True", reason: Connected, message: "The member is connected", lastTransitionTime: "2026-01-02T03:04:05Z"}
`

// TestUpgrade brings the schemas of this build over objects of the first ones, as kubectl apply --server-side does with
// dist/install.yaml.
func TestUpgrade(t *testing.T) {
	u := &upgrade{T: t, ctx: t.Context(), cluster: testenv.Start(t), before: map[string]map[string]any{}}
	u.cluster.GoBack(t)
	for _, document := range splitDocuments(firstObjects) {
		u.create(document)
	}
	if _, err := u.cluster.Apply(u.ctx, "dist/install.yaml"); err != nil {
		t.Fatal(err)
	}
	u.until("the new schemas hold", func() bool {
		probe := u.pool("probe", map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"not a label key": "x"}}})
		return u.cluster.Client.Create(u.ctx, probe, client.DryRunAll) != nil
	})
	t.Run("objects_are_as_they_were", u.unchanged)
	t.Run("no_version_is_left_behind", u.versions)
	t.Run("this_build_reads_and_writes_them", u.worked)
	t.Run("what_breaks_a_newer_rule_lives_on", u.ratchet)
}

type upgrade struct {
	*testing.T
	ctx     context.Context
	cluster *testenv.Cluster
	// before are the specs and statuses as they were stored, by kind and name.
	before map[string]map[string]any
}

func splitDocuments(text string) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for _, document := range splitYAML(text) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			panic(err)
		}
		objects = append(objects, object)
	}
	return objects
}

// create stores an object with its status.
func (u *upgrade) create(object *unstructured.Unstructured) {
	u.Helper()
	status, found := object.Object["status"]
	if err := u.cluster.Client.Create(u.ctx, object); err != nil {
		u.Fatal(err)
	}
	if found {
		object.Object["status"] = status
		if err := u.cluster.Client.Status().Update(u.ctx, object); err != nil {
			u.Fatal(err)
		}
	}
	u.before[object.GetKind()+" "+object.GetName()] = object.Object
}

func (u *upgrade) pool(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": flotillav1.GroupVersion.String(), "kind": "NodePool", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func (u *upgrade) until(what string, done func() bool) {
	u.Helper()
	if err := wait.PollUntilContextTimeout(u.ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil }); err != nil {
		u.Fatalf("waiting until %s: %v", what, err)
	}
}

// unchanged compares every object with what it was: nothing is lost, and only defaults come in.
func (u *upgrade) unchanged(t *testing.T) {
	for name, before := range u.before {
		old := &unstructured.Unstructured{Object: before}
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(old.GroupVersionKind())
		if err := u.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(old), now); err != nil {
			t.Fatal(err)
		}
		if now.GetResourceVersion() != old.GetResourceVersion() || now.GetGeneration() != old.GetGeneration() {
			t.Errorf("%s was written", name)
		}
		for _, field := range []string{"metadata", "spec", "status"} {
			for _, lost := range missing(before[field], now.Object[field], field) {
				t.Errorf("%s has lost or changed %s", name, lost)
			}
		}
	}
}

// missing names what is in one value and not, or otherwise, in another one.
func missing(before, now any, path string) []string {
	if before == nil {
		return nil
	}
	fields, isMap := before.(map[string]any)
	if !isMap {
		if diff := cmp.Diff(before, now); diff != "" {
			return []string{path + ": " + diff}
		}
		return nil
	}
	var found []string
	there, _ := now.(map[string]any)
	for name, value := range fields {
		found = append(found, missing(value, there[name], path+"."+name)...)
	}
	return found
}

// versions looks for versions of which objects may still be stored.
func (u *upgrade) versions(t *testing.T) {
	for _, plural := range []string{"redises", "nodepools", "memberclusters"} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := u.cluster.Client.Get(t.Context(), client.ObjectKey{Name: plural + ".flotilla.dev"}, definition); err != nil {
			t.Fatal(err)
		}
		served := map[string]bool{}
		for _, version := range definition.Spec.Versions {
			served[version.Name] = version.Served
		}
		for _, stored := range definition.Status.StoredVersions {
			if !served[stored] {
				t.Errorf("objects of %s may be stored as %s, which is not served", plural, stored)
			}
		}
		if len(definition.Status.StoredVersions) != 1 {
			t.Errorf("%s has stored versions %v", plural, definition.Status.StoredVersions)
		}
	}
}

// worked reads the objects with this build's types, and changes them as the manager and people do.
func (u *upgrade) worked(t *testing.T) {
	ctx, c := t.Context(), u.cluster.Client
	redis, pool, member := &flotillav1.Redis{}, &flotillav1.NodePool{}, &flotillav1.MemberCluster{}
	for object, key := range map[client.Object]client.ObjectKey{
		redis: {Namespace: "default", Name: "cache"}, pool: {Name: "web"}, member: {Name: "eu-1"},
	} {
		if err := c.Get(ctx, key, object); err != nil {
			t.Fatal(err)
		}
	}
	if *redis.Spec.Replicas != 3 || redis.Spec.Storage.RetentionPolicy != flotillav1.RedisRetentionDelete || len(redis.Status.PlacedIn) != 2 ||
		redis.Status.Clusters[1].Reason != "ClusterUnreachable" || redis.Status.ClusterCounts.Unknown != 1 {
		t.Errorf("the Redis is read as %+v", redis)
	}
	if pool.Status.NodeCount != 5 || pool.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule || pool.Status.Capacity.Cpu().Value() != 20 {
		t.Errorf("the NodePool is read as %+v", pool)
	}
	before := redis.DeepCopy()
	redis.Status.ReadyReplicas, redis.Status.Conditions[0].Status = 4, metav1.ConditionFalse
	if err := c.Status().Patch(ctx, redis, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		t.Errorf("the status of the Redis: %v", err)
	}
	before = redis.DeepCopy()
	redis.Spec.Replicas, redis.Spec.PodMetadata = new(int32(2)), &flotillav1.RedisPodMetadata{Labels: map[string]flotillav1.RedisMetadataValue{"example.com/new": "field"}}
	redis.Finalizers = nil
	if err := c.Patch(ctx, redis, client.MergeFrom(before)); err != nil || redis.Spec.PodMetadata == nil || redis.Generation != before.Generation+1 {
		t.Errorf("a change of the Redis, with a field that is new: %v; it is %+v", err, redis.Spec)
	}
	poolBefore := pool.DeepCopy()
	pool.Spec.Reporting = &flotillav1.NodePoolReporting{Requested: true}
	if err := c.Patch(ctx, pool, client.MergeFrom(poolBefore)); err != nil || pool.Spec.Reporting == nil {
		t.Errorf("a change of the NodePool, with a field that is new: %v", err)
	}
	memberBefore := member.DeepCopy()
	member.Status.ObservedGeneration, member.Status.Conditions[0].Message = 1, "Connected"
	if err := c.Status().Patch(ctx, member, client.MergeFrom(memberBefore)); err != nil || member.Status.ObservedGeneration != 1 {
		t.Errorf("the status of the MemberCluster: %v; it is %+v", err, member.Status)
	}
}

// ratchet changes what new rules say nothing about in objects that break them.
func (u *upgrade) ratchet(t *testing.T) {
	ctx := t.Context()
	patch := func(name, document, subresource string) error {
		object, kind := u.pool(name, nil), client.RawPatch(types.MergePatchType, []byte(document))
		if subresource != "" {
			return u.cluster.Client.SubResource(subresource).Patch(ctx, object, kind)
		}
		return u.cluster.Client.Patch(ctx, object, kind)
	}
	for _, name := range []string{"loose", "foreign"} {
		for _, document := range []string{
			`{"metadata":{"labels":{"example.com/a":"b"},"finalizers":["flotilla.dev/node-pool"]}}`,
			`{"spec":{"labels":{"example.com/team":"web"}}}`,
			`{"metadata":{"finalizers":null}}`,
		} {
			if err := patch(name, document, ""); err != nil {
				t.Errorf("%s does not take %s: %v", name, document, err)
			}
		}
		status, err := json.Marshal(map[string]any{"status": flotillav1.NodePoolStatus{Status: 409, ObservedGeneration: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := patch(name, string(status), "status"); err != nil {
			t.Errorf("the status of %s: %v", name, err)
		}
	}
	compareAnswer(t, patch("loose", `{"spec":{"rollout":{"maxUnavailable":"most"}}}`, ""), "maxUnavailable is a number of nodes or a percentage")
	compareAnswer(t, patch("foreign", `{"spec":{"annotations":{"cluster.x-k8s.io/cluster-name":"other"}}}`, ""), "annotation")
	compareAnswer(t, patch("loose", `{"spec":{"rollout":{"maxUnavailable":"20%"}}}`, ""), "")
}

// splitYAML splits a text into its documents.
func splitYAML(text string) []string { return strings.Split(strings.TrimSpace(text), "\n---\n") }
