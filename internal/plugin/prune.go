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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// orphan is a copy that no object of the hub stands for.
type orphan struct {
	member *flotillav1.MemberCluster
	site   *site
	of     target
	object fleet.Object
}

func newPrune(t *tool) *cobra.Command {
	var cluster string
	var dryRun bool
	c := &cobra.Command{
		Use:   "prune",
		Short: "Find copies that nothing on the hub stands for, and delete them one by one after asking",
		Long: `Find orphaned copies: objects in members that carry the mark of this hub while the hub has no object of that name, or one
that is not placed there. Annotation flotilla.dev/release leaves them behind, and a hub that was rebuilt without them. (With
deletionPolicy Orphan copies lose the mark, and are objects of their cluster.) Each is asked about; anything but y keeps it.
What happens to the data of a Redis is up to its storage.retentionPolicy.

A hub that has been rebuilt and not got all its objects back yet makes every copy look orphaned: wait for that first.` + waysHelp,
		Example: `  kubectl flotilla prune --dry-run
  kubectl flotilla prune -c eu-1 --member-context eu-1-admin`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return t.prune(c.Context(), cluster, dryRun) },
	}
	c.Flags().StringVarP(&cluster, "cluster", "c", "", "Only this cluster")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "Only list them")
	_ = c.RegisterFlagCompletionFunc("cluster", t.completeClusters)
	t.addMemberContext(c)
	return c
}

func (t *tool) prune(ctx context.Context, only string, dryRun bool) error {
	hub, err := t.hub()
	if err != nil {
		return err
	}
	members, err := hub.members(ctx)
	if err != nil {
		return err
	}
	if only != "" {
		if _, err := hub.memberNamed(ctx, only); err != nil {
			return err
		}
		members = slices.DeleteFunc(members, func(member flotillav1.MemberCluster) bool { return member.Name != only })
	}
	into, err := t.waysInto(ctx, hub)
	if err != nil {
		return err
	}
	var found []orphan
	var unseen []string
	for i := range members {
		orphans, err := findOrphans(ctx, into, &members[i])
		if err != nil {
			t.say("%s %s", paint(t.ErrOut, yellow, "!"), text.Line(err.Error()))
			unseen = append(unseen, members[i].Name)
		}
		found = append(found, orphans...)
	}
	if len(found) == 0 {
		t.tell("No orphaned copies in the %d %s that could be looked into.", len(members)-len(unseen), plural(len(members)-len(unseen), "member"))
	} else {
		t.printOrphans(found)
		if !dryRun {
			if err := t.askAndDelete(ctx, hub, found); err != nil {
				return err
			}
		}
	}
	if len(unseen) > 0 {
		return faultf("pass --member-context CLUSTER=CONTEXT for them", "not looked into: %s", text.List(unseen, 10))
	}
	return nil
}

// findOrphans lists the orphaned copies in a member. The id of this hub stands in the claim, which it holds.
func findOrphans(ctx context.Context, into *ways, member *flotillav1.MemberCluster) ([]orphan, error) {
	if claimed := condition(member.Status.Conditions, flotillav1.ConditionClaimed); claimed.Status != metav1.ConditionTrue {
		return nil, faultf("see kubectl flotilla status", "this hub does not hold the claim on member %q, so its copies there are not known", member.Name)
	}
	from, err := into.into(ctx, member)
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: serviceAccount}, lease); err != nil {
		return nil, from.explain("reading the claim", err)
	}
	hubID, _ := into.tool.claimant(lease)
	var found []orphan
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		list := kind.NewList()
		if err := from.List(ctx, list); err != nil {
			return nil, from.explain("listing objects of kind "+kind.Name, err)
		}
		for _, object := range kind.Items(list) {
			if !fleet.IsOurs(object, hubID) || object.GetDeletionTimestamp() != nil {
				continue
			}
			candidate := orphan{member: member, site: from, of: target{kind, client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetName()}}, object: object}
			orphaned, err := candidate.isOrphan(ctx, into.hub)
			if err != nil {
				return nil, err
			}
			if orphaned {
				found = append(found, candidate)
			}
		}
	}
	return found, nil
}

// isOrphan asks the hub whether it has an object that is, or may be, placed there.
func (o *orphan) isOrphan(ctx context.Context, hub *site) (bool, error) {
	onHub := o.of.kind.New()
	err := hub.Get(ctx, o.of.key, onHub)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, hub.explain("reading "+o.of.String(), err)
	}
	return !slices.Contains(clustersOf(onHub, ""), o.member.Name), nil
}

// name names the copy for people.
func (o *orphan) name() string { return o.of.String() + " in " + o.member.Name }

func (t *tool) printOrphans(found []orphan) {
	rows := make([][]cell, 0, len(found))
	for i := range found {
		ready := condition(*found[i].object.GetConditions(), flotillav1.ConditionReady)
		made := found[i].object.GetCreationTimestamp()
		rows = append(rows, []cell{{text: found[i].of.String()}, {text: found[i].member.Name}, {string(ready.Status), forStatus(ready.Status)}, {text: found[i].consequence()}, {text: t.ago(&made)}})
	}
	table(t.Out, []string{"COPY", "CLUSTER", "READY", "WHEN DELETED", "AGE"}, rows)
}

// consequence says what deleting the copy does.
func (o *orphan) consequence() string {
	if redis, ok := o.object.(*flotillav1.Redis); ok {
		if redis.Spec.Storage.RetentionPolicy == flotillav1.RedisRetentionDelete {
			return "Pods and data go"
		}
		return "Pods go, volumes stay"
	}
	return "nodes lose its keys"
}

// askAndDelete asks about each copy. The hub is asked once more before each deletion.
func (t *tool) askAndDelete(ctx context.Context, hub *site, found []orphan) error {
	answers := bufio.NewReader(t.In)
	deleted := 0
	for i := range found {
		o := &found[i]
		if !t.ask(answers, "Delete %s (%s)?", o.name(), o.consequence()) {
			continue
		}
		orphaned, err := o.isOrphan(ctx, hub)
		if err != nil {
			return err
		}
		if !orphaned {
			t.say("  %s is kept: the hub has an object for it now", o.name())
			continue
		}
		err = o.site.Delete(ctx, o.object, client.Preconditions{UID: new(o.object.GetUID()), ResourceVersion: new(o.object.GetResourceVersion())})
		if apierrors.IsConflict(err) {
			t.say("  %s is kept: it has changed since; run this again", o.name())
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return o.site.explain("deleting "+strings.TrimSpace(o.of.String()), err)
		}
		deleted++
	}
	t.tell("%s", fmt.Sprintf("%d of %d deleted", deleted, len(found)))
	return nil
}
