// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// deleteAttempts is how often a deletion is tried while somebody writes the status of the object.
const deleteAttempts = 5

// orphan is a copy without an object on the hub.
type orphan struct {
	member *flotillav1.MemberCluster
	from   *site.Site
	of     target
	object fleet.Object
}

func newPrune(t *tool) *cobra.Command {
	var cluster, output string
	var dryRun bool
	c := &cobra.Command{
		Use:   "prune",
		Short: "Find copies without an object on the hub, and delete them one by one after asking",
		Long: `Find orphaned copies: objects in members that are marked as copies of this hub, while the hub has no object of this name or
does not place it there. They stay after annotation flotilla.dev/release, or after a hub was rebuilt without their objects.
(With deletionPolicy Orphan copies lose the mark and become objects of their cluster.) The command asks about each copy;
any answer but y keeps it. The storage.retentionPolicy of a Redis decides whether its data is deleted.

While a hub is being rebuilt, every copy looks orphaned: wait until the hub has all its objects again.` + site.MembersHelp,
		Example: `  kubectl flotilla prune --dry-run
  kubectl flotilla prune -c eu-1 --member-context eu-1-admin`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && !dryRun {
				return console.Faultf("add --dry-run, which only lists the copies", "-o %s does not go with deleting", output)
			}
			return t.prune(c.Context(), cluster, output, dryRun)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "Only list them")
	addOutput(c, &output)
	t.addCluster(c, &cluster, "Only this cluster")
	t.AddMemberContexts(c)
	return c
}

func (t *tool) prune(ctx context.Context, only, output string, dryRun bool) error {
	ways, members, err := t.LookAround(ctx)
	if err != nil {
		return err
	}
	if only != "" {
		if _, err := ways.Hub.Member(ctx, only); err != nil {
			return err
		}
		members = slices.DeleteFunc(members, func(member flotillav1.MemberCluster) bool { return member.Name != only })
	}
	var found []orphan
	var unseen []string
	type looked struct {
		orphans []orphan
		err     error
	}
	site.AtOnce(ctx, len(members), func(i int) bool { return site.IsAway(&members[i]) }, func(ctx context.Context, i int) looked {
		orphans, err := findOrphans(ctx, ways, &members[i])
		return looked{orphans, err}
	}, func(i int, result looked) {
		if result.err != nil {
			t.Notef("%s %s", console.Paint(t.ErrOut, console.Yellow, "!"), text.Line(result.err.Error()))
			unseen = append(unseen, members[i].Name)
		}
		found = append(found, result.orphans...)
	})
	switch {
	case output != "":
		items := make([]orphanItem, 0, len(found))
		for i := range found {
			items = append(items, orphanItem{Cluster: found[i].member.Name, Object: found[i].of.String()})
		}
		if err := t.PrintValue(output, itemList[orphanItem]{items}); err != nil {
			return err
		}
	case len(found) == 0:
		t.Resultf("No orphaned copies in the %s that could be looked into.", console.Count(len(members)-len(unseen), "member"))
	default:
		t.printOrphans(found)
		if !dryRun {
			if err := t.askAndDelete(ctx, ways.Hub, found); err != nil {
				return err
			}
		}
	}
	if len(unseen) > 0 {
		return console.Faultf("pass --member-context CLUSTER=CONTEXT for them", "not looked into: %s", text.List(unseen, 10))
	}
	return nil
}

// findOrphans lists the orphaned copies in a member. The claim, which this hub holds, has the id of the hub.
func findOrphans(ctx context.Context, ways *site.Ways, member *flotillav1.MemberCluster) ([]orphan, error) {
	if claimed := condition.Of(member.Status.Conditions, flotillav1.ConditionClaimed); claimed.Status != metav1.ConditionTrue {
		return nil, console.Faultf("see kubectl flotilla status", "this hub does not hold the claim on member %q, so its copies there are not known", member.Name)
	}
	from, err := ways.Into(ctx, member)
	if err != nil {
		return nil, err
	}
	claim, err := from.Claim(ctx)
	if err != nil {
		return nil, err
	}
	var found []orphan
	for _, kind := range placedKinds {
		list := kind.NewList()
		if err := from.List(ctx, list); err != nil {
			return nil, from.Explain("listing objects of kind "+kind.Name, err)
		}
		for _, object := range kind.Items(list) {
			if !fleet.IsOurs(object, claim.HubID()) || object.GetDeletionTimestamp() != nil {
				continue
			}
			candidate := orphan{member: member, from: from, of: target{kind, client.ObjectKeyFromObject(object)}, object: object}
			orphaned, err := candidate.isOrphan(ctx, ways.Hub)
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

// isOrphan reports whether the hub has no object that is, or may be, placed there.
func (o *orphan) isOrphan(ctx context.Context, hub *site.Site) (bool, error) {
	onHub := o.of.kind.New()
	err := hub.Get(ctx, o.of.key, onHub)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, hub.Explain("reading "+o.of.String(), err)
	}
	return !slices.Contains(clustersOf(onHub), o.member.Name), nil
}

// name names the copy in questions.
func (o *orphan) name() string { return o.of.String() + " in " + o.member.Name }

func (t *tool) printOrphans(found []orphan) {
	rows := make([][]console.Cell, 0, len(found))
	for i := range found {
		ready := condition.Of(*found[i].object.GetConditions(), flotillav1.ConditionReady)
		made := found[i].object.GetCreationTimestamp()
		rows = append(rows, []console.Cell{{Text: found[i].of.String()}, {Text: found[i].member.Name}, console.Status(ready.Status), {Text: found[i].consequence()}, {Text: t.Ago(&made)}})
	}
	t.Table([]string{"COPY", "CLUSTER", "READY", "WHEN DELETED", "AGE"}, rows)
}

// consequence describes what deleting the copy does.
func (o *orphan) consequence() string { return consequenceOf(o.object) }

// consequenceOf describes what deleting a copy does.
func consequenceOf(object fleet.Object) string {
	if redis, ok := object.(*flotillav1.Redis); ok {
		if redis.Spec.Storage.RetentionPolicy == flotillav1.RedisRetentionDelete {
			return "Pods and data go"
		}
		return "Pods go, volumes stay"
	}
	return "nodes lose its keys"
}

// askAndDelete asks about each copy. The hub is asked once more before each deletion.
func (t *tool) askAndDelete(ctx context.Context, hub *site.Site, found []orphan) error {
	deleted := 0
	for i := range found {
		o := &found[i]
		if !t.Ask("Delete %s (%s)?", o.name(), o.consequence()) {
			continue
		}
		orphaned, err := o.isOrphan(ctx, hub)
		if err != nil {
			return err
		}
		if !orphaned {
			t.Notef("  %s is kept: the hub has an object for it now", o.name())
			continue
		}
		err = o.delete(ctx)
		if apierrors.IsConflict(err) {
			t.Notef("  %s is kept: it has changed since; run this again", o.name())
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return o.from.Explain("deleting "+o.of.String(), err)
		}
		deleted++
	}
	t.Resultf("%d of %d deleted", deleted, len(found))
	return nil
}

// delete deletes the copy while it is what was shown. A new status or finalizer leaves the answer valid: the reconcilers of the
// member write those at any time. Another spec, label or annotation makes it void, which is reported as a conflict.
func (o *orphan) delete(ctx context.Context) error {
	now := o.object
	var conflict error
	for range deleteAttempts {
		conflict = o.from.Delete(ctx, o.object, client.Preconditions{UID: new(now.GetUID()), ResourceVersion: new(now.GetResourceVersion())})
		if !apierrors.IsConflict(conflict) {
			return conflict
		}
		now = o.of.kind.New()
		if err := o.from.Get(ctx, o.of.key, now); err != nil {
			return err
		}
		if now.GetUID() != o.object.GetUID() || now.GetGeneration() != o.object.GetGeneration() ||
			!maps.Equal(now.GetLabels(), o.object.GetLabels()) || !maps.Equal(now.GetAnnotations(), o.object.GetAnnotations()) {
			break
		}
	}
	return conflict
}
