// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// directory is a Directory of members in memory.
type directory struct {
	*clusterstest.Directory
	members map[multicluster.ClusterName]*member
}

func newDirectory(names []string) *directory {
	d := &directory{Directory: clusterstest.NewDirectory(), members: map[multicluster.ClusterName]*member{}}
	for _, name := range names {
		d.members[multicluster.ClusterName(name)] = newMember(name)
		d.Engage(multicluster.ClusterName(name), d.members[multicluster.ClusterName(name)])
		d.become(name, clusters.StateReady)
	}
	return d
}

// become puts a member into a state. One that is ready again has its keys queued, as the pool does.
func (d *directory) become(name string, state clusters.State) {
	d.Set(clusters.Snapshot{
		Name: multicluster.ClusterName(name), State: state, Accepted: true, Decided: true, Labels: map[string]string{"region": "eu"},
	})
	if state == clusters.StateReady {
		d.members[multicluster.ClusterName(name)].recovered()
	}
}

// away counts the members that cannot be seen.
func (d *directory) away() int32 {
	away := int32(0)
	for _, snapshot := range d.Snapshots() {
		if !snapshot.Visible() {
			away++
		}
	}
	return away
}

// member is a cluster whose API server is a map. What is applied to it is ready at once.
type member struct {
	cluster.Cluster
	name string

	mu       sync.Mutex
	objects  map[string]map[types.NamespacedName]client.Object
	handlers map[string][]toolscache.ResourceEventHandler
	onReady  []func()
	version  int
}

func newMember(name string) *member {
	return &member{name: name, objects: map[string]map[types.NamespacedName]client.Object{}, handlers: map[string][]toolscache.ResourceEventHandler{}}
}

func (m *member) GetClient() client.Client    { return memberClient{member: m} }
func (m *member) GetAPIReader() client.Reader { return memberClient{member: m} }
func (m *member) GetCache() cache.Cache       { return memberCache{member: m} }
func (m *member) GetScheme() *runtime.Scheme  { return testenv.Scheme() }

// OnRecovered implements clusters.Recovering.
func (m *member) OnRecovered(_ context.Context, fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onReady = append(m.onReady, fn)
}

func (m *member) recovered() {
	m.mu.Lock()
	told := slices.Clone(m.onReady)
	m.mu.Unlock()
	for _, fn := range told {
		fn()
	}
}

func kindOf(object runtime.Object) string {
	name := fmt.Sprintf("%T", object)
	return name[strings.LastIndex(name, ".")+1:]
}

// put stores an object and tells the watches.
func (m *member) put(object client.Object) {
	kind, key := kindOf(object), client.ObjectKeyFromObject(object)
	m.mu.Lock()
	if m.objects[kind] == nil {
		m.objects[kind] = map[types.NamespacedName]client.Object{}
	}
	before := m.objects[kind][key]
	m.version++
	object.SetResourceVersion(fmt.Sprint(m.version))
	m.objects[kind][key] = object
	handlers := slices.Clone(m.handlers[kind])
	m.mu.Unlock()
	for _, handler := range handlers {
		if before == nil {
			handler.OnAdd(object, false)
		} else {
			handler.OnUpdate(before, object)
		}
	}
}

func (m *member) get(kind string, key types.NamespacedName) client.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[kind][key]
}

// memberClient reads and applies; nothing else is asked of it here.
type memberClient struct {
	client.Client
	member *member
}

func (c memberClient) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if _, isNamespace := into.(*corev1.Namespace); isNamespace {
		return nil
	}
	found := c.member.get(kindOf(into), key)
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(into)}, key.Name)
	}
	switch into := into.(type) {
	case *flotillav1.Redis:
		*into = *found.(*flotillav1.Redis)
	case *flotillav1.NodePool:
		*into = *found.(*flotillav1.NodePool)
	}
	into.SetAnnotations(maps.Clone(found.GetAnnotations()))
	return nil
}

func (c memberClient) Apply(_ context.Context, configuration runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	applied := &unstructured.Unstructured{Object: configuration.(interface{ UnstructuredContent() map[string]any }).UnstructuredContent()}
	var object client.Object = &flotillav1.Redis{}
	if applied.GetKind() == "NodePool" {
		object = &flotillav1.NodePool{}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, object); err != nil {
		return err
	}
	object.SetUID(types.UID(c.member.name + "/" + object.GetName()))
	object.SetGeneration(1)
	report(object, metav1.ConditionTrue)
	c.member.put(object)
	return nil
}

// report fills in what the reconcilers in a member would say.
func report(object client.Object, ready metav1.ConditionStatus) {
	conditions := []metav1.Condition{{Type: flotillav1.ConditionReady, Status: ready, Reason: flotillav1.ReasonAllReplicasReady, ObservedGeneration: 1}}
	if ready != metav1.ConditionTrue {
		conditions[0].Reason = flotillav1.ReasonReplicasNotReady
	}
	switch object := object.(type) {
	case *flotillav1.Redis:
		object.Status = flotillav1.RedisStatus{ObservedGeneration: 1, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3, Conditions: conditions}
	case *flotillav1.NodePool:
		resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
		object.Status = flotillav1.NodePoolStatus{ObservedGeneration: 1, Status: 200, Conditions: conditions, NodePoolCounts: flotillav1.NodePoolCounts{
			NodeCount: 2, ReadyNodes: 2, UpdatedNodes: 2, Capacity: resources, Allocatable: resources, Schedulable: resources,
		}}
	}
}

// memberCache lists and watches.
type memberCache struct {
	cache.Cache
	member *member
}

func (c memberCache) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{member: c.member, kind: kindOf(object)}, nil
}

func (c memberCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.member.mu.Lock()
	defer c.member.mu.Unlock()
	switch list := list.(type) {
	case *flotillav1.RedisList:
		for _, object := range c.member.objects["Redis"] {
			list.Items = append(list.Items, *object.(*flotillav1.Redis))
		}
	case *flotillav1.NodePoolList:
		for _, object := range c.member.objects["NodePool"] {
			list.Items = append(list.Items, *object.(*flotillav1.NodePool))
		}
	}
	return nil
}

// informer is the watch of a kind in a member.
type informer struct {
	cache.Informer
	member *member
	kind   string
}

func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.member.mu.Lock()
	defer i.member.mu.Unlock()
	i.member.handlers[i.kind] = append(i.member.handlers[i.kind], handler)
	return nil, nil
}

func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return nil
}

func (i *informer) IsStopped() bool { return false }
