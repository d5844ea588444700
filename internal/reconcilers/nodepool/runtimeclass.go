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
)

// classOutcome is what became of the RuntimeClass: the condition, the events and the error to try again for.
type classOutcome struct {
	status          metav1.ConditionStatus
	reason, message string
	events          []clusters.Event
	err             error
}

// ensureRuntimeClass makes the RuntimeClass of the pool what the spec says. One of our name that the pool does not own
// stays untouched.
func (r *PoolReconciler) ensureRuntimeClass(ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, roleValues sets.Set[string]) classOutcome {
	name := flotillav1.RuntimeClassPrefix + pool.Name
	if pool.Spec.Handler != "" && pool.Spec.NodeSelector != nil && len(pool.Spec.NodeSelector.MatchExpressions) > 0 {
		// The schema refuses this; the pool is older than the rule.
		return classInexact("A RuntimeClass cannot express nodeSelector.matchExpressions: use matchLabels only, or remove handler")
	}
	current, err := currentRuntimeClass(ctx, member, pool, name)
	if err != nil {
		return classFailed("Reading", name, err)
	}
	var wanted *nodev1.RuntimeClass
	if pool.Spec.Handler != "" {
		wanted = runtimeClassFor(pool, roleValue(pool, current, roleValues))
	}
	ours := current != nil && metav1.IsControlledBy(current, pool)
	out := r.bringRuntimeClass(ctx, member, pool, name, current, wanted, ours)
	if out.reason == flotillav1.ReasonRuntimeClassApplied && pool.Spec.NodeSelector == nil && roleValues.Len() > 1 {
		inexact := classInexact(mixedRoles(pool, wanted, roleValues))
		inexact.events = out.events
		return inexact
	}
	return out
}

// bringRuntimeClass brings the RuntimeClass to what is wanted, nil for none.
func (r *PoolReconciler) bringRuntimeClass(
	ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, name string, current, wanted *nodev1.RuntimeClass, ours bool,
) classOutcome {
	switch {
	case wanted == nil && !ours:
		return classOutcome{status: metav1.ConditionTrue, reason: flotillav1.ReasonNoHandler, message: "The pool asks for no RuntimeClass"}
	case current != nil && !ours:
		return classOutcome{
			status: metav1.ConditionFalse, reason: flotillav1.ReasonNameConflict,
			message: fmt.Sprintf("RuntimeClass %s exists and does not belong to the pool", name),
		}
	case wanted != nil && current != nil && sameRuntimeClass(current, wanted):
		return classReady(name)
	case isHeld(pool):
		return classOutcome{status: metav1.ConditionFalse, reason: heldReason(pool), message: fmt.Sprintf("RuntimeClass %s is not as the spec says", name)}
	case wanted == nil:
		if err := deleteRuntimeClass(ctx, member, current); err != nil {
			return classFailed("Deleting", name, err)
		}
		return classOutcome{
			status: metav1.ConditionTrue, reason: flotillav1.ReasonNoHandler, message: "The pool asks for no RuntimeClass",
			events: []clusters.Event{*runtimeClassEvent("RuntimeClassDeleted", fmt.Sprintf("Deleted RuntimeClass %s", name))},
		}
	case current == nil:
		return createRuntimeClass(ctx, member, pool, wanted)
	case current.Handler != wanted.Handler:
		// The handler is immutable.
		if err := deleteRuntimeClass(ctx, member, current); err != nil {
			return classFailed("Deleting", name, err)
		}
		out := createRuntimeClass(ctx, member, pool, wanted)
		for i := range out.events {
			out.events[i] = *runtimeClassEvent("RuntimeClassRecreated", fmt.Sprintf("Recreated RuntimeClass %s with handler %s", name, wanted.Handler))
		}
		return out
	}
	if err := applyRuntimeClass(ctx, member, current, wanted); err != nil {
		return classFailed("Updating", name, err)
	}
	out := classReady(name)
	out.events = []clusters.Event{*runtimeClassEvent("RuntimeClassUpdated", fmt.Sprintf("Updated RuntimeClass %s", name))}
	return out
}

// currentRuntimeClass reads the cache, which only has those with our label, and past it when there is none and it matters.
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
// takes any value and a RuntimeClass one: kubeadm sets none, RKE and k3s set "true". While the nodes do not agree, or there
// are none, the value stays that was selected before.
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

// mixedRoles says what to do about nodes that carry the role label with different values.
func mixedRoles(pool *flotillav1.NodePool, class *nodev1.RuntimeClass, values sets.Set[string]) string {
	role := flotillav1.NodeRolePrefix + pool.Name
	var quoted []string
	for _, value := range sets.List(values) {
		quoted = append(quoted, strconv.Quote(value))
	}
	return fmt.Sprintf("Label %s has different values on nodes of the pool (%s), and RuntimeClass %s selects %q only: give the label the same value on all of them",
		role, enumerate(quoted), class.Name, class.Scheduling.NodeSelector[role])
}

// runtimeClassFor returns the RuntimeClass that Pods of the pool name. It does not tolerate taints for joining nodes: they
// keep Pods away until something has made the node ready for them.
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

// sameRuntimeClass compares what we set; labels of others may be there as well.
func sameRuntimeClass(current, wanted *nodev1.RuntimeClass) bool {
	return current.Handler == wanted.Handler &&
		current.Labels[flotillav1.LabelNodePool] == wanted.Labels[flotillav1.LabelNodePool] &&
		equality.Semantic.DeepEqual(current.Scheduling, wanted.Scheduling)
}

// createRuntimeClass uses POST, so that one which appears meanwhile is not taken over.
func createRuntimeClass(ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, wanted *nodev1.RuntimeClass) classOutcome {
	if err := member.GetClient().Create(ctx, wanted, fieldOwner); err != nil {
		return classFailed("Creating", wanted.Name, err)
	}
	out := classReady(wanted.Name)
	reason, verb := "RuntimeClassCreated", "Created"
	// It was there before: somebody has deleted it.
	if was := apimeta.FindStatusCondition(pool.Status.Conditions, flotillav1.ConditionRuntimeClassReady); was != nil && (was.Reason == flotillav1.ReasonRuntimeClassApplied || was.Reason == flotillav1.ReasonSelectorNotExact) {
		reason, verb = "RuntimeClassRecreated", "Recreated"
	}
	out.events = []clusters.Event{*runtimeClassEvent(reason, fmt.Sprintf("%s RuntimeClass %s", verb, wanted.Name))}
	return out
}

// applyRuntimeClass takes the fields back that somebody changed. The UID makes it fail when it is another one by now.
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

func classReady(name string) classOutcome {
	return classOutcome{status: metav1.ConditionTrue, reason: flotillav1.ReasonRuntimeClassApplied, message: fmt.Sprintf("RuntimeClass %s is as the spec says", name)}
}

func classInexact(message string) classOutcome {
	return classOutcome{status: metav1.ConditionFalse, reason: flotillav1.ReasonSelectorNotExact, message: message}
}

func classFailed(doing, name string, err error) classOutcome {
	why := failureOf(err)
	return classOutcome{
		status: metav1.ConditionFalse, reason: why.reason,
		message: fmt.Sprintf("%s RuntimeClass %s failed: %s", doing, name, why.message),
		err:     fmt.Errorf("ensuring RuntimeClass %q: %w", name, err),
	}
}
