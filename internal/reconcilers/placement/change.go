// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// historyKeys are the annotations that record which change led to the spec of a copy. Waves are decided by them.
var historyKeys = []string{
	flotillav1.AnnotationRollout, flotillav1.AnnotationPreviousSpecHash, flotillav1.AnnotationSpecChangedAt, flotillav1.AnnotationHubGeneration,
	flotillav1.AnnotationReadyBefore, flotillav1.AnnotationUnreadyNodesBefore,
}

// changes reports whether the spec differs from the one that was last applied to the copy. Reverting drift is no change,
// nor is it to adopt an object that has the spec already.
func (p *copyPass) changes(found fleet.Object, want fleet.Effective) bool {
	return fleet.IsOurs(found, p.Options.HubID) && found.GetAnnotations()[flotillav1.AnnotationSpecHash] != want.Hash
}

// mayTake reports whether it is the turn of the cluster to take a spec, and uses its permit. seen is its copy, or nil.
func (p *copyPass) mayTake(want fleet.Effective, seen *fleet.Copy) bool {
	if want.Idle() {
		return true
	}
	turn := fleet.Turn{Want: want.Hash, Copy: seen, Absent: seen == nil, Trial: fleet.TrialOf(p.hubObject, p.name)}
	return turn.Due() && p.Table.Use(p.key, p.name, want.Hash)
}

// history returns the annotations that record how the copy got its spec. They change only together with the spec.
func (p *copyPass) history(found fleet.Object, want fleet.Effective) map[string]string {
	history := map[string]string{}
	if found != nil && fleet.IsOurs(found, p.Options.HubID) {
		before := found.GetAnnotations()
		hash := before[flotillav1.AnnotationSpecHash]
		if hash == want.Hash {
			for _, key := range historyKeys {
				if value, known := before[key]; known {
					history[key] = value
				}
			}
			return history
		}
		// The copy may go back without a trial to the last spec with which it was ready. While it is idle it proves nothing.
		previous := before[flotillav1.AnnotationPreviousSpecHash]
		seen := fleet.CopyOf(p.Kind, found)
		if hash != "" && seen.Settled() && !seen.Idle {
			previous = hash
		}
		// A copy that goes back has no previous spec: the spec that it leaves is a change like any other.
		if previous != "" && before[flotillav1.AnnotationPreviousSpecHash] != want.Hash {
			history[flotillav1.AnnotationPreviousSpecHash] = previous
		}
		if p.Kind.UnreadyNodes != nil {
			history[flotillav1.AnnotationUnreadyNodesBefore] = strconv.Itoa(p.Kind.UnreadyNodes(found))
		}
	}
	history[flotillav1.AnnotationReadyBefore] = strconv.FormatBool(fleet.TrialOf(p.hubObject, p.name).Hash == want.Hash)
	history[flotillav1.AnnotationRollout] = p.template
	history[flotillav1.AnnotationHubGeneration] = strconv.FormatInt(p.hubObject.GetGeneration(), 10)
	history[flotillav1.AnnotationSpecChangedAt] = p.Clock.Now().UTC().Format(metav1.RFC3339Micro)
	return history
}

// standing returns the annotations that are kept up to date even while the spec of the copy cannot be written: they
// decide about the copy when its cluster is no longer chosen.
func (p *copyPass) standing() map[string]string {
	policy := flotillav1.DeletionPolicyDelete
	if orphans(p.hubObject, nil) {
		policy = flotillav1.DeletionPolicyOrphan
	}
	return map[string]string{
		flotillav1.AnnotationHub:            p.Options.HubID,
		flotillav1.AnnotationPlacedFrom:     fleet.PlacedFrom(p.key.Object),
		flotillav1.AnnotationHubUID:         string(p.hubObject.GetUID()),
		flotillav1.AnnotationClusterLabels:  fleet.LabelsHash(p.info.Labels),
		flotillav1.AnnotationDeletionPolicy: policy,
	}
}

// hold keeps the spec of the copy until a hub pass permits the cluster to take the change. The reason of an earlier
// refusal is kept until then.
func (p *copyPass) hold(ctx context.Context, found fleet.Object) error {
	outcome := fleet.Outcome{Held: true}
	before := p.Table.Get(p.key, p.name)
	retried := before.Reason == flotillav1.ReasonApplyFailed || before.Reason == flotillav1.ReasonVersionSkew
	if retried && before.Generation == p.hubObject.GetGeneration() {
		outcome.Reason, outcome.Message = before.Reason, before.Message
	}
	p.report(outcome)
	return p.touch(ctx, found)
}

// adopt makes an object of the member a copy, and reports whether its spec remains to be changed: it then waits for its
// turn like any other copy.
func (p *copyPass) adopt(ctx context.Context, found fleet.Object, want fleet.Effective) (bool, error) {
	differs, err := fleet.Uncovered(want.Spec, p.Kind.Spec(found))
	if err != nil {
		return false, fmt.Errorf("comparing the object in cluster %q: %w", p.name, err)
	}
	if len(differs) == 0 {
		return false, nil
	}
	p.report(fleet.Outcome{Held: true})
	if err := p.stand(ctx, found); client.IgnoreNotFound(err) != nil {
		_, err = p.failed(fmt.Errorf("adopting the object: %w", err))
		return true, err
	}
	return true, nil
}

// touch updates the annotations of a copy whose spec is not written now. They decide about the copy when its cluster is
// no longer chosen.
func (p *copyPass) touch(ctx context.Context, found fleet.Object) error {
	if found == nil || found.GetDeletionTimestamp() != nil || !fleet.IsOurs(found, p.Options.HubID) || !p.info.Allows(p.key.Object.Namespace) {
		return nil
	}
	err := p.stand(ctx, found)
	if client.IgnoreNotFound(err) == nil || fleet.Refused(err) {
		// A member that refuses this too has already reported why it refuses the spec.
		return nil
	}
	return fmt.Errorf("bringing the annotations of the copy in cluster %q up to date: %w", p.name, err)
}

// stand writes the standing annotations of an object, if they differ.
func (p *copyPass) stand(ctx context.Context, found fleet.Object) error {
	standing := p.standing()
	if contains(found.GetAnnotations(), standing) {
		return nil
	}
	before := found.DeepCopyObject().(fleet.Object)
	annotations := found.GetAnnotations()
	maps.Copy(annotations, standing)
	found.SetAnnotations(annotations)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return p.member.GetClient().Patch(ctx, found, patch, FieldOwner)
}
