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
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

func newRollout(t *tool) *cobra.Command {
	c := &cobra.Command{
		Use:   "rollout",
		Short: "Show a rollout, pause, resume, promote and retry it, and go back",
		Long: `Show how far a change of an object has come in its clusters, stop it from reaching further ones or let it reach them sooner, and
go back to an earlier spec.

Everything is read from the hub and written there.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	add := func(command *cobra.Command) {
		command.Args, command.ValidArgsFunction, command.DisableFlagsInUseLine = oneObject, t.completeTargets, true
		c.AddCommand(command)
	}
	var watch bool
	var output string
	status := &cobra.Command{
		Use:   "status (redis|nodepool)/NAME",
		Short: "Show which clusters have the last change, are on trial with it, or wait",
		Long: `Show which clusters have the last change, are on trial with it, or wait, what has stopped the rollout, and how to go on.

  failed     not ready in time with a change that it may have taken
  on trial   may have taken a change, and has not been seen ready with it yet
  waiting    has not taken the change
  reverted   has what it had before the change, which was taken back
  not seen   cannot be observed
  done       has the change`,
		Example: `  kubectl flotilla rollout status redis/cache -n shop
  kubectl flotilla rollout status nodepool/web --watch`,
		RunE: func(c *cobra.Command, args []string) error {
			if watch && output != "" {
				return console.Faultf("use one of them", "--watch does not go with -o %s", output)
			}
			return t.rolloutStatus(c.Context(), strings.Join(args, "/"), watch, output)
		},
	}
	status.Flags().BoolVarP(&watch, "watch", "w", false, "Show it again whenever it changes, until the rollout is over")
	addOutput(status, &output)
	add(status)
	add(&cobra.Command{
		Use:   "pause (redis|nodepool)/NAME",
		Short: "Stop a change from reaching further clusters",
		Long: `Set spec.placement.rollout.paused: the present change and later ones reach no further cluster. Clusters that have begun
finish. Going back to the previous spec is still possible.`,
		Example: `  kubectl flotilla rollout pause redis/cache -n shop`,
		RunE: func(c *cobra.Command, args []string) error {
			return t.pauseRollout(c.Context(), strings.Join(args, "/"), true)
		},
	})
	add(&cobra.Command{
		Use:     "resume (redis|nodepool)/NAME",
		Short:   "Let a paused rollout go on",
		Example: `  kubectl flotilla rollout resume redis/cache -n shop`,
		RunE: func(c *cobra.Command, args []string) error {
			return t.pauseRollout(c.Context(), strings.Join(args, "/"), false)
		},
	})
	add(newRolloutPromote(t))
	add(newRolloutRetry(t))
	add(newRolloutHistory(t))
	add(newRolloutUndo(t))
	return c
}

// The stages of a cluster in a rollout, in the order in which they are shown.
const (
	stageFailed   = "failed"
	stageOnTrial  = "on trial"
	stageWaiting  = "waiting"
	stageReverted = "reverted"
	stageUnseen   = "not seen"
	stageDone     = "done"
)

// stageOrder and stageColours are of the stages.
var (
	stageOrder   = []string{stageFailed, stageOnTrial, stageWaiting, stageReverted, stageUnseen, stageDone}
	stageColours = map[string]console.Colour{
		stageFailed: console.Red, stageOnTrial: console.Yellow, stageWaiting: console.Faint, stageReverted: console.Yellow, stageUnseen: console.Yellow,
		stageDone: console.Green,
	}
)

// rolloutStatus shows a rollout. With watch it is shown again whenever it changes, until the rollout is over.
func (t *tool) rolloutStatus(ctx context.Context, argument string, watch bool, output string) error {
	of, hub, err := t.onHub(argument)
	if err != nil {
		return err
	}
	readObject := func(ctx context.Context) (fleet.Object, error) {
		object, err := of.read(ctx, hub)
		if err == nil && object.GetPlacement() == nil {
			err = notPlaced(of)
		}
		return object, err
	}
	if watch {
		return t.watch(ctx, func(ctx context.Context) (*screenful, error) {
			object, err := readObject(ctx)
			if err != nil {
				return nil, err
			}
			return &screenful{
				state: object.GetResourceVersion(), over: rolloutOver(object), print: func() { t.printRollout(of, object) },
			}, nil
		})
	}
	object, err := readObject(ctx)
	if err != nil {
		return err
	}
	if output != "" {
		return t.PrintValue(output, t.rolloutOf(of, object))
	}
	t.printRollout(of, object)
	return nil
}

// notPlaced is the error for an object that is placed nowhere.
func notPlaced(of target) error {
	return console.Faultf("set spec.placement to choose the clusters that get a copy", "%s is placed nowhere", of)
}

// rolloutOver reports whether every cluster that can be changed has the present generation.
func rolloutOver(object fleet.Object) bool {
	progressing := condition.Of(*object.GetConditions(), flotillav1.ConditionProgressing)
	return progressing.ObservedGeneration == object.GetGeneration() && progressing.Reason == flotillav1.ReasonSettled && len(object.GetFleetStatus().Trials) == 0
}

// printRollout writes how far a rollout has come.
func (t *tool) printRollout(of target, object fleet.Object) {
	progressing := condition.Of(*object.GetConditions(), flotillav1.ConditionProgressing)
	if progressing.ObservedGeneration != object.GetGeneration() {
		t.Resultf("%s: the manager has not seen generation %d yet", of, object.GetGeneration())
	} else {
		colour := map[string]console.Colour{
			flotillav1.ReasonSettled: console.Green, flotillav1.ReasonRolloutHalted: console.Red, flotillav1.ReasonRolloutReverted: console.Red,
		}[progressing.Reason]
		t.Resultf("%s", console.Paint(t.Out, cmp.Or(colour, console.Yellow), fmt.Sprintf(
			"%s: %s for %s: %s", of, progressing.Reason, t.Ago(&progressing.LastTransitionTime), progressing.Message)))
	}
	stages := t.stagesOf(object)
	rows := make([][]console.Cell, 0, len(stages))
	for _, item := range stages {
		rows = append(rows, []console.Cell{
			{Text: item.Cluster},
			{Text: item.Stage, Colour: stageColours[item.Stage]},
			{Text: t.Ago(item.Since)},
			console.Status(item.Ready),
			{Text: console.OrDash(item.Reason)},
			{Text: item.Message},
		})
	}
	counts := countStages(object.GetFleetStatus(), stages)
	var parts []string
	for _, stage := range stageOrder {
		if counts[stage] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[stage], stage))
		}
	}
	if len(parts) > 0 {
		t.Resultf("Clusters: %s\n", strings.Join(parts, ", "))
		t.listRows([]string{"CLUSTER", "STAGE", "FOR", "READY", "REASON", "DETAIL"}, rows, maxUnwell)
	}
	if promotion := fleet.PromotionOf(object); promotion != fleet.PromotionNone {
		t.Resultf("\nPromoted: %s", promotionEffects[promotion])
	}
	switch progressing.Reason {
	case flotillav1.ReasonRolloutPaused:
		t.Resultf("\nGo on with: %s", of.command("rollout resume"))
	case flotillav1.ReasonRolloutHalted:
		t.Resultf("\nWhat it means: %s\nGo back with: %s", condition.Meaning(progressing.Reason), of.command("rollout undo"))
	case flotillav1.ReasonRolloutReverted:
		t.Resultf("\nWhat it means: %s\nMake it the spec of the hub, too, with: %s\nTry the change again with: %s",
			condition.Meaning(progressing.Reason), of.command("rollout undo"), of.command("rollout retry"))
	}
}

// countStages counts the clusters of a hub object by their stages. The hub counts those that it does not list while a change
// is under way; at other times they have the change.
func countStages(status *flotillav1.FleetStatus, listed []stageItem) map[string]int {
	counts := map[string]int{}
	for _, item := range listed {
		counts[item.Stage]++
	}
	switch all := status.Rollout; {
	case status.ClustersOmitted > 0 && all != nil:
		counts[stageFailed], counts[stageOnTrial] = int(all.Failed), int(all.Changing)
		counts[stageWaiting], counts[stageReverted], counts[stageDone] = int(all.Waiting), int(all.Reverted), int(all.Done)
	default:
		counts[stageDone] += int(status.ClustersOmitted)
	}
	return counts
}

// stagesOf returns the stage of each cluster that a hub object lists. Those that stop others come first.
func (t *tool) stagesOf(object fleet.Object) []stageItem {
	trials, deadline := fleet.TrialsOf(object), fleet.NewWaves(object, "", 0).Deadline
	entries, reverted := entriesOf(object), fleet.RevertedChange(object) != nil
	stages := make([]stageItem, 0, len(entries))
	for i := range entries {
		entry := &entries[i]
		stage, began := stageWaiting, entry.Since
		trial, tried := trials[entry.Name]
		switch {
		case tried && t.Clock.Since(trial.Since) >= deadline && entry.Ready != metav1.ConditionTrue:
			stage, began = stageFailed, &metav1.Time{Time: trial.Since}
		case tried:
			stage, began = stageOnTrial, &metav1.Time{Time: trial.Since}
		case entry.Ready == metav1.ConditionUnknown:
			stage = stageUnseen
		case reverted:
			// One that had the present spec before the change began has it still.
			stage = stageReverted
			if entry.ObservedGeneration == object.GetGeneration() && entry.Reason != flotillav1.ReasonReverted {
				stage = stageDone
			}
		case entry.ObservedGeneration == object.GetGeneration():
			stage = stageDone
		}
		stages = append(stages, stageItem{
			Cluster: entry.Name, Stage: stage, Since: began, Ready: entry.Ready, Reason: entry.Reason, Message: entry.Message,
		})
	}
	slices.SortStableFunc(stages, func(a, b stageItem) int {
		return cmp.Compare(slices.Index(stageOrder, a.Stage), slices.Index(stageOrder, b.Stage))
	})
	return stages
}

// pauseRollout pauses the rollout of an object, or resumes it.
func (t *tool) pauseRollout(ctx context.Context, argument string, pause bool) error {
	of, hub, object, err := t.placedOnHub(ctx, argument)
	if err != nil {
		return err
	}
	placement, does := object.GetPlacement(), map[bool]string{true: "paused", false: "not paused"}[pause]
	if (placement.Rollout != nil && placement.Rollout.Paused) == pause {
		t.Resultf("The rollout of %s is %s already", of, does)
		return nil
	}
	before := object.DeepCopyObject().(fleet.Object)
	if placement.Rollout == nil {
		placement.Rollout = &flotillav1.Rollout{}
	}
	placement.Rollout.Paused = pause
	if err := hub.Patch(ctx, object, client.MergeFrom(before), site.Person); err != nil {
		return hub.Explain("changing "+of.String(), err)
	}
	t.Resultf("The rollout of %s is %s", of, does)
	if owners := appliersOf(before); len(owners) > 0 {
		t.Notef("%s %s applies this object: change spec.placement.rollout.paused there too, or it may be set back",
			console.Paint(t.ErrOut, console.Yellow, "!"), strings.Join(owners, ", "))
	}
	if pause {
		t.Resultf("Go on with: %s", of.command("rollout resume"))
	} else {
		t.Resultf("Follow it with: %s", of.command("rollout status")+" --watch")
	}
	return nil
}

// appliersOf lists who applies the spec of an object by server-side apply: a GitOps tool, or a person.
func appliersOf(object client.Object) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
