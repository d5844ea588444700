// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// newRolloutPromote returns rollout promote, and newRolloutRetry rollout retry.
func newRolloutPromote(t *tool) *cobra.Command {
	var full bool
	c := &cobra.Command{
		Use:   "promote (redis|nodepool)/NAME",
		Short: "Let a rollout go on without waiting",
		Long: `Let the present change go on as soon as the clusters on trial are ready with it, without waiting for soakSeconds. With --full
all clusters that wait change together then, without steps, batches and groups.

Clusters that fail still stop the others, and at most rollouts.perCluster objects change in a cluster at a time. The promotion is
for the present generation: it ends with the rollout, and with the next edit.`,
		Example: `  kubectl flotilla rollout promote redis/cache -n shop
  kubectl flotilla rollout promote nodepool/web --full`,
		RunE: func(c *cobra.Command, args []string) error {
			promotion := fleet.PromotionSoak
			if full {
				promotion = fleet.PromotionFull
			}
			return t.promoteRollout(c.Context(), strings.Join(args, "/"), promotion)
		},
	}
	c.Flags().BoolVar(&full, "full", false, "Skip steps, batches and groups too")
	return c
}

func newRolloutRetry(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "retry (redis|nodepool)/NAME",
		Short: "Have a change tried again that was taken back",
		Long: `Have a change tried again that was taken back because of spec.placement.rollout.onHalt. It begins as it did at first, with the
cluster or the step that goes first. It is not taken back a second time: if it fails again, the rollout halts.`,
		Example: `  kubectl flotilla rollout retry redis/cache -n shop`,
		RunE: func(c *cobra.Command, args []string) error {
			return t.retryRollout(c.Context(), strings.Join(args, "/"))
		},
	}
}

// promotionEffects describe what promotions do.
var promotionEffects = map[fleet.Promotion]string{
	fleet.PromotionSoak:  "it goes on as soon as the clusters on trial are ready",
	fleet.PromotionFull:  "all other clusters change as soon as those on trial are ready",
	fleet.PromotionRetry: "the change that was taken back is tried again",
}

// promoteRollout lets the rollout of the present generation of an object go on without waiting.
func (t *tool) promoteRollout(ctx context.Context, argument string, promotion fleet.Promotion) error {
	of, hub, object, err := t.placedOnHub(ctx, argument)
	if err != nil {
		return err
	}
	if progressing := condition.Of(*object.GetConditions(), flotillav1.ConditionProgressing); progressing.ObservedGeneration == object.GetGeneration() {
		switch progressing.Reason {
		case flotillav1.ReasonSettled:
			t.Resultf("No change of %s is under way", of)
			return nil
		case flotillav1.ReasonRolloutHalted:
			return console.Faultf("correct the spec, or go back with "+of.command("rollout undo"),
				"the rollout of %s has halted because clusters failed, which a promotion does not end", of)
		}
	}
	if rollout := object.GetPlacement().Rollout; rollout != nil && rollout.Paused {
		// To resume makes another generation, which would not be promoted.
		return console.Faultf("first go on with "+of.command("rollout resume"), "the rollout of %s is paused", of)
	}
	return t.annotatePromotion(ctx, of, hub, object, promotion)
}

// retryRollout has the change of the present generation of an object tried again that was taken back.
func (t *tool) retryRollout(ctx context.Context, argument string) error {
	of, hub, object, err := t.placedOnHub(ctx, argument)
	if err != nil {
		return err
	}
	if fleet.RevertedChange(object) == nil {
		t.Resultf("No change of %s was taken back", of)
		return nil
	}
	return t.annotatePromotion(ctx, of, hub, object, fleet.PromotionRetry)
}

// annotatePromotion promotes the present generation of an object.
func (t *tool) annotatePromotion(ctx context.Context, of target, hub *site.Site, object fleet.Object, promotion fleet.Promotion) error {
	before := object.DeepCopyObject().(fleet.Object)
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[flotillav1.AnnotationPromote] = promotion.Value(object.GetGeneration())
	object.SetAnnotations(annotations)
	if err := hub.Patch(ctx, object, client.MergeFrom(before), site.Person); err != nil {
		return hub.Explain("changing "+of.String(), err)
	}
	t.Resultf("The rollout of %s is promoted: %s", of, promotionEffects[promotion])
	t.Resultf("Follow it with: %s", of.command("rollout status")+" --watch")
	return nil
}
