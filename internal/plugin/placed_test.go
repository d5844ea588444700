// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// place has the hub place a Redis in clusters.
func (s *story) place(t *testing.T, namespace, name string, clusters ...string) *flotillav1.Redis {
	t.Helper()
	ensure(t, hubServer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	redis := &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       flotillav1.RedisSpec{Replicas: ptr.To[int32](2), Placement: &flotillav1.Placement{Clusters: clusters}},
	}
	apply(t, redis, "Redis")
	return redis
}

// apply applies an object to the hub as kubectl apply --server-side does.
func apply(t *testing.T, object client.Object, kind string) {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	applied := &unstructured.Unstructured{Object: fields}
	applied.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(kind))
	unstructured.RemoveNestedField(applied.Object, "status")
	unstructured.RemoveNestedField(applied.Object, "metadata", "creationTimestamp")
	if err := hubServer.Client.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
}

// objects places a Redis in both members and a NodePool in one. A test's control plane has no kubelet and no controller of
// StatefulSets: the test plays both in eu-1, where the first Pod runs and the second cannot pull its image.
func (s *story) objects(t *testing.T) {
	ctx := context.Background()
	redis := s.place(t, "shop", "cache", "eu-1", "us-1")
	for _, member := range []*testenv.Cluster{eu1, us1} {
		s.eventually("the copy has its StatefulSet", func() (bool, error) {
			err := member.Client.Get(ctx, client.ObjectKeyFromObject(redis), &appsv1.StatefulSet{})
			return err == nil, client.IgnoreNotFound(err)
		})
	}
	addNode(t, eu1, "node-a", "web", true)
	addNode(t, eu1, "node-b", "web", false)
	set := &appsv1.StatefulSet{}
	if err := eu1.Client.Get(ctx, client.ObjectKeyFromObject(redis), set); err != nil {
		t.Fatal(err)
	}
	addPod(t, eu1, set, 0, "node-a", corev1.ContainerStatus{Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	addPod(t, eu1, set, 1, "node-a", corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ImagePullBackOff", Message: `Back-off pulling image "redis:8.4"`,
	}}})
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 2, ReadyReplicas: 1}
	if err := eu1.Client.Status().Update(ctx, set); err != nil {
		t.Fatal(err)
	}
	pool := &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: flotillav1.NodePoolSpec{
			NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"pool": "web"}},
			Labels:       map[string]flotillav1.LabelValue{"example.com/tier": "front"},
			Placement:    &flotillav1.Placement{Clusters: []string{"eu-1"}},
		},
	}
	apply(t, pool, "NodePool")
	s.shows(redis, "eu-1", flotillav1.ReasonReplicasNotReady, "ImagePullBackOff")
	s.shows(redis, "us-1", flotillav1.ReasonPrimaryNotReady, "")
	s.eventually("the NodePool is ready", func() (bool, error) {
		err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		return apimeta.IsStatusConditionTrue(pool.Status.Conditions, flotillav1.ConditionReady), err
	})
}

// addNode adds a node of a pool.
func addNode(t *testing.T, cluster *testenv.Cluster, name, pool string, ready bool) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	if err := cluster.Client.Create(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	status := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now()}
	if !ready {
		status.Status, status.Reason, status.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	node.Status.Conditions = []corev1.NodeCondition{status}
	if err := cluster.Client.Status().Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
}

// addPod adds a Pod as the controller of StatefulSets and a kubelet would.
func addPod(t *testing.T, cluster *testenv.Cluster, set *appsv1.StatefulSet, ordinal int, node string, status corev1.ContainerStatus) {
	t.Helper()
	ctx := context.Background()
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = set.Namespace, fmt.Sprintf("%s-%d", set.Name, ordinal)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.StatefulSetPodNameLabel, pod.Name)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	pod.Spec.NodeName = node
	for i := range set.Spec.VolumeClaimTemplates {
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: set.Spec.VolumeClaimTemplates[i].Name + "-" + pod.Name}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: set.Spec.VolumeClaimTemplates[i].Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim},
		})
	}
	if err := cluster.Client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	ready, phase := corev1.ConditionFalse, corev1.PodPending
	if status.Ready {
		ready, phase = corev1.ConditionTrue, corev1.PodRunning
	}
	status.Name, status.Image = pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image
	pod.Status = corev1.PodStatus{
		Phase: phase, ContainerStatuses: []corev1.ContainerStatus{status},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}},
	}
	if err := cluster.Client.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
}

// shows waits until the hub says something about a Redis in a cluster.
func (s *story) shows(redis *flotillav1.Redis, cluster, reason, message string) {
	s.t.Helper()
	s.eventually("the hub shows "+reason+" for "+cluster, func() (bool, error) {
		err := hubServer.Client.Get(context.Background(), client.ObjectKeyFromObject(redis), redis)
		for _, entry := range entriesOf(redis) {
			if entry.Name == cluster && entry.Reason == reason && strings.Contains(entry.Message, message) {
				return true, nil
			}
		}
		return false, err
	})
}

func (s *story) tree(t *testing.T) {
	// Nobody plays the controller of StatefulSets in us-1, which the message says after a while.
	s.shows(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache"}}, "us-1", flotillav1.ReasonPrimaryNotReady, "has not created them")
	show(t, "tree", "tree redis/cache -n shop", s.must("tree", "redis/cache", "-n", "shop"))
	show(t, "tree-nodepool", "tree nodepool/web", s.must("tree", "nodepool/web"))
	root := read[treeItem](t, s.must("tree", "redis/cache", "-n", "shop", "-o", "json"))
	if root.Kind != "Redis" || root.Name != "shop/cache" || len(root.Below) != 2 || root.Below[0].Kind != "Cluster" || root.Below[0].Below[0].Kind != "Redis" {
		t.Errorf("a script reads %+v", root)
	}
	one := s.must("tree", "redis/cache", "-n", "shop", "-c", "us-1", "--member-context", "us-1=us-1-admin").out
	if strings.Contains(one, "Cluster eu-1") || !strings.Contains(one, "StatefulSet cache") {
		t.Errorf("the tree of one cluster is\n%s", one)
	}
	other := s.must("tree", "redis/cache", "-n", "shop", "--member-context", "us-1=eu-1-admin", "--member-context", "eu-1-admin").out
	if !strings.Contains(other, "NotSeen") || !strings.Contains(other, `is not member "us-1"`) || !strings.Contains(other, "ImagePullBackOff") {
		t.Errorf("with the context of another cluster the tree is\n%s", other)
	}
	if got := s.must("tree", "redis", "cache", "-n", "shop", "-c", "us-1").out; !strings.Contains(got, "Redis shop/cache") {
		t.Errorf("with two arguments it shows\n%s", got)
	}
	s.fails([]string{`"cache" does not name an object`, "redis/NAME"}, "tree", "cache")
	s.fails([]string{"redis/NAME or nodepool/NAME is needed"}, "tree", "redis/cache", "other")
	s.fails([]string{`is not placed in "eu-9"`, "see kubectl flotilla tree redis/cache -n shop"}, "tree", "redis/cache", "-n", "shop", "-c", "eu-9")
	s.fails([]string{"has no redis/shop/session", "check the name"}, "tree", "redis/session", "-n", "shop")
	s.fails([]string{`is not placed in "us-1"`}, "tree", "nodepool/web", "-c", "us-1")
}

func (s *story) why(t *testing.T) {
	s.eventually("both warnings are told", func() (bool, error) {
		told := 0
		for _, reason := range []string{"RolloutBlocked", "ImageUnavailable"} {
			events, err := (&site.Site{Client: hubServer.Client}).EventsOf(context.Background(), "cache", reason)
			if err != nil {
				return false, err
			}
			told += min(len(events), 1)
		}
		return told == 2, nil
	})
	show(t, "why", "why redis/cache -n shop -c eu-1", s.must("why", "redis/cache", "-n", "shop", "-c", "eu-1"))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"why", "redis/cache", "-n", "shop", "-c", "us-1"}, "Because: StatefulSet cache is not ready"},
		{[]string{"why", "redis", "cache", "-n", "shop", "-c", "us-1"}, "Because: StatefulSet cache is not ready"},
		{[]string{"why", "nodepool/web", "-c", "eu-1"}, "nodepool/web is well in eu-1."},
		{[]string{"why", "nodepool/web", "-c", "us-1"}, "nodepool/web is not in us-1: its placement names eu-1"},
	} {
		if got := s.must(test.args...); !strings.Contains(got.out, test.want) {
			t.Errorf("kubectl flotilla %s says\n%s", strings.Join(test.args, " "), got.out)
		}
	}
	said := read[whyItem](t, s.must("why", "redis/cache", "-n", "shop", "-c", "us-1", "-o", "json"))
	if said.Object != "redis/shop/cache" || said.Cluster != "us-1" || said.Well || !strings.HasPrefix(said.Because, "StatefulSet cache is not ready") || said.Tree == nil || len(said.Tree.Below) != 1 {
		t.Errorf("a script reads %+v", said)
	}
	if said := read[whyItem](t, s.must("why", "nodepool/web", "-c", "us-1", "-o", "yaml")); said.NotThere == "" || said.Tree != nil {
		t.Errorf("a script reads %+v", said)
	}
	s.fails([]string{"the cluster is missing", "-c CLUSTER", "kubectl flotilla tree redis/cache -n shop shows them all"}, "why", "redis/cache", "-n", "shop")
	s.fails([]string{`no member is called "eu-9"`}, "why", "redis/cache", "-n", "shop", "-c", "eu-9")
}
