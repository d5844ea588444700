// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// historyKeys are the annotations that say how a copy got its spec. They are what waves are decided by.
var historyKeys = []string{
	flotillav1.AnnotationRollout, flotillav1.AnnotationPreviousSpecHash, flotillav1.AnnotationSpecChangedAt, flotillav1.AnnotationHubGeneration,
}

// changes reports whether the copy would get another spec than the last one it was given. Putting back what someone has
// changed in the member is no change, and neither is taking over an object that was not a copy.
func (p *copyPass) changes(found fleet.Object, want fleet.Effective) bool {
	return fleet.IsOurs(found, p.Options.HubID) && found.GetAnnotations()[flotillav1.AnnotationSpecHash] != want.Hash
}

// history returns the annotations that say how the copy got its spec. They change only with it.
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
		// Who goes back to what it had has nothing to go back to: what it has left is a change like any other.
		if hash != "" && before[flotillav1.AnnotationPreviousSpecHash] != want.Hash {
			history[flotillav1.AnnotationPreviousSpecHash] = hash
		}
	}
	history[flotillav1.AnnotationRollout] = p.template
	history[flotillav1.AnnotationHubGeneration] = strconv.FormatInt(p.hubObject.GetGeneration(), 10)
	history[flotillav1.AnnotationSpecChangedAt] = p.Clock.Now().UTC().Format(time.RFC3339)
	return history
}

// standing returns the annotations that say what a copy stands for. They are kept up to date whether or not the copy can
// be given its spec: what becomes of it when it is no longer chosen is decided by them.
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

// hold leaves the copy's spec as it is until a hub pass lets the cluster take the change. That a member has refused it
// before stays known until then.
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

// touch brings the annotations of a copy up to date whose spec is not written now. What becomes of the copy when its cluster
// is no longer chosen is decided by them.
func (p *copyPass) touch(ctx context.Context, found fleet.Object) error {
	if found == nil || found.GetDeletionTimestamp() != nil || !fleet.IsOurs(found, p.Options.HubID) || !p.info.Allows(p.key.Object.Namespace) {
		return nil
	}
	standing := p.standing()
	if contains(found.GetAnnotations(), standing) {
		return nil
	}
	before := found.DeepCopyObject().(fleet.Object)
	annotations := found.GetAnnotations()
	maps.Copy(annotations, standing)
	found.SetAnnotations(annotations)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := p.member.GetClient().Patch(ctx, found, patch, FieldOwner)
	if client.IgnoreNotFound(err) == nil || refused(err) {
		// A member that refuses this as well has said why it refuses the spec.
		return nil
	}
	return fmt.Errorf("bringing the annotations of the copy in cluster %q up to date: %w", p.name, err)
}
