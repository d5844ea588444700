// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxHeldClusters is the number of clusters that a row names.
const maxHeldClusters = 3

// What a person can confirm.
const (
	holdRemoval   = "removal"
	holdLeave     = "leave"
	holdRecreated = "recreated"
)

var confirmable = []string{holdRemoval, holdLeave, holdRecreated}

// hold is something that waits for a person.
type hold struct {
	object fleet.Object
	// what is one of confirmable, or the reason of a condition.
	what     string
	clusters []string
	since    *metav1.Time
	// effect is what happens when it is confirmed, and next the command that goes on.
	effect, next string
	// annotation confirms it, with that value.
	annotation, value string
}

func newHeld(t *tool) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "held",
		Short: "List what waits for a person",
		Long: `List what waits for a person: removals beyond the budget, copies that stay because labels of their clusters were dropped, copies
that were made again, rollouts that are halted or paused, and whatever else is stalled. Everything is read from the hub.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return t.held(c.Context(), output) },
	}
	addOutput(c, &output, "name")
	return c
}

// selection is which objects a person confirms.
type selection struct {
	selector           string
	all, allNamespaces bool
	yes                bool
}

func newConfirm(t *tool) *cobra.Command {
	var chosen selection
	c := &cobra.Command{
		Use:   "confirm (removal|leave|recreated) ((redis|nodepool)/NAME... | -l SELECTOR | --all)",
		Short: "Let go on what waits for a person, for many objects at once",
		Long: `Confirm, after showing what will happen and asking once:

  removal     delete the copies whose removal is beyond the budget
  leave       remove the copies from clusters whose labels no longer match
  recreated   the copies that were made again have been looked at; nothing is deleted

A removal is confirmed for the spec that is shown: if it changes before the manager acts, the removal waits again.`,
		Example: `  kubectl flotilla confirm removal redis/cache -n shop
  kubectl flotilla confirm leave -l team=shop --all-namespaces`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return confirmable, cobra.ShellCompDirectiveNoFileComp
			}
			return t.completeTargets(c, nil, prefix)
		},
		RunE: func(c *cobra.Command, args []string) error {
			return t.confirmHeld(c.Context(), args[0], args[1:], chosen)
		},
	}
	c.Flags().StringVarP(&chosen.selector, "selector", "l", "", "Label selector of objects")
	c.Flags().BoolVar(&chosen.all, "all", false, "All objects")
	c.Flags().BoolVarP(&chosen.allNamespaces, "all-namespaces", "A", false, "With -l or --all: in all namespaces")
	c.Flags().BoolVar(&chosen.yes, "yes", false, "Do not ask")
	return c
}

// holdsOf returns what waits for a person at a hub object.
func holdsOf(object fleet.Object) []hold {
	of, conditions, status := targetOf(object), *object.GetConditions(), object.GetFleetStatus()
	var holds []hold
	add := func(what string, clusters []string, since *metav1.Time, effect, next string) *hold {
		holds = append(holds, hold{object: object, what: what, clusters: clusters, since: since, effect: effect, next: next})
		return &holds[len(holds)-1]
	}
	confirming := func(what string) string { return of.command("confirm " + what) }
	if held := condition.Of(conditions, flotillav1.ConditionRemovalHeld); held.Status == metav1.ConditionTrue {
		var clusters []string
		for _, entry := range entriesOf(object) {
			if entry.Reason == flotillav1.ReasonRemovalHeld {
				clusters = append(clusters, entry.Name)
			}
		}
		h := add(holdRemoval, clusters, &held.LastTransitionTime, "copies are deleted: "+consequenceOf(object), confirming(holdRemoval))
		h.annotation, h.value = flotillav1.AnnotationConfirmRemoval, fmt.Sprint(held.ObservedGeneration)
	}
	var leaving []string
	for _, departure := range status.Departing {
		if departure.Cause == flotillav1.DepartureLabelsChanged {
			leaving = append(leaving, departure.Name)
		}
	}
	if len(leaving) > 0 {
		h := add(holdLeave, leaving, nil, "copies are removed: "+consequenceOf(object), confirming(holdLeave))
		h.annotation, h.value = flotillav1.AnnotationConfirmLeave, joined(object, flotillav1.AnnotationConfirmLeave, leaving)
	}
	var recreated []string
	for _, copied := range status.Recreated {
		recreated = append(recreated, copied.Name)
	}
	if len(recreated) > 0 {
		since := condition.Of(conditions, flotillav1.ConditionCopyRecreated).LastTransitionTime
		h := add(holdRecreated, recreated, &since, "nothing is deleted", confirming(holdRecreated))
		h.annotation, h.value = flotillav1.AnnotationConfirmRecreated, joined(object, flotillav1.AnnotationConfirmRecreated, recreated)
	}
	progressing := condition.Of(conditions, flotillav1.ConditionProgressing)
	switch progressing.Reason {
	case flotillav1.ReasonRolloutHalted:
		add(progressing.Reason, nil, &progressing.LastTransitionTime, "", of.command("rollout undo")+", or correct it")
	case flotillav1.ReasonRolloutReverted:
		add(progressing.Reason, nil, &progressing.LastTransitionTime, "", of.command("rollout retry")+", or correct it")
	case flotillav1.ReasonRolloutPaused:
		add(progressing.Reason, nil, &progressing.LastTransitionTime, "", of.command("rollout resume"))
	}
	shown := []string{flotillav1.ReasonRemovalHeld, flotillav1.ReasonRolloutHalted, flotillav1.ReasonRolloutReverted}
	if stalled := condition.Of(conditions, flotillav1.ConditionStalled); stalled.Status == metav1.ConditionTrue && !slices.Contains(shown, stalled.Reason) {
		add(stalled.Reason, nil, &stalled.LastTransitionTime, "", of.command("tree")+" shows more")
	}
	return holds
}

// joined returns the names in an annotation and further ones, as a value of it.
func joined(object fleet.Object, annotation string, names []string) string {
	all := append(fleet.Names(object.GetAnnotations()[annotation]), names...)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// targetOf names a hub object.
func targetOf(object fleet.Object) target {
	return target{kindOf(object), client.ObjectKeyFromObject(object)}
}

func (t *tool) held(ctx context.Context, output string) error {
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	view, err := readFleet(ctx, hub)
	if err != nil {
		return err
	}
	items := view.held()
	if output != "" {
		return printItems(t, output, items)
	}
	if len(items) == 0 {
		t.Resultf("Nothing waits for a person.")
		return nil
	}
	rows := make([][]console.Cell, 0, len(items))
	for _, item := range items {
		rows = append(rows, []console.Cell{
			{Text: item.Object},
			{Text: item.Held, Colour: console.Yellow},
			{Text: t.Ago(item.Since)},
			{Text: console.OrDash(text.List(item.Clusters, maxHeldClusters))},
			{Text: item.Next},
		})
	}
	t.Table([]string{"OBJECT", "HELD", "SINCE", "CLUSTERS", "GO ON WITH"}, rows)
	return nil
}

// held returns what waits for a person in the fleet; members come first.
func (v *fleetView) held() []heldItem {
	items := []heldItem{}
	for i := range v.members {
		items = append(items, heldAtMember(&v.members[i])...)
	}
	for _, object := range v.objects {
		items = append(items, heldAtObject(object)...)
	}
	return items
}

// heldAtMember returns what waits for a person at a member.
func heldAtMember(member *flotillav1.MemberCluster) []heldItem {
	stalled := condition.Of(member.Status.Conditions, flotillav1.ConditionStalled)
	if stalled.Status != metav1.ConditionTrue {
		return nil
	}
	return []heldItem{{Object: "membercluster/" + member.Name, Held: stalled.Reason, Since: at(stalled.LastTransitionTime.Time), Next: stalled.Message}}
}

// heldAtObject returns what waits for a person at a hub object.
func heldAtObject(object fleet.Object) []heldItem {
	holds := holdsOf(object)
	items := make([]heldItem, 0, len(holds))
	for _, h := range holds {
		items = append(items, heldItem{Object: nameOf(object), Held: h.what, Since: h.since, Clusters: h.clusters, Next: h.next})
	}
	return items
}

// confirmHeld confirms one kind of hold for the chosen objects.
func (t *tool) confirmHeld(ctx context.Context, what string, arguments []string, chosen selection) error {
	if !slices.Contains(confirmable, what) {
		return console.Faultf("say "+strings.Join(confirmable, ", "), "%q cannot be confirmed", what)
	}
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	objects, err := t.choose(ctx, hub, arguments, chosen)
	if err != nil {
		return err
	}
	var holds []hold
	for _, object := range objects {
		for _, h := range holdsOf(object) {
			if h.what == what {
				holds = append(holds, h)
			}
		}
	}
	if len(holds) == 0 {
		t.Resultf("Nothing of this kind waits at the %s.", console.Count(len(objects), "object"))
		return nil
	}
	rows := make([][]console.Cell, 0, len(holds))
	for _, h := range holds {
		rows = append(rows, []console.Cell{{Text: nameOf(h.object)}, {Text: cmp.Or(text.List(h.clusters, maxHeldClusters), "-")}, {Text: h.effect}})
	}
	t.Table([]string{"OBJECT", "CLUSTERS", "WHEN CONFIRMED"}, rows)
	if err := t.confirm(chosen.yes, fmt.Sprintf("Confirm for %s?", console.Count(len(holds), "object"))); err != nil {
		return err
	}
	for _, h := range holds {
		before := h.object.DeepCopyObject().(fleet.Object)
		metav1.SetMetaDataAnnotation(objectMeta(h.object), h.annotation, h.value)
		if err := hub.Patch(ctx, h.object, client.MergeFrom(before), site.Person); err != nil {
			return hub.Explain("confirming for "+nameOf(before), err)
		}
	}
	t.Resultf("Confirmed for %s", console.Count(len(holds), "object"))
	return nil
}

// objectMeta returns the metadata of a hub object.
func objectMeta(object fleet.Object) *metav1.ObjectMeta {
	if pool, ok := object.(*flotillav1.NodePool); ok {
		return &pool.ObjectMeta
	}
	return &object.(*flotillav1.Redis).ObjectMeta
}

// choose reads the objects that a person means.
func (t *tool) choose(ctx context.Context, hub *site.Site, arguments []string, chosen selection) ([]fleet.Object, error) {
	selecting := chosen.all || chosen.selector != ""
	if selecting == (len(arguments) > 0) {
		return nil, console.Faultf("name objects as redis/NAME or nodepool/NAME, or pass -l SELECTOR or --all", "it is not clear for which objects to confirm")
	}
	if !selecting {
		return t.named(ctx, hub, arguments)
	}
	selector, err := labels.Parse(chosen.selector)
	if err != nil {
		return nil, console.Faultf("write a label selector, such as team=shop", "%q is not a selector: %w", chosen.selector, err)
	}
	namespace, err := t.Namespace()
	if err != nil {
		return nil, err
	}
	var objects []fleet.Object
	for _, kind := range placedKinds {
		list := kind.NewList()
		if err := hub.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, hub.Explain("listing objects of kind "+kind.Name, err)
		}
		for _, object := range kind.Items(list) {
			if in := object.GetNamespace(); chosen.allNamespaces || in == "" || in == namespace {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

// named reads the objects that arguments name.
func (t *tool) named(ctx context.Context, hub *site.Site, arguments []string) ([]fleet.Object, error) {
	var objects []fleet.Object
	for _, argument := range arguments {
		of, err := t.parseTarget(argument)
		if err != nil {
			return nil, err
		}
		object, err := of.read(ctx, hub)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}
