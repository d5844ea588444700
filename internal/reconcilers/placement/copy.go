// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// copyPass is one pass for one copy.
type copyPass struct {
	*Reconciler
	hubObject fleet.Object
	key       fleet.ObjectKey
	// name of the member, and the member.
	name   string
	info   fleet.Member
	member cluster.Cluster
	chosen bool
	// incarnation is that of the member's caches.
	incarnation uint64
	// lacks are the fields that the member's schema lacks; definitions identifies that schema.
	lacks       []fleet.MissingField
	definitions string
	// template names the change that gives the copy its spec.
	template string
	// cluster is the UID of the member, madeIn that of the cluster in which there is, or was, a copy that is not ours to have
	// removed, and lostAt when a pass missed it without this being recorded yet.
	cluster, madeIn types.UID
	lostAt          time.Time
	// conceded are the fields that are left to the member because of a fight.
	conceded []string
}

// reconcileCopy makes one copy what it should be. It writes only where placedIn says that a copy may be, and only while
// the member can be written to: whatever cannot be done now is queued again when the member is ready.
func (r *Reconciler) reconcileCopy(ctx context.Context, hubObject fleet.Object, clusterName multicluster.ClusterName) (time.Duration, error) {
	snapshot, registered := r.Members.Snapshot(clusterName)
	if !registered || !mayBePlaced(hubObject, clusterName) {
		return 0, nil
	}
	pass := &copyPass{
		Reconciler: r, hubObject: hubObject, key: r.key(hubObject), name: string(clusterName), info: r.roster().Member(snapshot),
		lacks: lacking(snapshot, r.Kind), definitions: snapshot.Definitions, cluster: snapshot.UID, incarnation: snapshot.Incarnation,
	}
	if !pass.info.Writable {
		return 0, nil
	}
	if hubObject.GetDeletionTimestamp() != nil {
		if released, err := r.released(ctx, hubObject); err != nil || released {
			return 0, err
		}
	} else {
		choice, err := fleet.NewChoice(hubObject.GetPlacement(), hubObject.GetNamespace())
		if err != nil {
			// Roll-up says what is wrong with the placement; until it is corrected nothing is changed.
			return 0, nil //nolint:nilerr // A retry would not help.
		}
		pass.chosen = choice.Takes(pass.info, true)
	}
	member, err := r.Members.Member(clusterName)
	if err != nil {
		return 0, fmt.Errorf("getting cluster %q: %w", clusterName, err)
	}
	pass.member = member
	found, err := pass.observe(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the copy in cluster %q: %w", clusterName, err)
	}
	pass.recall(found, snapshot.Replaced)
	return pass.act(ctx, found)
}

// observe returns the member's object of that name, or nil. That there is none, or that it is not ours to remove, is
// believed only after a live read, or when the cache has shown the copy until this process deleted it. A copy that the cache
// shows is removed on condition that it is still the same.
func (p *copyPass) observe(ctx context.Context) (fleet.Object, error) {
	found := p.Kind.New()
	err := p.member.GetClient().Get(ctx, p.key.Object, found)
	if err == nil && (p.chosen || fleet.IsOurs(found, p.Options.HubID)) {
		return found, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil && !p.chosen && p.deletionShown() {
		return nil, nil
	}
	found = p.Kind.New()
	err = p.member.GetAPIReader().Get(ctx, p.key.Object, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// deletionShown reports whether the cache, which shows no copy, is the one that showed the copy when it was deleted.
func (p *copyPass) deletionShown() bool {
	deleted := p.Table.Get(p.key, p.name).Deleted
	now, _ := p.Members.Snapshot(multicluster.ClusterName(p.name))
	return deleted != 0 && deleted == p.incarnation && deleted == now.Incarnation
}

func (p *copyPass) act(ctx context.Context, found fleet.Object) (time.Duration, error) {
	if !p.chosen && (found == nil || !fleet.IsOurs(found, p.Options.HubID)) {
		p.madeIn, p.lostAt = "", time.Time{}
		p.report(fleet.Outcome{Gone: true})
		return 0, nil
	}
	var annotations map[string]string
	if found != nil {
		annotations = found.GetAnnotations()
	}
	switch fleet.FateOf(p.hubObject, p.name, &p.info, p.chosen, annotations) {
	case fleet.FateApply:
		return p.apply(ctx, found)
	case fleet.FateRemove:
		return p.remove(ctx, found)
	default:
		p.report(fleet.Outcome{})
		return 0, nil
	}
}

// apply makes the copy, or makes it what it should be again.
func (p *copyPass) apply(ctx context.Context, found fleet.Object) (time.Duration, error) {
	want, refusal := p.want()
	if refusal != nil {
		p.tell(*refusal)
		return 0, p.touch(ctx, found)
	}
	switch {
	case found == nil:
		return p.create(ctx, want)
	case found.GetDeletionTimestamp() != nil:
		// It is made again when it is gone, which the watch tells.
		p.report(fleet.Outcome{})
		return 0, nil
	case !fleet.IsOurs(found, p.Options.HubID) && !p.mayAdopt(found):
		return p.refuse(flotillav1.ReasonNameConflict, "The cluster has an object of this name that is not a copy of this one")
	}
	want, drifted, err := p.concede(found, want)
	if err != nil {
		return 0, err
	}
	desired := p.desired(want, found)
	if len(drifted) == 0 && !metadataDiffers(found, desired) {
		p.placed()
		return 0, nil
	}
	if attempt, again := p.attemptedBefore(found, desired); again {
		p.report(attempt)
		return 0, nil
	}
	changes := p.changes(found, want)
	if changes && !p.Table.MayTake(p.key, p.name, want.Hash) {
		return 0, p.hold(ctx, found)
	}
	desired.SetUID(found.GetUID())
	if changes || len(want.Left) > 0 {
		// A cache that does not show the last change yet would have it made, and dated, once more; or would have fields left
		// out that placement has taken back meanwhile.
		desired.SetResourceVersion(found.GetResourceVersion())
	}
	if err := p.handOver(ctx, found, desired, want.Left); err != nil {
		return p.failed(err)
	}
	stored, delay, err := p.write(ctx, desired, want, client.ForceOwnership)
	if stored && desired.GetResourceVersion() != found.GetResourceVersion() {
		p.sayChanged(found, want, len(drifted) > 0)
		if len(drifted) > 0 {
			p.fights.reverted(p.key, p.name, want.Hash, drifted, p.Clock.Now())
		}
	}
	if delay > 0 {
		// The member has refused the spec.
		err = p.touch(ctx, found)
	}
	return delay, err
}

// want returns what the copy should be, or why it cannot be made so.
func (p *copyPass) want() (fleet.Effective, *fleet.Outcome) {
	invalid := func(err error) (fleet.Effective, *fleet.Outcome) {
		return fleet.Effective{}, &fleet.Outcome{Reason: flotillav1.ReasonOverrideInvalid, Message: err.Error()}
	}
	specs, err := p.specs.Of(p.Kind, p.hubObject)
	if err != nil {
		return invalid(err)
	}
	want, err := specs.For(p.name, p.info.Labels)
	if err != nil {
		return invalid(err)
	}
	if p.template, err = specs.Template(); err != nil {
		return invalid(err)
	}
	namespace := p.hubObject.GetNamespace()
	message := ""
	switch {
	case !namespaceAllowed(namespace, p.Options.AllowedNamespaces):
		message = fmt.Sprintf("Copies may not be placed into namespace %q", namespace)
	case !p.info.Allows(namespace) && namespace == "":
		message = "The registration of the cluster does not let cluster-scoped objects be placed there"
	case !p.info.Allows(namespace):
		message = fmt.Sprintf("The registration of the cluster does not let namespace %q place there", namespace)
	}
	if message != "" {
		return want, &fleet.Outcome{Reason: flotillav1.ReasonNamespaceNotAllowed, Message: message}
	}
	want, unknown := want.Fit(p.lacks)
	if len(unknown) > 0 {
		return want, &fleet.Outcome{Reason: flotillav1.ReasonVersionSkew, Message: fmt.Sprintf(
			"The CRD of the cluster is older and lacks %s: upgrade it, or leave that to the member with an override", fleet.Join(unknown))}
	}
	return want, nil
}

// create makes the copy where a live read has shown that there is nothing of its name. It is applied without force, so
// that a field of an object that appears in this very moment is not taken over. One that is missed is made again when that
// has been recorded.
func (p *copyPass) create(ctx context.Context, want fleet.Effective) (time.Duration, error) {
	missed := p.missed()
	if !p.lostAt.IsZero() {
		p.report(fleet.Outcome{})
		return 0, nil
	}
	if delay, err := p.ensureNamespace(ctx); err != nil || delay > 0 {
		return delay, err
	}
	// Roll-up says when it is ready.
	stored, delay, err := p.write(ctx, p.desired(want, nil), want)
	if stored && missed {
		p.say(p.hubObject, corev1.EventTypeWarning, flotillav1.ReasonCopyRecreated, actionPlace, p.name, "The copy was gone and was made again")
	}
	return delay, err
}

// ensureNamespace creates the namespace of the copy. It is never deleted again.
func (p *copyPass) ensureNamespace(ctx context.Context) (time.Duration, error) {
	name := p.hubObject.GetNamespace()
	if name == "" {
		return 0, nil
	}
	namespace := &corev1.Namespace{}
	err := p.member.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, namespace)
	if err == nil && namespace.DeletionTimestamp != nil {
		p.report(fleet.Outcome{})
		return terminatingDelay, nil
	}
	if err == nil {
		return 0, nil
	}
	if !apierrors.IsNotFound(err) {
		return p.failed(fmt.Errorf("reading namespace %q: %w", name, err))
	}
	if !p.Options.CreateNamespaces {
		if _, err := p.refuse(flotillav1.ReasonNamespaceMissing, fmt.Sprintf("The cluster has no namespace %q", name)); err != nil {
			return 0, err
		}
		// Namespaces are not watched.
		return refusedDelay, nil
	}
	namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := p.member.GetClient().Create(ctx, namespace, FieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return p.failed(fmt.Errorf("creating namespace %q: %w", name, err))
	}
	return 0, nil
}

// write applies the copy and reports whether the member stored what was sent. desired becomes what was stored.
func (p *copyPass) write(ctx context.Context, desired *unstructured.Unstructured, want fleet.Effective, options ...client.ApplyOption) (bool, time.Duration, error) {
	options = append(options, FieldOwner)
	sent := p.identify(desired)
	// The answer is written into it.
	desired.Object["spec"] = want.DeepCopy().Spec
	if err := p.member.GetClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), options...); err != nil {
		delay, err := p.failed(fmt.Errorf("applying the copy: %w", err))
		return false, delay, err
	}
	p.madeIn = p.cluster
	dropped, err := fleet.Uncovered(want.Spec, desired.Object["spec"])
	if err != nil {
		return false, 0, fmt.Errorf("comparing the stored copy: %w", err)
	}
	if len(dropped) > 0 {
		p.refuseDropped(dropped, fleet.Attempt{Sent: sent, UID: desired.GetUID(), Generation: desired.GetGeneration()})
		return false, 0, nil
	}
	p.placed()
	return true, 0, nil
}

// desired is the copy as this hub applies it where found is now. It shares the spec with want.
func (p *copyPass) desired(want fleet.Effective, found fleet.Object) *unstructured.Unstructured {
	annotations := copied(p.hubObject.GetAnnotations(), p.Options.CopyMetadata)
	annotations[flotillav1.AnnotationHub] = p.Options.HubID
	annotations[flotillav1.AnnotationPlacedFrom] = fleet.PlacedFrom(p.key.Object)
	maps.Copy(annotations, p.standing())
	annotations[flotillav1.AnnotationSpecHash] = want.Hash
	if left := want.LeftNames(); left != "" {
		annotations[flotillav1.AnnotationLeftToMember] = left
	}
	maps.Copy(annotations, p.history(found, want))
	desired := &unstructured.Unstructured{Object: map[string]any{"spec": want.Spec}}
	desired.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(p.Kind.Name))
	desired.SetNamespace(p.key.Object.Namespace)
	desired.SetName(p.key.Object.Name)
	desired.SetAnnotations(annotations)
	if labels := copied(p.hubObject.GetLabels(), p.Options.CopyMetadata); len(labels) > 0 {
		desired.SetLabels(labels)
	}
	return desired
}

// metadataDiffers reports whether the copy lacks metadata that it should have. The hash of its spec is part of that, so a
// copy that was not given this spec yet differs. A label or annotation that the hub object lost goes with the next change.
func metadataDiffers(found fleet.Object, desired *unstructured.Unstructured) bool {
	return !contains(found.GetAnnotations(), desired.GetAnnotations()) || !contains(found.GetLabels(), desired.GetLabels()) || leftDiffers(found, desired)
}

func contains(have, want map[string]string) bool {
	for key, value := range want {
		if other, found := have[key]; !found || other != value {
			return false
		}
	}
	return true
}

// mayAdopt reports whether both sides agree that a member's own object becomes the copy.
func (p *copyPass) mayAdopt(found fleet.Object) bool {
	return p.hubObject.GetPlacement().ConflictPolicy == flotillav1.ConflictPolicyAdopt &&
		found.GetAnnotations()[flotillav1.AnnotationAdoptBy] == p.Options.HubID
}
