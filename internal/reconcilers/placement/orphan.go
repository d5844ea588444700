// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
)

// recordOrphans records in the MemberCluster of each cluster that its copy was released.
func (r *Reconciler) recordOrphans(ctx context.Context, hubObject fleet.Object, clusterNames []string) error {
	for _, name := range clusterNames {
		if err := r.recordOrphan(ctx, hubObject, name); err != nil {
			return err
		}
	}
	return nil
}

// recordOrphan adds a released copy to the attention list of a MemberCluster. That list is the only record of it;
// roll-up removes the entry when the member shows that it no longer applies.
func (r *Reconciler) recordOrphan(ctx context.Context, hubObject fleet.Object, clusterName string) error {
	memberCluster := &flotillav1.MemberCluster{}
	if err := r.HubReader.Get(ctx, client.ObjectKey{Name: clusterName}, memberCluster); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("reading MemberCluster %q: %w", clusterName, err)
	}
	orphan := flotillav1.Attention{
		Kind: r.Kind.Name, Namespace: hubObject.GetNamespace(), Name: hubObject.GetName(),
		Reason: flotillav1.ReasonOrphaned, Since: sanitize.Moment(r.Clock.Now()),
	}
	same := func(item flotillav1.Attention) bool { return fleet.AttentionKey(item) == fleet.AttentionKey(orphan) }
	if i := slices.IndexFunc(memberCluster.Status.Attention, same); i >= 0 && fleet.IsOrphan(memberCluster.Status.Attention[i]) {
		return nil
	}
	if len(memberCluster.Status.Attention) >= fleet.MaxOrphans {
		return fmt.Errorf("recording the orphaned %s %q: MemberCluster %q lists %d already", r.Kind.Name, client.ObjectKeyFromObject(hubObject), clusterName, fleet.MaxOrphans)
	}
	before := memberCluster.DeepCopy()
	attention := append(slices.DeleteFunc(memberCluster.Status.Attention, same), orphan)
	memberCluster.Status.Attention = fleet.CutAttention(attention)
	err := statuspatch.Write(ctx, r.Hub, before, memberCluster, statuspatch.SameVersion, FieldOwner)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording the orphaned %s %q of MemberCluster %q: %w", r.Kind.Name, client.ObjectKeyFromObject(hubObject), clusterName, err)
	}
	return nil
}
