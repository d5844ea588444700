// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// detachPage is how many objects are read at once.
const detachPage = 500

// leftBehind is what a hub has left in a member.
type leftBehind struct {
	lease   *coordinationv1.Lease
	objects []fleet.Object
	nodes   []*corev1.Node
}

func newDetach(t *tool) *cobra.Command {
	var yes, force, hub bool
	c := &cobra.Command{
		Use:   "detach --context MEMBER",
		Short: "Free a member from a hub that is gone",
		Long: `Free a member from a hub that is gone for good: remove Flotilla's finalizers from every Redis and NodePool, the claim of
the hub, and the records that it keeps on nodes. Only the member is needed; --context names it, and must be given.

Everything that runs stays: Redis with its data, and the labels, annotations and taints that NodePools gave to nodes. What
the finalizers would have done is not done: an object whose deletion waits for one goes at once, a Redis with
retentionPolicy Delete keeps its volumes, and nodes keep the keys of pools.

A hub that has renewed its claim in time is not gone, and is refused: unregister the member there. The command asks before
it writes.

With --hub the cluster is the hub itself, whose manager is gone: its finalizers are removed from the hub objects, so that
these, or the schemas, can be deleted. Every copy stays in its member.`,
		Example: `  kubectl flotilla detach --context eu-1-admin
  kubectl flotilla detach --hub --context hub-admin`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("context") {
				return faultf("name the member's; kubectl config get-contexts lists them", "--context is missing, and the current one may be the hub's")
			}
			if hub {
				return t.detachHub(c.Context(), yes, force)
			}
			return t.detach(c.Context(), yes, force)
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask")
	c.Flags().BoolVar(&force, "force", false, "Detach also from a hub that has renewed its claim; it will take the member up again")
	c.Flags().BoolVar(&hub, "hub", false, "The context is that of a hub whose manager is gone: let its objects be deleted, and keep the copies")
	return c
}

func (t *tool) detach(ctx context.Context, yes, force bool) error {
	member, err := t.memberByContext(*t.flags.Context)
	if err != nil {
		return err
	}
	hubs := &flotillav1.MemberClusterList{}
	err = member.List(ctx, hubs, client.Limit(1))
	switch {
	case err == nil && len(hubs.Items) > 0:
		return faultf("choose the context of a member, or add --hub if its manager is gone", "%s has MemberClusters, so it is a hub", member.called)
	case err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return member.explain("looking for MemberClusters", err)
	}
	left, err := findLeftBehind(ctx, member)
	if err != nil {
		return err
	}
	if left.lease != nil {
		if hubID, alive := t.claimant(left.lease); alive && !force {
			return faultf("kubectl flotilla unregister there ends the member, and does all this too; --force detaches nevertheless",
				"hub %q is not gone: it renewed its claim %s ago", hubID, t.ago(&metav1.Time{Time: left.lease.Spec.RenewTime.Time}))
		}
	}
	if left.empty() {
		t.tell("Nothing of a hub is left in the member.")
		return nil
	}
	t.printLeftBehind(left)
	if !yes && !t.ask(bufio.NewReader(t.In), "Remove all this?") {
		return faultf("answer y, or pass --yes", "nothing was changed")
	}
	if err := t.stage(ctx, "detach", func(ctx context.Context, doing func(string)) (string, error) { return left.remove(ctx, member, doing) }); err != nil {
		return err
	}
	t.tell("The member is free. Everything in it runs on; revoke the hub's access with: kubectl delete -n %s serviceaccount %s", systemNamespace, serviceAccount)
	return nil
}

func (l *leftBehind) empty() bool { return l.lease == nil && len(l.objects)+len(l.nodes) == 0 }

// findLeftBehind reads what a hub has left in a member.
func findLeftBehind(ctx context.Context, member *site) (*leftBehind, error) {
	left := &leftBehind{lease: &coordinationv1.Lease{}}
	err := member.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: serviceAccount}, left.lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, member.explain("reading the claim", err)
	}
	if err != nil {
		left.lease = nil
	}
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		err := eachPage(ctx, member, kind.NewList(), func(list client.ObjectList) {
			for _, object := range kind.Items(list.(fleet.ObjectList)) {
				if hasFinalizer(object) {
					left.objects = append(left.objects, object)
				}
			}
		})
		if err != nil && !apimeta.IsNoMatchError(err) {
			return nil, member.explain("listing objects of kind "+kind.Name, err)
		}
	}
	err = eachPage(ctx, member, &corev1.NodeList{}, func(list client.ObjectList) {
		for _, node := range list.(*corev1.NodeList).Items {
			if _, recorded := node.Annotations[flotillav1.AnnotationNodeRecord]; recorded {
				left.nodes = append(left.nodes, &node)
			}
		}
	})
	return left, member.explain("listing Nodes", err)
}

// eachPage lists page by page.
func eachPage(ctx context.Context, member *site, list client.ObjectList, seen func(client.ObjectList)) error {
	for {
		if err := member.List(ctx, list, client.Limit(detachPage), client.Continue(list.GetContinue())); err != nil {
			return err
		}
		seen(list)
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// ourFinalizers are those that the hub puts on objects in members.
var ourFinalizers = []string{flotillav1.FinalizerRedis, flotillav1.FinalizerNodePool}

func hasFinalizer(object client.Object) bool {
	return slices.ContainsFunc(ourFinalizers, func(name string) bool { return controllerutil.ContainsFinalizer(object, name) })
}

func (t *tool) printLeftBehind(left *leftBehind) {
	if left.lease != nil {
		hubID, _ := t.claimant(left.lease)
		seen := "never"
		if left.lease.Spec.RenewTime != nil {
			seen = t.ago(&metav1.Time{Time: left.lease.Spec.RenewTime.Time}) + " ago"
		}
		t.tell("Claim of hub %q, last renewed %s", hubID, seen)
	}
	for _, object := range left.objects {
		note := ""
		if object.GetDeletionTimestamp() != nil {
			note = " (being deleted: it goes at once)"
		}
		t.tell("Finalizer of %s%s", nameOf(object), note)
	}
	names := make([]string, 0, len(left.nodes))
	for _, node := range left.nodes {
		names = append(names, node.Name)
	}
	if len(names) > 0 {
		t.tell("Record on %d %s: %s", len(names), plural(len(names), "node"), text.List(names, 10))
	}
}

// remove takes it all away. The claim goes last: while it is there, no other hub works with the member.
func (l *leftBehind) remove(ctx context.Context, member *site, doing func(string)) (string, error) {
	for _, object := range l.objects {
		doing(nameOf(object))
		before := object.DeepCopyObject().(client.Object)
		for _, name := range ourFinalizers {
			controllerutil.RemoveFinalizer(object, name)
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := member.Patch(ctx, object, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return "", member.explain("removing the finalizer of "+nameOf(object), err)
		}
	}
	for _, node := range l.nodes {
		doing("node " + node.Name)
		before := node.DeepCopy()
		delete(node.Annotations, flotillav1.AnnotationNodeRecord)
		if err := member.Patch(ctx, node, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
			return "", member.explain("removing the record of node "+node.Name, err)
		}
	}
	parts := []string{
		fmt.Sprintf("%d %s", len(l.objects), plural(len(l.objects), "finalizer")), fmt.Sprintf("%d %s", len(l.nodes), plural(len(l.nodes), "record")),
	}
	if l.lease != nil {
		err := member.Delete(ctx, l.lease, client.Preconditions{UID: new(l.lease.UID), ResourceVersion: new(l.lease.ResourceVersion)})
		if apierrors.IsConflict(err) {
			return "", faultf("the hub is not gone: unregister the member there", "the claim was renewed meanwhile")
		}
		if client.IgnoreNotFound(err) != nil {
			return "", member.explain("deleting the claim", err)
		}
		parts = append(parts, "the claim")
	}
	return strings.Join(parts, ", ") + " removed", nil
}
