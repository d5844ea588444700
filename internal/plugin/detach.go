// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// detachPage is how many objects are read at once.
const detachPage = 500

// memberFinalizers are those that the hub puts on objects in members.
var memberFinalizers = []string{flotillav1.FinalizerRedis, flotillav1.FinalizerNodePool}

// leftBehind is what a hub has left in a member.
type leftBehind struct {
	// claim is nil when there is none.
	claim   *site.Lease
	objects []fleet.Object
	nodes   []*corev1.Node
}

func newDetach(t *tool) *cobra.Command {
	var yes, force, hub bool
	c := &cobra.Command{
		Use:   "detach --context MEMBER",
		Short: "Free a member from a hub that is gone",
		Long: `Free a member from a hub that is gone for good: remove Flotilla's finalizers from every Redis and NodePool, the claim of
the hub, and the records that it keeps on nodes. Only the member is contacted; --context names it and is required.

Everything that runs stays: Redis with its data, and the labels, annotations and taints that NodePools gave to nodes. The
cleanup that the finalizers guard does not happen: an object that is being deleted goes at once, a Redis with
retentionPolicy Delete keeps its volumes, and nodes keep the keys of pools.

If the hub has renewed its claim in time, it is not gone, and the command refuses: unregister the member there. The command
asks before it writes.

With --hub the cluster is a hub whose manager is gone: its finalizers are removed from the hub objects, so that these, or
the schemas, can be deleted. Every copy stays in its member.`,
		Example: `  kubectl flotilla detach --context eu-1-admin
  kubectl flotilla detach --hub --context hub-admin`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("context") {
				return console.Faultf("name the member's; kubectl config get-contexts lists them", "--context is missing, and the current one may be the hub's")
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
	member, err := t.ByContext(*t.Flags.Context)
	if err != nil {
		return err
	}
	hubs := &flotillav1.MemberClusterList{}
	err = member.List(ctx, hubs, client.Limit(1))
	switch {
	case err == nil && len(hubs.Items) > 0:
		return console.Faultf("choose the context of a member, or add --hub if its manager is gone", "%s has MemberClusters, so it is a hub", member.Called)
	case err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return member.Explain("looking for MemberClusters", err)
	}
	left, err := findLeftBehind(ctx, member)
	if err != nil {
		return err
	}
	if left.claim != nil && left.claim.HeldAt(t.Clock.Now()) && !force {
		return console.Faultf("kubectl flotilla unregister there ends the member, and does all this too; --force detaches nevertheless",
			"hub %q is not gone: it renewed its claim %s ago", left.claim.HubID(), t.Ago(left.claim.Renewed()))
	}
	if left.empty() {
		t.Resultf("Nothing of a hub is left in the member.")
		return nil
	}
	t.printLeftBehind(left)
	if err := t.confirm(yes, "Remove all this?"); err != nil {
		return err
	}
	if err := t.Stage(ctx, "detach", func(ctx context.Context, doing func(string)) (string, error) { return left.remove(ctx, member, doing) }); err != nil {
		return err
	}
	t.Resultf("The member is free. Everything in it runs on; revoke the hub's access with: kubectl delete -n %s serviceaccount %s", flotillav1.SystemNamespace, flotillav1.HubServiceAccount)
	return nil
}

// confirm returns an error unless the answer is yes.
func (t *tool) confirm(yes bool, question string) error {
	if !yes && !t.Ask("%s", question) {
		return console.Faultf("answer y, or pass --yes", "nothing was changed")
	}
	return nil
}

func (l *leftBehind) empty() bool { return l.claim == nil && len(l.objects)+len(l.nodes) == 0 }

// findLeftBehind reads what a hub has left in a member.
func findLeftBehind(ctx context.Context, member *site.Site) (*leftBehind, error) {
	left := &leftBehind{}
	claim, err := member.Claim(ctx)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil {
		left.claim = &claim
	}
	if left.objects, err = withFinalizer(ctx, member, memberFinalizers...); err != nil {
		return nil, err
	}
	err = eachPage(ctx, member, &corev1.NodeList{}, func(nodes *corev1.NodeList) {
		for i := range nodes.Items {
			if _, recorded := nodes.Items[i].Annotations[flotillav1.AnnotationNodeRecord]; recorded {
				left.nodes = append(left.nodes, &nodes.Items[i])
			}
		}
	})
	return left, member.Explain("listing Nodes", err)
}

// withFinalizer lists the Redises and NodePools of a cluster that have one of these finalizers.
func withFinalizer(ctx context.Context, from *site.Site, finalizers ...string) ([]fleet.Object, error) {
	var found []fleet.Object
	for _, kind := range placedKinds {
		err := eachPage(ctx, from, kind.NewList(), func(list fleet.ObjectList) {
			for _, object := range kind.Items(list) {
				if slices.ContainsFunc(finalizers, func(name string) bool { return controllerutil.ContainsFinalizer(object, name) }) {
					found = append(found, object)
				}
			}
		})
		if err != nil && !apimeta.IsNoMatchError(err) {
			return nil, from.Explain("listing objects of kind "+kind.Name, err)
		}
	}
	return found, nil
}

// eachPage lists page by page, each into a list of its own.
func eachPage[L client.ObjectList](ctx context.Context, from *site.Site, empty L, seen func(L)) error {
	for next := ""; ; {
		page := empty.DeepCopyObject().(L)
		if err := from.List(ctx, page, client.Limit(detachPage), client.Continue(next)); err != nil {
			return err
		}
		seen(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

func (t *tool) printLeftBehind(left *leftBehind) {
	if left.claim != nil {
		seen := "never"
		if renewed := left.claim.Renewed(); renewed != nil {
			seen = t.Ago(renewed) + " ago"
		}
		t.Resultf("Claim of hub %q, last renewed %s", left.claim.HubID(), seen)
	}
	for _, object := range left.objects {
		note := ""
		if object.GetDeletionTimestamp() != nil {
			note = " (being deleted: it goes at once)"
		}
		t.Resultf("Finalizer of %s%s", nameOf(object), note)
	}
	names := make([]string, 0, len(left.nodes))
	for _, node := range left.nodes {
		names = append(names, node.Name)
	}
	if len(names) > 0 {
		t.Resultf("Record on %s: %s", console.Count(len(names), "node"), text.List(names, 10))
	}
}

// remove removes all of it. The claim goes last, because no other hub works with the member while it exists.
func (l *leftBehind) remove(ctx context.Context, member *site.Site, doing func(string)) (string, error) {
	if err := removeFinalizers(ctx, member, l.objects, doing, memberFinalizers...); err != nil {
		return "", err
	}
	for _, node := range l.nodes {
		doing("node " + node.Name)
		before := node.DeepCopy()
		delete(node.Annotations, flotillav1.AnnotationNodeRecord)
		if err := member.Patch(ctx, node, client.MergeFrom(before), site.FieldOwner); client.IgnoreNotFound(err) != nil {
			return "", member.Explain("removing the record of node "+node.Name, err)
		}
	}
	parts := []string{console.Count(len(l.objects), "finalizer"), console.Count(len(l.nodes), "record")}
	if l.claim != nil {
		err := member.Delete(ctx, l.claim.Lease, client.Preconditions{UID: new(l.claim.UID), ResourceVersion: new(l.claim.ResourceVersion)})
		if apierrors.IsConflict(err) {
			return "", console.Faultf("the hub is not gone: unregister the member there", "the claim was renewed meanwhile")
		}
		if client.IgnoreNotFound(err) != nil {
			return "", member.Explain("deleting the claim", err)
		}
		parts = append(parts, "the claim")
	}
	return strings.Join(parts, ", ") + " removed", nil
}

// removeFinalizers removes finalizers from objects.
func removeFinalizers(ctx context.Context, from *site.Site, objects []fleet.Object, doing func(string), finalizers ...string) error {
	for _, object := range objects {
		doing(nameOf(object))
		before := object.DeepCopyObject().(client.Object)
		for _, name := range finalizers {
			controllerutil.RemoveFinalizer(object, name)
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := from.Patch(ctx, object, patch, site.FieldOwner); client.IgnoreNotFound(err) != nil {
			return from.Explain("removing the finalizer of "+nameOf(object), err)
		}
	}
	return nil
}

// detachHub removes from the objects of a hub the finalizer that only a manager would remove. No member is contacted.
func (t *tool) detachHub(ctx context.Context, yes, force bool) error {
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	lease, err := hub.ManagerLease(ctx)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if lease.HeldAt(t.Clock.Now()) && !force {
		return console.Faultf("a manager that is there lets go of objects by itself; --force detaches nevertheless, and it will take them up again",
			"the manager is not gone: it renewed its Lease %s ago", t.Ago(lease.Renewed()))
	}
	held, err := withFinalizer(ctx, hub, flotillav1.FinalizerPlacement)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		t.Resultf("No object of the hub waits for a manager.")
		return nil
	}
	t.printHeld(held)
	if err := t.confirm(yes, "Remove all this? The copies stay."); err != nil {
		return err
	}
	if err := t.Stage(ctx, "detach", func(ctx context.Context, doing func(string)) (string, error) {
		err := removeFinalizers(ctx, hub, held, doing, flotillav1.FinalizerPlacement)
		return console.Count(len(held), "finalizer") + " removed", err
	}); err != nil {
		return err
	}
	t.Resultf("Nothing on the hub waits for a manager any more. Free each member with: kubectl flotilla detach --context MEMBER")
	return nil
}

func (t *tool) printHeld(held []fleet.Object) {
	for _, object := range held {
		note := ""
		if object.GetDeletionTimestamp() != nil {
			note = "; being deleted: it goes at once"
		}
		in := "nowhere"
		if placed := object.GetFleetStatus().PlacedIn; len(placed) > 0 {
			in = text.List(placed, 10)
		}
		t.Resultf("Finalizer of %s (placed in %s%s)", nameOf(object), in, note)
	}
}
