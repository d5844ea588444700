// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applynodev1 "k8s.io/client-go/applyconfigurations/node/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

// classOutcome is the result for the RuntimeClass: the condition, the events, and the error to retry for.
type classOutcome struct {
	condition metav1.Condition
	events    []clusters.Event
	err       error
}

// ensureRuntimeClass makes the RuntimeClass of the pool what the spec says. One with its name that the pool does not own stays
// untouched.
func ensureRuntimeClass(ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, roleValues sets.Set[string]) classOutcome {
	name := flotillav1.RuntimeClassPrefix + pool.Name
	if pool.Spec.Handler != "" && pool.Spec.NodeSelector != nil && len(pool.Spec.NodeSelector.MatchExpressions) > 0 {
		// The schema refuses this; the pool is older than the rule.
		return classOutcome{condition: isFalse(flotillav1.ReasonSelectorNotExact, "A RuntimeClass cannot express nodeSelector.matchExpressions: use matchLabels only, or remove handler")}
	}
	current, err := currentRuntimeClass(ctx, member, pool, name)
	if err != nil {
		return classFailed("Reading", name, err)
	}
	var wanted *nodev1.RuntimeClass
	if pool.Spec.Handler != "" {
		wanted = runtimeClassFor(pool, roleValue(pool, current, roleValues))
	}
	out := bringRuntimeClass(ctx, member, pool, current, wanted)
	if out.condition.Reason == flotillav1.ReasonRuntimeClassApplied && pool.Spec.NodeSelector == nil && roleValues.Len() > 1 {
		out.condition = mixedRoles(pool, wanted, roleValues)
	}
	return out
}

// bringRuntimeClass creates, updates or deletes the RuntimeClass; wanted is nil for none.
func bringRuntimeClass(ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, current, wanted *nodev1.RuntimeClass) classOutcome {
	name, ours := flotillav1.RuntimeClassPrefix+pool.Name, current != nil && metav1.IsControlledBy(current, pool)
	switch {
	case wanted == nil && !ours:
		return classUnwanted()
	case current != nil && !ours:
		return classOutcome{condition: isFalse(flotillav1.ReasonNameConflict, "RuntimeClass %s exists and does not belong to the pool", name)}
	case wanted != nil && current != nil && sameRuntimeClass(current, wanted):
		return classReady(name)
	case ownership.ReadOnly(pool):
		return classOutcome{condition: isFalse(readOnlyReason(pool), "RuntimeClass %s is not as the spec says", name)}
	case wanted == nil:
		if err := deleteRuntimeClass(ctx, member, current); err != nil {
			return classFailed("Deleting", name, err)
		}
		return classUnwanted(runtimeClassEvent("RuntimeClassDeleted", "Deleted RuntimeClass %s", name))
	case current == nil:
		return createRuntimeClass(ctx, member, pool, wanted)
	case current.Handler != wanted.Handler:
		// The handler is immutable.
		if err := deleteRuntimeClass(ctx, member, current); err != nil {
			return classFailed("Deleting", name, err)
		}
		out := createRuntimeClass(ctx, member, pool, wanted)
		for i := range out.events {
			out.events[i] = runtimeClassEvent("RuntimeClassRecreated", "Recreated RuntimeClass %s with handler %s", name, wanted.Handler)
		}
		return out
	}
	if err := applyRuntimeClass(ctx, member, current, wanted); err != nil {
		return classFailed("Updating", name, err)
	}
	return classReady(name, runtimeClassEvent("RuntimeClassUpdated", "Updated RuntimeClass %s", name))
}

// currentRuntimeClass returns the RuntimeClass or nil. The cache only has those with our label; if the pool wants one that is not
// there, it is read from the API server.
func currentRuntimeClass(ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, name string) (*nodev1.RuntimeClass, error) {
	current := &nodev1.RuntimeClass{}
	err := member.GetClient().Get(ctx, client.ObjectKey{Name: name}, current)
	if apierrors.IsNotFound(err) && pool.Spec.Handler != "" {
		err = member.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, current)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return current, nil
}

// roleValue returns the value of the role label that the RuntimeClass of a pool without nodeSelector selects. The pool
// matches any value, a RuntimeClass only one: kubeadm sets an empty value, RKE and k3s set "true". While nodes have different
// values, or there are no nodes, the value that was selected before stays.
func roleValue(pool *flotillav1.NodePool, current *nodev1.RuntimeClass, values sets.Set[string]) string {
	if values.Len() == 1 {
		return values.UnsortedList()[0]
	}
	if current != nil && metav1.IsControlledBy(current, pool) && current.Scheduling != nil {
		value, selected := current.Scheduling.NodeSelector[flotillav1.NodeRolePrefix+pool.Name]
		if selected && (values.Len() == 0 || values.Has(value)) {
			return value
		}
	}
	if values.Len() == 0 {
		return ""
	}
	return sets.List(values)[0]
}

// mixedRoles is the condition for nodes that have different values of the role label.
func mixedRoles(pool *flotillav1.NodePool, class *nodev1.RuntimeClass, values sets.Set[string]) metav1.Condition {
	role := flotillav1.NodeRolePrefix + pool.Name
	var quoted []string
	for _, value := range sets.List(values) {
		quoted = append(quoted, strconv.Quote(value))
	}
	return isFalse(flotillav1.ReasonSelectorNotExact, "Label %s has different values on nodes of the pool (%s), and RuntimeClass %s selects %q only: give the label the same value on all of them",
		role, enumerate(quoted), class.Name, class.Scheduling.NodeSelector[role])
}

// runtimeClassFor returns the RuntimeClass of the pool. It does not tolerate taints for joining nodes, which keep Pods away until
// something has prepared the node.
func runtimeClassFor(pool *flotillav1.NodePool, role string) *nodev1.RuntimeClass {
	scheduling := &nodev1.Scheduling{NodeSelector: map[string]string{}}
	if pool.Spec.NodeSelector == nil {
		scheduling.NodeSelector[flotillav1.NodeRolePrefix+pool.Name] = role
	} else {
		for k, v := range pool.Spec.NodeSelector.MatchLabels {
			scheduling.NodeSelector[k] = string(v)
		}
	}
	for _, taint := range pool.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || taint.Propagation == flotillav1.TaintPropagationOnInitialization {
			continue
		}
		scheduling.Tolerations = append(scheduling.Tolerations, corev1.Toleration{
			Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect,
		})
	}
	return &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:            flotillav1.RuntimeClassPrefix + pool.Name,
			Labels:          map[string]string{flotillav1.LabelNodePool: pool.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, flotillav1.GroupVersion.WithKind(kindNodePool))},
		},
		Handler:    pool.Spec.Handler,
		Scheduling: scheduling,
	}
}

// sameRuntimeClass compares the fields that we set; others may have added labels.
func sameRuntimeClass(current, wanted *nodev1.RuntimeClass) bool {
	return current.Handler == wanted.Handler &&
		current.Labels[flotillav1.LabelNodePool] == wanted.Labels[flotillav1.LabelNodePool] &&
		equality.Semantic.DeepEqual(current.Scheduling, wanted.Scheduling)
}

// createRuntimeClass fails if someone else has created the RuntimeClass meanwhile.
func createRuntimeClass(ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, wanted *nodev1.RuntimeClass) classOutcome {
	if err := member.GetClient().Create(ctx, wanted, fieldOwner); err != nil {
		return classFailed("Creating", wanted.Name, err)
	}
	reason, verb := "RuntimeClassCreated", "Created"
	// It existed before, so someone has deleted it.
	if was := apimeta.FindStatusCondition(pool.Status.Conditions, flotillav1.ConditionRuntimeClassReady); was != nil && (was.Reason == flotillav1.ReasonRuntimeClassApplied || was.Reason == flotillav1.ReasonSelectorNotExact) {
		reason, verb = "RuntimeClassRecreated", "Recreated"
	}
	return classReady(wanted.Name, runtimeClassEvent(reason, "%s RuntimeClass %s", verb, wanted.Name))
}

// applyRuntimeClass sets our fields. The UID makes it fail if the RuntimeClass has been replaced meanwhile.
func applyRuntimeClass(ctx context.Context, member cluster.Cluster, current, wanted *nodev1.RuntimeClass) error {
	owner := wanted.OwnerReferences[0]
	scheduling := applynodev1.Scheduling().WithNodeSelector(wanted.Scheduling.NodeSelector)
	for _, t := range wanted.Scheduling.Tolerations {
		scheduling.WithTolerations(applycorev1.Toleration().WithKey(t.Key).WithOperator(t.Operator).WithValue(t.Value).WithEffect(t.Effect))
	}
	class := applynodev1.RuntimeClass(wanted.Name).
		WithUID(current.UID).
		WithLabels(wanted.Labels).
		WithOwnerReferences(applymetav1.OwnerReference().
			WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).WithName(owner.Name).WithUID(owner.UID).
			WithController(true).WithBlockOwnerDeletion(true)).
		WithHandler(wanted.Handler).
		WithScheduling(scheduling)
	return member.GetClient().Apply(ctx, class, fieldOwner, client.ForceOwnership)
}

func deleteRuntimeClass(ctx context.Context, member cluster.Cluster, current *nodev1.RuntimeClass) error {
	return client.IgnoreNotFound(member.GetClient().Delete(ctx, current, client.Preconditions{UID: &current.UID}))
}

func classReady(name string, events ...clusters.Event) classOutcome {
	return classOutcome{condition: isTrue(flotillav1.ReasonRuntimeClassApplied, fmt.Sprintf("RuntimeClass %s is as the spec says", name)), events: events}
}

func classUnwanted(events ...clusters.Event) classOutcome {
	return classOutcome{condition: isTrue(flotillav1.ReasonNoHandler, "The pool asks for no RuntimeClass"), events: events}
}

func classFailed(doing, name string, err error) classOutcome {
	why := failureOf(err)
	return classOutcome{
		condition: isFalse(why.Reason, "%s RuntimeClass %s failed: %s", doing, name, why.Message),
		err:       fmt.Errorf("ensuring RuntimeClass %q: %w", name, err),
	}
}
