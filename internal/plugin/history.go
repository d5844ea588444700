// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/changes"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// newRolloutHistory returns rollout history, and newRolloutUndo rollout undo.
func newRolloutHistory(t *tool) *cobra.Command {
	var revision int64
	var output string
	c := &cobra.Command{
		Use:   "history (redis|nodepool)/NAME",
		Short: "List the last specs of an object",
		Long: `List the last ten specs of an object, and what has changed from each to the next. The clusters that it is placed in, and
how changes spread, are not part of a revision; overrides are.`,
		Example: `  kubectl flotilla rollout history redis/cache -n shop
  kubectl flotilla rollout history redis/cache -n shop --revision 3`,
		RunE: func(c *cobra.Command, args []string) error {
			return t.rolloutHistory(c.Context(), strings.Join(args, "/"), revision, output)
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "Print this revision as YAML, or as -o says")
	addOutput(c, &output, "name")
	return c
}

func newRolloutUndo(t *tool) *cobra.Command {
	var revision int64
	var dryRun bool
	c := &cobra.Command{
		Use:   "undo (redis|nodepool)/NAME",
		Short: "Go back to an earlier spec",
		Long: `Put an earlier spec of an object back: that of a revision, or the last one that differs from the present one. The clusters
that it is placed in, and how changes spread, stay as they are.

A cluster that was ready with that spec before the present one takes it at once, also while the rollout is halted or paused.
For the others it is a change like any other.`,
		Example: `  kubectl flotilla rollout undo redis/cache -n shop
  kubectl flotilla rollout undo nodepool/web --to-revision 3 --dry-run`,
		RunE: func(c *cobra.Command, args []string) error {
			return t.undoRollout(c.Context(), strings.Join(args, "/"), revision, dryRun)
		},
	}
	c.Flags().Int64Var(&revision, "to-revision", 0, "Revision to go back to; 0 is the last one that differs from the present spec")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "Let the hub check it, and change nothing")
	return c
}

// past is a hub object with its revisions, the newest first.
type past struct {
	of        target
	hub       *site.Site
	object    fleet.Object
	raw       *unstructured.Unstructured
	revisions []appsv1.ControllerRevision
}

func (t *tool) readPast(ctx context.Context, argument string) (*past, error) {
	of, hub, err := t.onHub(argument)
	if err != nil {
		return nil, err
	}
	// The plugin may be older than the hub: fields that it does not know have to stay.
	p := &past{of: of, hub: hub, raw: &unstructured.Unstructured{}}
	p.raw.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(of.kind.Name))
	if err := of.readInto(ctx, hub, p.raw); err != nil {
		return nil, err
	}
	if p.object, err = p.typed(p.raw); err != nil {
		return nil, err
	}
	if p.object.GetPlacement() == nil {
		return nil, notPlaced(of)
	}
	var list appsv1.ControllerRevisionList
	if err := hub.List(ctx, &list, client.InNamespace(fleet.RevisionNamespace(p.object)), client.MatchingLabels(fleet.RevisionLabels(p.object))); err != nil {
		return nil, hub.Explain("listing the revisions of "+of.String(), err)
	}
	fleet.SortRevisions(list.Items)
	p.revisions = list.Items
	return p, nil
}

// restored returns the object with the spec of a revision, and the fields that differ from the present one.
func (p *past) restored(revision *appsv1.ControllerRevision) (*unstructured.Unstructured, []string, error) {
	spec, _, err := unstructured.NestedMap(p.raw.Object, "spec")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the spec: %w", err)
	}
	after := p.raw.DeepCopy()
	if after.Object["spec"], err = fleet.Restore(spec, revision); err != nil {
		return nil, nil, err
	}
	typed, err := p.typed(after)
	if err != nil {
		return nil, nil, err
	}
	return after, changes.Between(p.of.kind.Spec(p.object), p.of.kind.Spec(typed)), nil
}

func (p *past) typed(raw *unstructured.Unstructured) (fleet.Object, error) {
	object := p.of.kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", p.of, err)
	}
	return object, nil
}

// find returns the revision with a number or, for 0, the newest one that differs from the present spec.
func (p *past) find(number int64) (*appsv1.ControllerRevision, error) {
	hint := "see " + p.of.command("rollout history")
	for i := range p.revisions {
		revision := &p.revisions[i]
		if number != 0 {
			if revision.Revision == number {
				return revision, nil
			}
			continue
		}
		_, changed, err := p.restored(revision)
		if err != nil {
			return nil, err
		}
		if len(changed) > 0 {
			return revision, nil
		}
	}
	if number != 0 {
		return nil, console.Faultf(hint, "%s has no revision %d", p.of, number)
	}
	return nil, console.Faultf(hint, "no revision of %s differs from its spec", p.of)
}

// items describes the revisions.
func (p *past) items() ([]revisionItem, error) {
	items := make([]revisionItem, 0, len(p.revisions))
	for i := range p.revisions {
		revision := &p.revisions[i]
		item := revisionItem{Revision: revision.Revision, Name: revision.Name, Created: revision.CreationTimestamp}
		if i == 0 {
			// It is recorded a moment after a change.
			_, since, err := p.restored(revision)
			if err != nil {
				return nil, err
			}
			item.Present = len(since) == 0
		}
		if i+1 < len(p.revisions) {
			after, err := fleet.RevisionSpec(revision)
			if err != nil {
				return nil, err
			}
			before, err := fleet.RevisionSpec(&p.revisions[i+1])
			if err != nil {
				return nil, err
			}
			item.Changed = changes.Between(before, after)
		}
		items = append(items, item)
	}
	return items, nil
}

func (t *tool) rolloutHistory(ctx context.Context, argument string, number int64, output string) error {
	known, err := t.readPast(ctx, argument)
	if err != nil {
		return err
	}
	if number != 0 {
		revision, err := known.find(number)
		if err != nil {
			return err
		}
		revision.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"))
		revision.SetManagedFields(nil)
		return t.PrintObject(cmp.Or(output, "yaml"), revision)
	}
	items, err := known.items()
	if err != nil {
		return err
	}
	if output != "" {
		return printItems(t, output, items)
	}
	if len(items) == 0 {
		t.Resultf("%s has no revisions; the manager records the next change", known.of)
		return nil
	}
	rows := make([][]console.Cell, 0, len(items))
	for _, item := range items {
		present := console.Cell{}
		if item.Present {
			present = console.Cell{Text: "present", Colour: console.Green}
		}
		rows = append(rows, []console.Cell{
			{Text: fmt.Sprint(item.Revision)}, {Text: t.Ago(&item.Created)}, present, {Text: console.OrDash(text.List(item.Changed, maxChanges))},
		})
	}
	t.Table([]string{"REVISION", "AGE", "", "CHANGED"}, rows)
	return nil
}

func (t *tool) undoRollout(ctx context.Context, argument string, number int64, dryRun bool) error {
	known, err := t.readPast(ctx, argument)
	if err != nil {
		return err
	}
	revision, err := known.find(number)
	if err != nil {
		return err
	}
	after, changed, err := known.restored(revision)
	if err != nil {
		return err
	}
	if len(changed) == 0 {
		t.Resultf("%s has the spec of revision %d already", known.of, revision.Revision)
		return nil
	}
	options := []client.PatchOption{site.FieldOwner}
	does := "is back at"
	if dryRun {
		options, does = append(options, client.DryRunAll), "would go back to"
	}
	owners := appliersOf(known.object)
	patch := client.MergeFromWithOptions(known.raw, client.MergeFromWithOptimisticLock{})
	if err := known.hub.Patch(ctx, after, patch, options...); err != nil {
		return known.hub.Explain("changing "+known.of.String(), err)
	}
	t.Resultf("%s %s revision %d: %s", known.of, does, revision.Revision, text.List(changed, maxChanges))
	if dryRun {
		return nil
	}
	if len(owners) > 0 {
		t.Notef("%s %s applies this object: take the change back there too, or it may come back",
			console.Paint(t.ErrOut, console.Yellow, "!"), strings.Join(owners, ", "))
	}
	t.Resultf("Follow it with: %s", known.of.command("rollout status")+" --watch")
	return nil
}
