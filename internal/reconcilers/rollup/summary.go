// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
)

// Limits of the hub's schema for the names of a member's objects.
const (
	maxNamespace = 63
	maxName      = 253
)

// Summary counts the objects of each member, including the member's own, in its MemberCluster. It writes only summary
// and attention.
type Summary struct {
	// Hub reads from the hub's cache.
	Hub     client.Client
	Members clusters.Directory
	// Pace rate-limits writes; create it with NewPace(summaryPace, ...).
	Pace *Pace
	// HubID marks the copies of this hub.
	HubID string

	// tally records the states of the objects for metrics; nil disables it.
	tally *tally
}

// Reconcile counts the objects of one member; the request names its MemberCluster. While the member is not visible, the
// last counts stay.
func (s *Summary) Reconcile(ctx context.Context, req clusters.Request) (ctrl.Result, error) {
	snapshot, registered := s.Members.Snapshot(clusterName(req.Name))
	if !registered {
		s.Pace.Forget(req.Name)
		s.tally.forgetMember(req.Name)
		return ctrl.Result{}, nil
	}
	// Nothing is counted before the write is allowed, so that several changes are counted once.
	if rest := s.Pace.Rest(req.Name); rest > 0 && snapshot.Visible() {
		return ctrl.Result{RequeueAfter: rest}, nil
	}
	memberCluster := &flotillav1.MemberCluster{}
	if err := s.Hub.Get(ctx, client.ObjectKey{Name: req.Name}, memberCluster); err != nil {
		if apierrors.IsNotFound(err) {
			// The watch triggers another pass when it has been published.
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading MemberCluster %q: %w", req.Name, err)
	}
	if !snapshot.Visible() {
		s.tally.noteMember(req.Name, memberCluster.Status.Summary)
		return ctrl.Result{}, nil
	}
	count, err := s.observe(ctx, snapshot)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("counting the objects of cluster %q: %w", req.Name, err)
	}
	if err := s.observeOrphans(ctx, &count, snapshot, memberCluster.Status.Attention); err != nil {
		return ctrl.Result{}, fmt.Errorf("looking for orphaned copies in cluster %q: %w", req.Name, err)
	}
	before := memberCluster.DeepCopy()
	count.keep(snapshot, &before.Status)
	memberCluster.Status.Summary, memberCluster.Status.Attention = count.report()
	s.tally.noteMember(req.Name, memberCluster.Status.Summary)
	if equality.Semantic.DeepEqual(before.Status, memberCluster.Status) {
		return ctrl.Result{}, nil
	}
	// Placement adds to the attention list, and a merge patch replaces it.
	err = statuspatch.Write(ctx, s.Hub, before, memberCluster, statuspatch.SameVersion, FieldOwner)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("writing the summary of MemberCluster %q: %w", req.Name, err)
	}
	s.Pace.Wrote(req.Name, 0)
	return ctrl.Result{}, nil
}

// count is the content of a member's caches.
type count struct {
	redises, nodePools, nodes flotillav1.ObjectCounts
	unwell                    []flotillav1.Attention
	// orphaned are the released copies that still exist.
	orphaned []flotillav1.Attention
}

// observe counts the objects. The lists share their objects with the cache, so they must not be modified.
func (s *Summary) observe(ctx context.Context, snapshot clusters.Snapshot) (count, error) {
	member, err := s.Members.Member(snapshot.Name)
	if err != nil {
		return count{}, err
	}
	counted := count{}
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		if !snapshot.Serves(kind.Name) {
			continue
		}
		list := kind.NewList()
		if err := member.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return count{}, fmt.Errorf("listing %s: %w", kind.Name, err)
		}
		objects := &counted.redises
		if kind.Name == fleet.NodePool.Name {
			objects = &counted.nodePools
		}
		for _, object := range kind.Items(list) {
			counted.add(objects, kind.Name, object)
		}
	}
	if snapshot.Off[fleet.NodePool.Name] != "" {
		return counted, nil
	}
	nodes := &corev1.NodeList{}
	if err := member.GetCache().List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return count{}, fmt.Errorf("listing Nodes: %w", err)
	}
	for i := range nodes.Items {
		counted.nodes.Total++
		if nodeReady(&nodes.Items[i]) {
			counted.nodes.Ready++
		}
	}
	return counted, nil
}

// keep repeats the last counts of a kind that is off: its objects may still exist.
func (c *count) keep(snapshot clusters.Snapshot, last *flotillav1.MemberClusterStatus) {
	known := last.Summary
	if known == nil {
		known = &flotillav1.MemberClusterSummary{}
	}
	if snapshot.Off[fleet.Redis.Name] != "" {
		c.redises = known.Redises
	}
	if snapshot.Off[fleet.NodePool.Name] != "" {
		c.nodePools, c.nodes = known.NodePools, known.Nodes
	}
	for _, item := range last.Attention {
		if snapshot.Off[item.Kind] != "" && !fleet.IsOrphan(item) {
			c.unwell = append(c.unwell, item)
		}
	}
}

func (c *count) add(counts *flotillav1.ObjectCounts, kind string, object fleet.Object) {
	counts.Total++
	ready := apimeta.FindStatusCondition(*object.GetConditions(), flotillav1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionTrue {
		counts.Ready++
		return
	}
	if len(object.GetName()) > maxName || len(object.GetNamespace()) > maxNamespace {
		return
	}
	item := flotillav1.Attention{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), Reason: flotillav1.ReasonPending}
	if ready != nil {
		item.Reason, item.Since = sanitize.Reason(ready.Reason), sanitize.When(ready.LastTransitionTime)
	}
	c.unwell = append(c.unwell, item)
}

// report lists orphaned copies first, because nothing else records them, and then the others.
func (c *count) report() (*flotillav1.MemberClusterSummary, []flotillav1.Attention) {
	listed := map[fleet.ObjectKey]bool{}
	for _, item := range c.orphaned {
		listed[fleet.AttentionKey(item)] = true
	}
	attention := slices.Clone(c.orphaned)
	for _, item := range c.unwell {
		if !listed[fleet.AttentionKey(item)] {
			attention = append(attention, item)
		}
	}
	ratio := func(counts flotillav1.ObjectCounts) string { return fmt.Sprintf("%d/%d", counts.Ready, counts.Total) }
	return &flotillav1.MemberClusterSummary{
		Redises: c.redises, NodePools: c.nodePools, Nodes: c.nodes,
		RedisesReady: ratio(c.redises), NodePoolsReady: ratio(c.nodePools), NodesReady: ratio(c.nodes),
	}, fleet.CutAttention(attention)
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}
