// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxNodes is how many nodes of a NodePool are shown; those that are not ready come first.
const maxNodes = 20

// branch is an object in the tree, with what it consists of below it.
type branch struct {
	kind, name string
	ready      metav1.ConditionStatus
	reason     string
	since      *metav1.Time
	detail     string
	below      []*branch
}

// title returns the kind and the name of a branch.
func (b *branch) title() string { return b.kind + " " + b.name }

// rows returns the rows of the tree.
func (t *tool) rows(b *branch, prefix, childPrefix string) [][]console.Cell {
	rows := [][]console.Cell{{
		{Text: prefix + b.title()}, console.Status(b.ready), {Text: console.OrDash(b.reason)}, {Text: t.Ago(b.since)}, {Text: b.detail},
	}}
	for i, child := range b.below {
		branch, beside := "├─ ", "│  "
		if i == len(b.below)-1 {
			branch, beside = "└─ ", "   "
		}
		rows = append(rows, t.rows(child, childPrefix+branch, childPrefix+beside)...)
	}
	return rows
}

// printTree writes the tree.
func (t *tool) printTree(root *branch) {
	t.Table([]string{"OBJECT", "READY", "REASON", "SINCE", "DETAIL"}, t.rows(root, "", ""))
}

// ofCondition returns the branch of an object with the status of its condition Ready.
func ofCondition(kind, name string, conditions []metav1.Condition) *branch {
	ready := condition.Of(conditions, flotillav1.ConditionReady)
	b := &branch{kind: kind, name: name, ready: ready.Status, reason: ready.Reason, detail: ready.Message}
	if !ready.LastTransitionTime.IsZero() {
		b.since = &ready.LastTransitionTime
	}
	return b
}

// branch returns the root of the tree of a hub object.
func (of target) branch(object fleet.Object) *branch {
	return ofCondition(of.kind.Name, console.Qualified(of.key.Namespace, of.key.Name), *object.GetConditions())
}

// lookInto follows a copy down to the nodes.
func lookInto(ctx context.Context, member *site.Site, of target) (*branch, error) {
	copied := of.kind.New()
	err := member.Get(ctx, of.key, copied)
	if apierrors.IsNotFound(err) {
		return &branch{kind: of.kind.Name, name: of.key.Name, ready: metav1.ConditionUnknown, reason: "NotFound", detail: "The member has no such object"}, nil
	}
	if err != nil {
		return nil, member.Explain("reading "+of.String(), err)
	}
	b := ofCondition(of.kind.Name, of.key.Name, *copied.GetConditions())
	switch object := copied.(type) {
	case *flotillav1.Redis:
		err = b.addStatefulSet(ctx, member, object)
	case *flotillav1.NodePool:
		err = b.addNodes(ctx, member, object)
	}
	return b, err
}

// addStatefulSet adds the StatefulSet of a Redis with its Pods and their nodes.
func (b *branch) addStatefulSet(ctx context.Context, member *site.Site, redis *flotillav1.Redis) error {
	set := &appsv1.StatefulSet{}
	below := &branch{kind: "StatefulSet", name: redis.Name, ready: metav1.ConditionFalse, reason: "NotFound", detail: "It is not made yet"}
	err := member.Get(ctx, client.ObjectKeyFromObject(redis), set)
	if client.IgnoreNotFound(err) != nil {
		return member.Explain("reading StatefulSet "+redis.Namespace+"/"+redis.Name, err)
	}
	if err == nil {
		want := ptr.Deref(set.Spec.Replicas, 1)
		below.since, below.reason = &set.CreationTimestamp, "ReplicasReady"
		below.detail = fmt.Sprintf("%d/%d Pods ready", set.Status.ReadyReplicas, want)
		below.ready = metav1.ConditionTrue
		if set.Status.ReadyReplicas < want {
			below.ready, below.reason = metav1.ConditionFalse, "ReplicasNotReady"
		}
	}
	b.below = append(b.below, below)
	pods := &corev1.PodList{}
	if err := member.List(ctx, pods, client.InNamespace(redis.Namespace), client.MatchingLabels{flotillav1.LabelRedis: redis.Name}); err != nil {
		return member.Explain("listing Pods of Redis "+redis.Name, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range pods.Items {
		pod := podBranch(&pods.Items[i], redis)
		if name := pods.Items[i].Spec.NodeName; name != "" {
			node := &corev1.Node{}
			err := member.Get(ctx, client.ObjectKey{Name: name}, node)
			switch {
			case apierrors.IsNotFound(err):
				pod.below = append(pod.below, &branch{kind: "Node", name: name, ready: metav1.ConditionFalse, reason: "NotFound", detail: "The node is gone"})
			case err != nil:
				return member.Explain("reading Node "+name, err)
			default:
				pod.below = append(pod.below, nodeBranch(node))
			}
		}
		below.below = append(below.below, pod)
	}
	return nil
}

// podBranch returns the state of a Pod: what its containers wait for, else its conditions.
func podBranch(pod *corev1.Pod, redis *flotillav1.Redis) *branch {
	b := &branch{kind: "Pod", name: pod.Name, ready: metav1.ConditionUnknown, reason: string(pod.Status.Phase), since: &pod.CreationTimestamp}
	for i := range redis.Status.Members {
		if redis.Status.Members[i].Name == pod.Name {
			b.detail = redis.Status.Members[i].Role
		}
	}
	for _, found := range pod.Status.Conditions {
		switch {
		case found.Type == corev1.PodReady:
			b.ready, b.since = metav1.ConditionStatus(found.Status), &found.LastTransitionTime
		case found.Type == corev1.PodScheduled && found.Status == corev1.ConditionFalse:
			b.ready, b.reason, b.detail = metav1.ConditionFalse, found.Reason, found.Message
		}
	}
	for _, status := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
		restarts := ""
		if status.RestartCount > 0 {
			restarts = fmt.Sprintf("container %s restarted %d times", status.Name, status.RestartCount)
		}
		switch {
		case status.State.Waiting != nil && status.State.Waiting.Reason != "PodInitializing":
			b.reason = status.State.Waiting.Reason
			b.detail = strings.Join(slices.DeleteFunc([]string{text.Line(status.State.Waiting.Message), restarts}, func(s string) bool { return s == "" }), "; ")
			return b
		case restarts != "":
			b.detail = strings.TrimPrefix(b.detail+", "+restarts, ", ")
		}
	}
	if pod.DeletionTimestamp != nil {
		b.reason = "Terminating"
	}
	return b
}

// nodeBranch returns the state of a node.
func nodeBranch(node *corev1.Node) *branch {
	b := &branch{kind: "Node", name: node.Name, ready: metav1.ConditionUnknown, since: &node.CreationTimestamp}
	for _, found := range node.Status.Conditions {
		if found.Type == corev1.NodeReady {
			b.ready, b.reason, b.since = metav1.ConditionStatus(found.Status), found.Reason, &found.LastTransitionTime
			if found.Status != corev1.ConditionTrue {
				b.detail = found.Message
			}
		}
	}
	if node.Spec.Unschedulable {
		b.detail = strings.TrimPrefix(b.detail+"; cordoned", "; ")
	}
	return b
}

// addNodes adds the nodes of a pool.
func (b *branch) addNodes(ctx context.Context, member *site.Site, pool *flotillav1.NodePool) error {
	matcher, nodes := ownership.NewMatcher(pool), &corev1.NodeList{}
	if err := member.List(ctx, nodes, client.MatchingLabelsSelector{Selector: matcher.Selector()}); err != nil {
		return member.Explain("listing Nodes", err)
	}
	for i := range nodes.Items {
		if matcher.Matches(&nodes.Items[i]) {
			b.below = append(b.below, nodeBranch(&nodes.Items[i]))
		}
	}
	slices.SortFunc(b.below, func(x, y *branch) int {
		switch readyX, readyY := x.ready == metav1.ConditionTrue, y.ready == metav1.ConditionTrue; {
		case readyX == readyY:
			return strings.Compare(x.name, y.name)
		case readyX:
			return 1
		}
		return -1
	})
	if more := len(b.below) - maxNodes; more > 0 {
		b.below = append(b.below[:maxNodes], &branch{kind: "and", name: fmt.Sprintf("%d more Nodes", more), ready: b.below[maxNodes].ready})
	}
	return nil
}
