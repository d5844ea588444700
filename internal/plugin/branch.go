// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxNodes is how many nodes of a NodePool are shown; those that are not ready come first.
const maxNodes = 20

// branch is a thing in the tree, with what it consists of below it.
type branch struct {
	kind, name string
	ready      metav1.ConditionStatus
	reason     string
	since      *metav1.Time
	detail     string
	below      []*branch
}

// title names a branch.
func (b *branch) title() string { return b.kind + " " + b.name }

// rows draws the tree.
func (t *tool) rows(b *branch, prefix, childPrefix string) [][]cell {
	rows := [][]cell{{
		{text: prefix + b.title()}, {string(b.ready), forStatus(b.ready)}, {text: or(b.reason)}, {text: t.ago(b.since)}, {text: b.detail},
	}}
	for i, child := range b.below {
		if i == len(b.below)-1 {
			rows = append(rows, t.rows(child, childPrefix+"└─ ", childPrefix+"   ")...)
		} else {
			rows = append(rows, t.rows(child, childPrefix+"├─ ", childPrefix+"│  ")...)
		}
	}
	return rows
}

// printTree writes the tree.
func (t *tool) printTree(root *branch) {
	table(t.Out, []string{"OBJECT", "READY", "REASON", "SINCE", "DETAIL"}, t.rows(root, "", ""))
}

// target is an object of ours that an argument names.
type target struct {
	kind fleet.Kind
	key  client.ObjectKey
}

// parseTarget reads redis/NAME or nodepool/NAME.
func (t *tool) parseTarget(argument string) (target, error) {
	kindName, name, found := strings.Cut(argument, "/")
	of := target{key: client.ObjectKey{Name: name}}
	switch strings.TrimSuffix(strings.ToLower(kindName), ".flotilla.dev") {
	case "redis", "redises":
		of.kind = fleet.Redis
		namespace, _, err := t.flags.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return of, fmt.Errorf("reading the namespace of the context: %w", err)
		}
		of.key.Namespace = namespace
	case "nodepool", "nodepools":
		of.kind = fleet.NodePool
	default:
		found = false
	}
	if !found || name == "" {
		return of, faultf("write redis/NAME or nodepool/NAME, or redis NAME or nodepool NAME", "%q does not name an object", argument)
	}
	return of, nil
}

// String names the target as people do.
func (of target) String() string {
	return strings.ReplaceAll(strings.ToLower(of.kind.Name)+"/"+of.key.Namespace+"/"+of.key.Name, "//", "/")
}

// command is a command of ours about the target as it can be pasted.
func (of target) command(name string) string {
	text := "kubectl flotilla " + name + " " + strings.ToLower(of.kind.Name) + "/" + of.key.Name
	if of.key.Namespace != "" {
		text += " -n " + of.key.Namespace
	}
	return text
}

// read reads the target on the hub.
func (of target) read(ctx context.Context, hub *site) (fleet.Object, error) {
	object := of.kind.New()
	err := hub.Get(ctx, of.key, object)
	if apierrors.IsNotFound(err) {
		return nil, faultf("check the name and -n NAMESPACE; kubectl get redises,nodepools -A lists what there is", "%s has no %s", hub.called, of)
	}
	return object, hub.explain("reading "+of.String(), err)
}

// ofCondition makes a branch of an object by its condition Ready.
func ofCondition(kind, name string, conditions []metav1.Condition) *branch {
	ready := condition(conditions, flotillav1.ConditionReady)
	b := &branch{kind: kind, name: name, ready: ready.Status, reason: ready.Reason, detail: ready.Message}
	if !ready.LastTransitionTime.IsZero() {
		b.since = &ready.LastTransitionTime
	}
	return b
}

// lookInto follows a copy down to the nodes.
func lookInto(ctx context.Context, member *site, of target) (*branch, error) {
	copied := of.kind.New()
	err := member.Get(ctx, of.key, copied)
	if apierrors.IsNotFound(err) {
		return &branch{kind: of.kind.Name, name: of.key.Name, ready: metav1.ConditionUnknown, reason: "NotFound", detail: "The member has no such object"}, nil
	}
	if err != nil {
		return nil, member.explain("reading "+of.String(), err)
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

// addStatefulSet adds what a Redis consists of.
func (b *branch) addStatefulSet(ctx context.Context, member *site, redis *flotillav1.Redis) error {
	set := &appsv1.StatefulSet{}
	below := &branch{kind: "StatefulSet", name: redis.Name, ready: metav1.ConditionFalse, reason: "NotFound", detail: "It is not made yet"}
	err := member.Get(ctx, client.ObjectKeyFromObject(redis), set)
	if client.IgnoreNotFound(err) != nil {
		return member.explain("reading StatefulSet "+redis.Namespace+"/"+redis.Name, err)
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
		return member.explain("listing Pods of Redis "+redis.Name, err)
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
				return member.explain("reading Node "+name, err)
			default:
				pod.below = append(pod.below, nodeBranch(node))
			}
		}
		below.below = append(below.below, pod)
	}
	return nil
}

// podBranch says how a Pod is: by what keeps its containers, else by its conditions.
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

// nodeBranch says how a node is.
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
func (b *branch) addNodes(ctx context.Context, member *site, pool *flotillav1.NodePool) error {
	selector, err := poolSelector(pool)
	if err != nil {
		return fmt.Errorf("reading the nodeSelector of NodePool %q: %w", pool.Name, err)
	}
	nodes := &corev1.NodeList{}
	if err := member.List(ctx, nodes, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return member.explain("listing Nodes", err)
	}
	for i := range nodes.Items {
		b.below = append(b.below, nodeBranch(&nodes.Items[i]))
	}
	slices.SortFunc(b.below, func(x, y *branch) int {
		return cmp.Or(boolRank(x.ready == metav1.ConditionTrue)-boolRank(y.ready == metav1.ConditionTrue), strings.Compare(x.name, y.name))
	})
	if more := len(b.below) - maxNodes; more > 0 {
		b.below = append(b.below[:maxNodes], &branch{kind: "and", name: fmt.Sprintf("%d more Nodes", more), ready: b.below[maxNodes].ready})
	}
	return nil
}

// poolSelector selects the nodes of a pool.
func poolSelector(pool *flotillav1.NodePool) (labels.Selector, error) {
	if pool.Spec.NodeSelector == nil {
		return labels.Parse("node-role.kubernetes.io/" + pool.Name)
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for key, value := range pool.Spec.NodeSelector.MatchLabels {
		selector.MatchLabels[key] = string(value)
	}
	for _, requirement := range pool.Spec.NodeSelector.MatchExpressions {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: requirement.Key, Operator: requirement.Operator, Values: requirement.Values,
		})
	}
	return metav1.LabelSelectorAsSelector(selector)
}
