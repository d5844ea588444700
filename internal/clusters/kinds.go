// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// watchedKind is a kind that is cached for every member.
type watchedKind struct {
	object client.Object
	// group and resource as authorization names them.
	group, resource string
	// of is the kind of ours that the objects are watched for.
	of string
	// label that an object must carry to be cached; empty caches all. The API server selects.
	label string
	// trim shortens an object before it is cached; nil only strips managedFields.
	trim func(any) (any, error)
}

// Our kinds in members.
const (
	kindRedis    = "Redis"
	kindNodePool = "NodePool"
)

// ourKinds returns both.
func ourKinds() []string { return []string{kindNodePool, kindRedis} }

// watchedKinds returns the fixed set of cached kinds. Secrets, Leases and Namespaces are not among them: they are read
// live and by name.
func watchedKinds() []watchedKind {
	return []watchedKind{
		{object: &flotillav1.Redis{}, group: flotillav1.GroupVersion.Group, resource: "redises", of: kindRedis},
		{object: &flotillav1.NodePool{}, group: flotillav1.GroupVersion.Group, resource: "nodepools", of: kindNodePool},
		{object: &corev1.Node{}, resource: "nodes", of: kindNodePool, trim: trimNode},
		{object: &corev1.Pod{}, resource: "pods", of: kindRedis, label: flotillav1.LabelRedis, trim: trimPod},
		{object: &corev1.Service{}, resource: "services", of: kindRedis, label: flotillav1.LabelRedis},
		{object: &corev1.ConfigMap{}, resource: "configmaps", of: kindRedis, label: flotillav1.LabelRedis},
		{object: &corev1.PersistentVolumeClaim{}, resource: "persistentvolumeclaims", of: kindRedis, label: flotillav1.LabelRedis},
		{object: &appsv1.StatefulSet{}, group: appsv1.GroupName, resource: "statefulsets", of: kindRedis, label: flotillav1.LabelRedis},
		{object: &policyv1.PodDisruptionBudget{}, group: policyv1.GroupName, resource: "poddisruptionbudgets", of: kindRedis, label: flotillav1.LabelRedis},
		{object: &nodev1.RuntimeClass{}, group: nodev1.GroupName, resource: "runtimeclasses", of: kindNodePool, label: flotillav1.LabelNodePool},
	}
}

// watchedAs returns how an object is cached: the zero value, which caches all there is, when its kind is not a watched one.
func watchedAs(object any) watchedKind {
	for _, kind := range watchedKinds() {
		if reflect.TypeOf(kind.object) == reflect.TypeOf(object) {
			return kind
		}
	}
	return watchedKind{}
}

// transform shortens an object before it is cached.
func (k watchedKind) transform() toolscache.TransformFunc {
	if k.trim == nil {
		return cache.TransformStripManagedFields()
	}
	return k.trim
}

// newMapper returns the REST mapper that all members share. A dynamic one would keep everything that a member serves,
// 3 KiB per foreign CRD and member, and would ask the member in the middle of a reconcile.
func newMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	add := func(version schema.GroupVersion, scope apimeta.RESTScope, kinds ...string) {
		for _, kind := range kinds {
			mapper.Add(version.WithKind(kind), scope)
		}
	}
	namespaced, root := apimeta.RESTScopeNamespace, apimeta.RESTScopeRoot
	add(flotillav1.GroupVersion, namespaced, "Redis")
	add(flotillav1.GroupVersion, root, "NodePool", "MemberCluster")
	add(corev1.SchemeGroupVersion, namespaced, "Pod", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim", "ServiceAccount")
	add(corev1.SchemeGroupVersion, root, "Node", "Namespace")
	add(appsv1.SchemeGroupVersion, namespaced, "StatefulSet")
	add(policyv1.SchemeGroupVersion, namespaced, "PodDisruptionBudget")
	add(nodev1.SchemeGroupVersion, root, "RuntimeClass")
	add(coordinationv1.SchemeGroupVersion, namespaced, "Lease")
	add(eventsv1.SchemeGroupVersion, namespaced, "Event")
	add(authorizationv1.SchemeGroupVersion, root, "SelfSubjectAccessReview")
	add(schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, root, "CustomResourceDefinition")
	return mapper
}

// maxAnnotationBytes is the longest annotation value that a NodePool can set; longer ones are never ours.
const maxAnnotationBytes = 1024

// trimNode keeps what the NodePool reconcilers read. Trimmed Nodes are patched, never updated. Heartbeat times go, so that
// a heartbeat changes nothing but the resourceVersion.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Node{
		ObjectMeta: trimMeta(&node.ObjectMeta),
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity:    node.Status.Capacity,
			Allocatable: node.Status.Allocatable,
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: node.Status.NodeInfo.Architecture, KubeletVersion: node.Status.NodeInfo.KubeletVersion,
			},
		},
	}
	trimmed.TypeMeta = node.TypeMeta
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	internNode(trimmed)
	return trimmed, nil
}

// trimPod keeps what the Redis reconciler reads. Trimmed Pods are patched or deleted, never updated.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: trimMeta(&pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, Reason: pod.Status.Reason, StartTime: pod.Status.StartTime,
		},
	}
	for _, condition := range pod.Status.Conditions {
		if slices.Contains([]corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled}, condition.Type) {
			condition.LastProbeTime = metav1.Time{}
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, condition)
		}
	}
	trimmed.Status.InitContainerStatuses = trimContainers(pod.Status.InitContainerStatuses)
	trimmed.Status.ContainerStatuses = trimContainers(pod.Status.ContainerStatuses)
	return trimmed, nil
}

// trimContainers keeps name, readiness, restarts and why a container does not run.
func trimContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	trimmed := make([]corev1.ContainerStatus, 0, len(statuses))
	for _, status := range statuses {
		state := *status.State.DeepCopy()
		if state.Terminated != nil {
			state.Terminated.Message, state.Terminated.ContainerID = "", ""
		}
		trimmed = append(trimmed, corev1.ContainerStatus{
			Name: status.Name, Ready: status.Ready, Started: status.Started, RestartCount: status.RestartCount, Image: status.Image, State: state,
		})
	}
	return trimmed
}

// trimMeta keeps the metadata that planners read. No annotation is dropped but kubectl's copy of the whole object: a key
// with a long value stays, cut to a length that no NodePool can ask for, because a planner must see that it is taken.
func trimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	trimmed := *meta
	trimmed.ManagedFields = nil
	trimmed.Annotations = nil
	for key, value := range meta.Annotations {
		if key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		if len(value) > maxAnnotationBytes && !strings.HasPrefix(key, flotillav1.GroupVersion.Group+"/") {
			// The copy lets the long value be collected.
			value = strings.Clone(value[:maxAnnotationBytes+1])
		}
		if trimmed.Annotations == nil {
			trimmed.Annotations = map[string]string{}
		}
		trimmed.Annotations[key] = value
	}
	return trimmed
}
