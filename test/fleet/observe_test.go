// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// namespace is where the suite's Redis lives, on the hub and in the members.
const namespace = "shop"

func webPool() *flotillav1.NodePool {
	return &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: flotillav1.NodePoolSpec{
			Placement:    &flotillav1.Placement{ClusterSelector: everyRegion()},
			NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/group": "web"}},
			Labels:       map[string]flotillav1.LabelValue{"example.com/team": "web"},
			Taints:       []flotillav1.NodePoolTaint{{Key: "example.com/dedicated", Value: "web", Effect: corev1.TaintEffectPreferNoSchedule}},
			Handler:      "runc",
		},
	}
}

func cacheRedis() *flotillav1.Redis {
	replicas := int32(3)
	return &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache"},
		Spec: flotillav1.RedisSpec{
			Replicas: &replicas,
			Placement: &flotillav1.Placement{
				ClusterSelector: everyRegion(),
				Overrides: []flotillav1.Override{{
					Clusters: []string{"member-2"},
					Patch:    &apiextensionsv1.JSON{Raw: []byte(`{"replicas":2}`)},
				}},
			},
		},
	}
}

func everyRegion() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpExists}}}
}

// prepareMember gives a member the CRDs and the hub's rights, as its owner would.
func (f *fleet) prepareMember(t *testing.T, name string) {
	t.Helper()
	f.kubectl(t, name, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(f.root, "dist", "member.yaml"))
}

func (f *fleet) memberCluster(name string) *flotillav1.MemberCluster {
	mc := &flotillav1.MemberCluster{}
	_ = f.hub.Get(f.ctx, client.ObjectKey{Name: name}, mc)
	return mc
}

func (f *fleet) hubRedis() *flotillav1.Redis { return f.redisIn(f.hub) }

func (f *fleet) memberRedis(name string) *flotillav1.Redis { return f.redisIn(f.members[name]) }

// redisIn returns an object with empty counts when there is none yet, so that waiting reads simply.
func (f *fleet) redisIn(c client.Client) *flotillav1.Redis {
	redis := &flotillav1.Redis{}
	_ = c.Get(f.ctx, client.ObjectKey{Namespace: namespace, Name: "cache"}, redis)
	if redis.Status.ClusterCounts == nil {
		redis.Status.ClusterCounts = &flotillav1.ClusterCounts{}
	}
	return redis
}

func (f *fleet) hubPool() *flotillav1.NodePool { return f.poolIn(f.hub) }

func (f *fleet) memberPool(name string) *flotillav1.NodePool { return f.poolIn(f.members[name]) }

func (f *fleet) poolIn(c client.Client) *flotillav1.NodePool {
	pool := &flotillav1.NodePool{}
	_ = c.Get(f.ctx, client.ObjectKey{Name: "web"}, pool)
	return pool
}

func (f *fleet) nodes(name string) []corev1.Node {
	list := &corev1.NodeList{}
	_ = f.members[name].List(f.ctx, list)
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

func (f *fleet) node(clusterName, name string) *corev1.Node {
	node := &corev1.Node{}
	_ = f.members[clusterName].Get(f.ctx, client.ObjectKey{Name: name}, node)
	return node
}

// labelNode sets a label, or removes it when value is empty.
func (f *fleet) labelNode(t *testing.T, clusterName, name, key, value string) {
	t.Helper()
	node := f.node(clusterName, name)
	patch := client.MergeFrom(node.DeepCopy())
	if value == "" {
		delete(node.Labels, key)
	} else {
		node.Labels[key] = value
	}
	if err := f.members[clusterName].Patch(f.ctx, node, patch); err != nil {
		t.Fatalf("labelling node %q of %q: %v", name, clusterName, err)
	}
}

// cordon makes all nodes of a member unschedulable, or schedulable again.
func (f *fleet) cordon(t *testing.T, clusterName string, unschedulable bool) {
	t.Helper()
	for _, node := range f.nodes(clusterName) {
		patch := client.MergeFrom(node.DeepCopy())
		node.Spec.Unschedulable = unschedulable
		if err := f.members[clusterName].Patch(f.ctx, &node, patch); err != nil {
			t.Fatalf("cordoning node %q of %q: %v", node.Name, clusterName, err)
		}
	}
}

// sumAllocatable adds up the CPU of the nodes in the pool, by reading the nodes themselves.
func (f *fleet) sumAllocatable() string {
	var sum resource.Quantity
	for _, name := range f.registered() {
		for _, node := range f.nodes(name) {
			if node.Labels["example.com/group"] == "web" {
				sum.Add(*node.Status.Allocatable.Cpu())
			}
		}
	}
	return sum.String()
}

func (f *fleet) eventReasons(c client.Client, kind, name string) []string {
	list := &eventsv1.EventList{}
	_ = c.List(f.ctx, list, client.InNamespace(namespace))
	var reasons []string
	for _, event := range list.Items {
		if event.Regarding.Kind == kind && event.Regarding.Name == name {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons
}

// poolEvents are the reasons of the events about the pool in a member.
func (f *fleet) poolEvents(c client.Client) []string {
	list := &eventsv1.EventList{}
	_ = c.List(f.ctx, list)
	var reasons []string
	for _, event := range list.Items {
		if event.Regarding.Kind == "NodePool" {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons
}

func conditionStatus(conditions []metav1.Condition, kind string) string {
	condition := apimeta.FindStatusCondition(conditions, kind)
	if condition == nil {
		return ""
	}
	return string(condition.Status)
}

func redisEntry(redis *flotillav1.Redis, clusterName string) flotillav1.RedisClusterStatus {
	for _, entry := range redis.Status.Clusters {
		if entry.Name == clusterName {
			return entry
		}
	}
	return flotillav1.RedisClusterStatus{}
}
