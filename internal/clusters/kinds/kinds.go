// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

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
	Object client.Object
	// Group and Resource are used for authorization.
	Group, Resource string
	// Of is the Flotilla kind that the objects are watched for.
	Of string
	// label is the label that an object must have to be cached. Empty caches all. The API server selects by it.
	label string
	// trim reduces an object before it is cached. Nil strips managedFields only.
	trim func(any) (any, error)
}

// Watched returns the fixed set of cached kinds. It does not include Secrets, Leases and Namespaces, which are read live
// and by name.
func Watched() []watchedKind {
	return []watchedKind{
		{Object: &flotillav1.Redis{}, Group: flotillav1.GroupVersion.Group, Resource: "redises", Of: flotillav1.KindRedis},
		{Object: &flotillav1.NodePool{}, Group: flotillav1.GroupVersion.Group, Resource: "nodepools", Of: flotillav1.KindNodePool},
		{Object: &corev1.Node{}, Resource: "nodes", Of: flotillav1.KindNodePool, trim: trimNode},
		{Object: &corev1.Pod{}, Resource: "pods", Of: flotillav1.KindRedis, label: flotillav1.LabelRedis, trim: trimPod},
		{Object: &corev1.Service{}, Resource: "services", Of: flotillav1.KindRedis, label: flotillav1.LabelRedis},
		{Object: &corev1.ConfigMap{}, Resource: "configmaps", Of: flotillav1.KindRedis, label: flotillav1.LabelRedis},
		{Object: &corev1.PersistentVolumeClaim{}, Resource: "persistentvolumeclaims", Of: flotillav1.KindRedis, label: flotillav1.LabelRedis},
		{Object: &appsv1.StatefulSet{}, Group: appsv1.GroupName, Resource: "statefulsets", Of: flotillav1.KindRedis, label: flotillav1.LabelRedis},
		{Object: &policyv1.PodDisruptionBudget{}, Group: policyv1.GroupName, Resource: "poddisruptionbudgets", Of: flotillav1.KindRedis, label: flotillav1.LabelRedis},
		{Object: &nodev1.RuntimeClass{}, Group: nodev1.GroupName, Resource: "runtimeclasses", Of: flotillav1.KindNodePool, label: flotillav1.LabelNodePool},
	}
}

// watchedAs returns the watched kind of an object, or the zero value, which caches everything.
func watchedAs(object any) watchedKind {
	for _, kind := range Watched() {
		if reflect.TypeOf(kind.Object) == reflect.TypeOf(object) {
			return kind
		}
	}
	return watchedKind{}
}

// Trim returns the function that reduces objects of a type before they are cached. Tests of reconcilers use it, so that they
// read no more than there is in production.
func Trim(object client.Object) toolscache.TransformFunc { return watchedAs(object).transform() }

// transform returns the function that reduces objects before they are cached.
func (k watchedKind) transform() toolscache.TransformFunc {
	if k.trim == nil {
		return cache.TransformStripManagedFields()
	}
	return k.trim
}

// NewMapper returns the REST mapper that all members share. A dynamic one would store everything that a member serves, 3
// KiB per foreign CRD and member, and would call the member during a reconcile.
func NewMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	add := func(version schema.GroupVersion, scope apimeta.RESTScope, kinds ...string) {
		for _, kind := range kinds {
			mapper.Add(version.WithKind(kind), scope)
		}
	}
	namespaced, root := apimeta.RESTScopeNamespace, apimeta.RESTScopeRoot
	add(flotillav1.GroupVersion, namespaced, flotillav1.KindRedis)
	add(flotillav1.GroupVersion, root, flotillav1.KindNodePool, flotillav1.KindMemberCluster)
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

// maxAnnotationBytes is the maximum length of an annotation value in a NodePool. Longer values are never ours.
const maxAnnotationBytes = 1024

// trimNode keeps what the NodePool reconcilers read. Trimmed Nodes are patched, never updated. It drops heartbeat times,
// so that a heartbeat changes only the resourceVersion.
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
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, Containers: trimSpecs(pod.Spec.Containers)},
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

const (
	// keeper is the container of a Redis in mode Sentinel that reports by ending which Pod is the primary.
	keeper = "keeper"
	// maxReport is the number of bytes of such a report that are kept.
	maxReport = 64
)

// trimSpecs keeps name, ports and resources.
func trimSpecs(containers []corev1.Container) []corev1.Container {
	trimmed := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		trimmed = append(trimmed, corev1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources})
	}
	return trimmed
}

// trimContainers keeps name, readiness, restarts, image and state, and how the keeper has ended.
func trimContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	trimmed := make([]corev1.ContainerStatus, 0, len(statuses))
	for _, status := range statuses {
		state := *status.State.DeepCopy()
		if state.Terminated != nil {
			state.Terminated.Message, state.Terminated.ContainerID = "", ""
		}
		kept := corev1.ContainerStatus{
			Name: status.Name, Ready: status.Ready, Started: status.Started, RestartCount: status.RestartCount, Image: status.Image, State: state,
		}
		if ended := status.LastTerminationState.Terminated; ended != nil && status.Name == keeper {
			kept.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: ended.ExitCode, FinishedAt: ended.FinishedAt}
			if len(ended.Message) <= maxReport {
				kept.LastTerminationState.Terminated.Message = ended.Message
			}
		}
		trimmed = append(trimmed, kept)
	}
	return trimmed
}

// trimMeta keeps the metadata that planners read. It drops only kubectl's copy of the object from the annotations, and
// truncates long values to a length that no NodePool can set, because a planner must see that the key exists.
func trimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	trimmed := *meta
	trimmed.ManagedFields = nil
	trimmed.Annotations = nil
	for key, value := range meta.Annotations {
		if key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		if len(value) > maxAnnotationBytes && !strings.HasPrefix(key, flotillav1.GroupVersion.Group+"/") {
			// Clone the prefix, so that the long value can be collected.
			value = strings.Clone(value[:maxAnnotationBytes+1])
		}
		if trimmed.Annotations == nil {
			trimmed.Annotations = map[string]string{}
		}
		trimmed.Annotations[key] = value
	}
	return trimmed
}
