// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// usageInterval is how often the Pods of a member are read, however many pools ask.
	usageInterval = time.Minute
	// usageStep is the change, in percent of allocatable, from which on status.requested is written anew. Pods come and
	// go all the time, and status must not tick with them.
	usageStep = 1
)

// usage is what the Pods of a member ask for. The zero value is that nothing is known yet.
type usage struct {
	at time.Time
	// byNode is what is asked for on each node as last read. Nothing in it changes afterwards.
	byNode map[string]corev1.ResourceList
	// why is set when the last reading failed.
	why failure
}

// running selects the Pods that hold resources of a node.
var running = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// usage returns what is known of the member's Pods, after reading them if it is time and nobody else does.
func (r *PoolReconciler) usage(ctx context.Context, member cluster.Cluster, clusterName multicluster.ClusterName) usage {
	known, claimed := r.Ledger.claimUsage(clusterName, r.Clock.Now())
	if !claimed {
		return known
	}
	defer func() { r.Ledger.setUsage(clusterName, known) }()
	byNode, err := readUsage(ctx, member)
	known.at = r.Clock.Now()
	if err != nil {
		known.why = failureOf(err)
		if known.why.reason != flotillav1.ReasonForbidden {
			known.why.reason = flotillav1.ReasonMeasuringFailed
		}
		return known
	}
	known.byNode, known.why = byNode, failure{}
	return known
}

// readUsage reads the Pods page by page, past the cache, which does not have them.
func readUsage(ctx context.Context, member cluster.Cluster) (map[string]corev1.ResourceList, error) {
	byNode := map[string]corev1.ResourceList{}
	next := ""
	for {
		pods := &corev1.PodList{}
		err := member.GetAPIReader().List(ctx, pods, client.MatchingFieldsSelector{Selector: running}, client.Limit(livePage), client.Continue(next))
		if apierrors.IsResourceExpired(err) && next != "" {
			return nil, fmt.Errorf("listing Pods took too long: %w", err)
		}
		if err != nil {
			return nil, fmt.Errorf("listing Pods: %w", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			sum, ok := byNode[pod.Spec.NodeName]
			if !ok {
				sum = corev1.ResourceList{}
				byNode[pod.Spec.NodeName] = sum
			}
			addResources(sum, requestsOf(&pod.Spec))
		}
		if next = pods.Continue; next == "" {
			return byNode, nil
		}
	}
}

// requestsOf is what the scheduler reserves for a Pod, and the Pod itself: its containers and sidecars together, or the
// largest init container with the sidecars started before it, whichever is more; what is set for the Pod as a whole
// takes their place; and overhead.
func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	total, sidecars, starting := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		addResources(total, spec.Containers[i].Resources.Requests)
	}
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		needed := corev1.ResourceList{}
		addResources(needed, container.Resources.Requests)
		addResources(needed, sidecars)
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addResources(sidecars, container.Resources.Requests)
			addResources(total, container.Resources.Requests)
		}
		raise(starting, needed)
	}
	raise(total, starting)
	if spec.Resources != nil {
		maps.Copy(total, spec.Resources.Requests)
	}
	addResources(total, spec.Overhead)
	total[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return total
}

// raise lifts each quantity to at least that of the other list.
func raise(list, least corev1.ResourceList) {
	for name, quantity := range least {
		if current, ok := list[name]; !ok || current.Cmp(quantity) < 0 {
			list[name] = quantity
		}
	}
}

// settled returns what to publish: what was published before, as long as it is no further than usageStep off.
func settled(before, measured, allocatable corev1.ResourceList) corev1.ResourceList {
	if len(before) != len(measured) {
		return measured
	}
	for name, now := range measured {
		was, ok := before[name]
		if !ok || was.IsZero() != now.IsZero() {
			return measured
		}
		whole := allocatable[name]
		off := was.AsApproximateFloat64() - now.AsApproximateFloat64()
		if 100*max(off, -off) >= usageStep*whole.AsApproximateFloat64() && off != 0 {
			return measured
		}
	}
	return before
}

// requestsCondition says whether status.requested is what is asked for now; nil when nothing is known either way.
func requestsCondition(u usage) *metav1.Condition {
	switch {
	case u.why != (failure{}):
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: u.why.reason, Message: "The Pods cannot be read: " + u.why.message}
	case u.byNode == nil:
		return nil
	}
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonMeasured, Message: "What the Pods ask for has been added up"}
}
