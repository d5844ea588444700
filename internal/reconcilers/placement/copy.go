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
	"github.com/flotilla-dev/flotilla/internal/text"
)

// copyPass is one pass for one copy.
type copyPass struct {
	*Reconciler
	hubObject fleet.Object
	key       fleet.ObjectKey
	// name and member identify and describe the member.
	name   string
	info   fleet.Member
	member cluster.Cluster
	chosen bool
	// incarnation is the incarnation of the member's caches.
	incarnation uint64
	// lacks are the fields that the member's schema lacks; definitions identifies that schema.
	lacks       []fleet.MissingField
	definitions string
	// template identifies the change that leads to the spec of the copy. While the present one is taken back, revision is
	// where the spec comes from, and unknown is true if no revision has it.
	template, revision string
	unknown            bool
	// cluster is the UID of the member. madeIn is the UID of the cluster that has or had a copy which the hub has not
	// removed. lostAt is when a pass found that copy missing, if this has not been recorded yet.
	cluster, madeIn types.UID
	lostAt          time.Time
	// conceded are the fields that are left to the member because of a fight.
	conceded []string
}

// reconcileCopy reconciles one copy. It writes only if placedIn lists the member and the member is writable. Everything
// else is queued again when the member is ready.
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
			// Roll-up reports the invalid placement. Nothing is changed until it is corrected.
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

// observe returns the member's object with that name, or nil. It reports a missing or foreign object only after a live
// read, or if the cache contained the copy until this process deleted it. A cached copy may be stale; its removal has
// preconditions.
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

// deletionShown reports whether the cache, which has no copy, is the one that contained the copy when it was deleted.
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

// apply creates or updates the copy.
func (p *copyPass) apply(ctx context.Context, found fleet.Object) (time.Duration, error) {
	want, refusal, err := p.want(ctx, found)
	if err != nil {
		return 0, err
	}
	if refusal != nil {
		p.reportWithEvent(*refusal)
		return 0, p.touch(ctx, found)
	}
	if p.unknown {
		return fleet.RefusedDelay, p.hold(ctx, found)
	}
	switch {
	case found == nil:
		return p.create(ctx, want)
	case found.GetDeletionTimestamp() != nil:
		// It is created again when it is gone; the watch triggers that pass.
		p.report(fleet.Outcome{})
		return 0, nil
	case fleet.IsOurs(found, p.Options.HubID):
	case fleet.MayAdopt(p.hubObject, found, p.Options.HubID):
		if adopted, err := p.adopt(ctx, found, want); err != nil || adopted {
			return 0, err
		}
	default:
		return p.refuse(flotillav1.ReasonNameConflict, "The cluster has an object with this name that is not a copy of this one")
	}
	return p.update(ctx, found, want)
}

// update gives an existing copy the desired spec and metadata, if it differs and may change now.
func (p *copyPass) update(ctx context.Context, found fleet.Object, want fleet.Effective) (time.Duration, error) {
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
	if changes && !p.mayTake(want, fleet.CopyOf(p.Kind, found)) {
		return 0, p.hold(ctx, found)
	}
	desired.SetUID(found.GetUID())
	if changes || len(want.Left) > 0 {
		// With a stale cache the last change would be applied and dated again, or fields that placement has withdrawn from
		// the member would be omitted.
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

// want returns the desired spec of the copy, or a refusal.
func (p *copyPass) want(ctx context.Context, found fleet.Object) (fleet.Effective, *fleet.Outcome, error) {
	invalid := func(err error) (fleet.Effective, *fleet.Outcome, error) {
		return fleet.Effective{}, &fleet.Outcome{Reason: flotillav1.ReasonOverrideInvalid, Message: err.Error()}, nil
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
	if change := fleet.RevertedChange(p.hubObject); change != nil {
		if want, err = p.takeBack(ctx, change, want, found); err != nil {
			return fleet.Effective{}, nil, err
		}
	}
	namespace := p.hubObject.GetNamespace()
	message := ""
	switch {
	case !namespaceAllowed(namespace, p.Options.AllowedNamespaces):
		message = fmt.Sprintf("Copies may not be placed into namespace %q", namespace)
	case !p.info.Allows(namespace) && namespace == "":
		message = "The registration of the cluster does not allow cluster-scoped objects"
	case !p.info.Allows(namespace):
		message = fmt.Sprintf("The registration of the cluster does not allow namespace %q", namespace)
	}
	if message != "" {
		return want, &fleet.Outcome{Reason: flotillav1.ReasonNamespaceNotAllowed, Message: message}, nil
	}
	want, unknown := want.Fit(p.lacks)
	if len(unknown) > 0 {
		return want, &fleet.Outcome{Reason: flotillav1.ReasonVersionSkew, Message: fmt.Sprintf(
			"The CRD of the cluster is older and lacks %s: upgrade it, or leave that to the member with an override", text.Names(unknown))}, nil
	}
	return want, nil, nil
}

// create creates the copy, in its turn if that evicts Pods, after a live read has shown that there is no object with its name. It applies without force,
// so that it does not take over the fields of an object that is created at the same moment. A copy that was lost is
// created again only after this has been recorded.
func (p *copyPass) create(ctx context.Context, want fleet.Effective) (time.Duration, error) {
	if want.Evicts() && !p.mayTake(want, nil) {
		return 0, p.hold(ctx, nil)
	}
	missed := p.missed()
	if !p.lostAt.IsZero() {
		p.report(fleet.Outcome{})
		return 0, nil
	}
	if delay, err := p.ensureNamespace(ctx); err != nil || delay > 0 {
		return delay, err
	}
	// Roll-up reports when it is ready.
	stored, delay, err := p.write(ctx, p.desired(want, nil), want)
	if stored && missed {
		p.say(p.hubObject, corev1.EventTypeWarning, flotillav1.ReasonCopyRecreated, actionPlace, p.name, "The copy disappeared and was created again")
	}
	return delay, err
}

// ensureNamespace creates the namespace of the copy. It is never deleted.
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
		return fleet.RefusedDelay, nil
	}
	namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := p.member.GetClient().Create(ctx, namespace, FieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return p.failed(fmt.Errorf("creating namespace %q: %w", name, err))
	}
	return 0, nil
}

// write applies the copy and reports whether the member stored what was sent. desired is updated to the stored object.
func (p *copyPass) write(ctx context.Context, desired *unstructured.Unstructured, want fleet.Effective, options ...client.ApplyOption) (bool, time.Duration, error) {
	options = append(options, FieldOwner)
	sent := p.identify(desired)
	// The response is decoded into it.
	desired.Object["spec"] = want.DeepCopy().Spec
	if err := p.member.GetClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), options...); err != nil {
		delay, err := p.failed(fmt.Errorf("applying the copy: %w", err))
		return false, delay, err
	}
	p.madeIn = p.cluster
	p.Table.Answered(p.key, p.name, fleet.SentStored, desired.GetResourceVersion())
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

// desired returns the copy as this hub applies it over found. It shares the spec with want.
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

// metadataDiffers reports whether the copy lacks desired metadata. This includes the hash of its spec, so a copy to
// which this spec has not been applied differs. Labels and annotations that the hub object has lost are removed with
// the next change.
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
