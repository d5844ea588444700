// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// mostNodeBytes is what a Node may take in the cache of a member. Half of it is the map of its 30 labels.
const mostNodeBytes = 5000

// machineSizes is how many sizes of machines there are among the Nodes. Even machines of one type differ by a few pages.
const machineSizes = 24

// realisticNode is a Node of a cloud with 50 images, 30 labels and 5 managers of fields, in a pool.
func realisticNode(i int) *corev1.Node {
	name := fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i>>16, i>>8&255, i&255)
	now := metav1.Now()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprintf("7d2f1a52-0c0e-4b1f-9a0c-%012d", i)), ResourceVersion: fmt.Sprint(10_000_000 + i), CreationTimestamp: now,
		Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
			"topology.kubernetes.io/zone": "eu-central-1a", "topology.kubernetes.io/region": "eu-central-1", "node.kubernetes.io/instance-type": "m7i.4xlarge",
		},
		Annotations: map[string]string{
			"csi.volume.kubernetes.io/nodeid":                        `{"ebs.csi.aws.com":"i-0123456789abcdef0","efs.csi.aws.com":"i-0123456789abcdef0"}`,
			"node.alpha.kubernetes.io/ttl":                           "0",
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"example.com/owner":                                      "platform",
			flotillav1.AnnotationNodeRecord:                          `{"pools":{"general":{"uid":"0d5a7f1c-3f0c-4a5f-8b7e-0123456789ab","labels":{"example.com/team":{"v":"platform"}},"taints":{"example.com/dedicated:NoSchedule":{"v":"yes"}}}}}`,
		},
	}}
	for label := len(node.Labels); label < 30; label++ {
		node.Labels[fmt.Sprintf("feature.example.com/capability-%02d", label)] = fmt.Sprintf("value-%02d", label)
	}
	for manager := range 5 {
		node.ManagedFields = append(node.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: fmt.Sprintf("manager-%d", manager), Operation: metav1.ManagedFieldsOperationUpdate, Time: &now,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` + strings.Repeat(`"f:labels":{"f:x":{}},`, 80) + `"f:y":{}}}`),
		})
	}
	node.Spec = corev1.NodeSpec{
		PodCIDR: "10.0.0.0/24", ProviderID: "aws:///eu-central-1a/i-0123456789abcdef0",
		Taints: []corev1.Taint{{Key: "example.com/dedicated", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
	}
	node.Status.Capacity = corev1.ResourceList{}
	for resourceName, quantity := range map[corev1.ResourceName]string{
		"cpu": "16", "memory": "64897220Ki", "ephemeral-storage": "104845292Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0", "pods": "234",
	} {
		node.Status.Capacity[resourceName] = resource.MustParse(quantity)
	}
	node.Status.Capacity[corev1.ResourceMemory] = *resource.NewQuantity(int64(64_897_220+4*(i%machineSizes))<<10, resource.BinarySI)
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("15890m")
	node.Status.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(int64(61_875_396+4*(i%machineSizes))<<10, resource.BinarySI)
	for _, condition := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", corev1.NodeReady} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: condition, Status: corev1.ConditionTrue, Reason: "KubeletHas", Message: "kubelet has what it needs", LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: name}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		Architecture: "amd64", KubeletVersion: "v1.35.2", KernelVersion: "6.12.0", OSImage: "Linux", ContainerRuntimeVersion: "containerd://2.1.0", OperatingSystem: "linux",
	}
	for image := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example.com/team/image-%02d@sha256:%064d", image, i), fmt.Sprintf("registry.example.com/team/image-%02d:v1", image),
			},
			SizeBytes: 1 << 28,
		})
	}
	return node
}

// cachedNodeBytes is what a Node takes of the heap once it has come over the wire and through the transform.
func cachedNodeBytes(tb testing.TB, nodes int) (cached, raw float64) {
	tb.Helper()
	trim := watchedAs(&corev1.Node{}).transform()
	kept := make([]any, 0, nodes)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wire int
	for i := range nodes {
		data, err := realisticNode(i).Marshal()
		if err != nil {
			tb.Fatal(err)
		}
		wire += len(data)
		node := &corev1.Node{}
		if err := node.Unmarshal(data); err != nil {
			tb.Fatal(err)
		}
		trimmed, err := trim(node)
		if err != nil {
			tb.Fatal(err)
		}
		kept = append(kept, trimmed)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(nodes), float64(wire) / float64(nodes)
}

func TestTrim_nodes_are_small(t *testing.T) {
	cached, raw := cachedNodeBytes(t, 2000)
	t.Logf("%.0f bytes cached of %.0f on the wire", cached, raw)
	if cached > mostNodeBytes {
		t.Errorf("a Node takes %.0f bytes in the cache, want at most %d", cached, mostNodeBytes)
	}
}

func TestTrim_nodes_of_one_size_share_their_lists(t *testing.T) {
	lists := resourceLists{}
	size := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), "example.com/gpu": resource.MustParse("0")}
	}
	one, same, other := lists.share(size("4")), lists.share(size("4")), lists.share(size("4000M"))
	if reflect.ValueOf(one).Pointer() != reflect.ValueOf(same).Pointer() {
		t.Error("equal lists are not shared")
	}
	if diff := cmp.Diff(size("4000M"), other); diff != "" {
		t.Errorf("a list is not what it was (-want +got):\n%s", diff)
	}
	if lists.share(nil) != nil || lists.share(corev1.ResourceList{}) != nil {
		t.Error("an empty list is not absent")
	}
	// What is not seen again is forgotten, what is seen stays shared.
	for i := range 10 * keptResourceLists {
		lists.share(size(fmt.Sprint(1000 + i)))
		if i%100 == 0 && reflect.ValueOf(lists.share(size("4"))).Pointer() != reflect.ValueOf(one).Pointer() {
			t.Fatalf("a list in use is no longer shared after %d others", i)
		}
	}
	if kept := len(lists.young) + len(lists.old); kept > 2*keptResourceLists {
		t.Errorf("%d lists are kept", kept)
	}
}

// BenchmarkCachedNode reports the bytes that a Node takes in the cache of a member.
func BenchmarkCachedNode(b *testing.B) {
	var cached, raw float64
	for b.Loop() {
		cached, raw = cachedNodeBytes(b, 1000)
	}
	b.ReportMetric(cached, "B/node")
	b.ReportMetric(raw, "wireB/node")
}
