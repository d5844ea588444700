// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// request is something that a person asks for on a MemberCluster, by an annotation. It is there and not on the registration,
// because GitOps tools apply registrations.
type request struct {
	annotation string
	// asked and over tell what is the case with the annotation and without it; undo is the command that ends it.
	asked, over, undo string
}

var (
	pauseRequest = request{flotillav1.AnnotationPaused, "paused: it is observed, and nothing is written there", "not paused any longer", "resume"}
	drainRequest = request{flotillav1.AnnotationDrain, "being drained: the hub removes its copies", "not drained any longer: it is chosen again", "undrain"}
)

func newPause(t *tool) *cobra.Command {
	return t.newRequest(&pauseRequest, true, "pause NAME...", "Observe members and write nothing there",
		"Observe members and write nothing there, not even the claim. Copies and everything else in the members stay and run on.")
}

func newResume(t *tool) *cobra.Command {
	return t.newRequest(&pauseRequest, false, "resume NAME...", "Write to members again that were paused",
		"Write to members again that were paused with kubectl flotilla pause.")
}

func newDrain(t *tool) *cobra.Command {
	return t.newRequest(&drainRequest, true, "drain NAME...", "Remove the hub's copies from members that stay registered",
		`Remove the hub's copies from members that stay registered, and choose these no more. The deletionPolicy of each hub object says what
happens to its copy; the members' own objects stay. What will happen is shown first.`)
}

func newUndrain(t *tool) *cobra.Command {
	return t.newRequest(&drainRequest, false, "undrain NAME...", "Choose members again that were drained",
		"Choose members again that were drained with kubectl flotilla drain: they get their copies back.")
}

// newRequest returns the command that asks for something, or ends it.
func (t *tool) newRequest(what *request, set bool, use, short, long string) *cobra.Command {
	yes := true
	c := &cobra.Command{
		Use: use, Short: short,
		Long: long + "\n\nThe request is annotation " + what.annotation + ` of the MemberCluster. GitOps tools do not apply MemberClusters, so none takes it back.`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			names, directive := t.CompleteMembers(c, nil, "")
			return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
		},
		RunE: func(c *cobra.Command, args []string) error { return t.request(c.Context(), what, set, args, yes) },
	}
	if what == &drainRequest && set {
		c.Flags().BoolVar(&yes, "yes", false, "Do not ask")
	}
	return c
}

// request asks for something at members, or ends it.
func (t *tool) request(ctx context.Context, what *request, set bool, names []string, yes bool) error {
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	members := make([]*flotillav1.MemberCluster, 0, len(names))
	for _, name := range names {
		member, err := hub.Member(ctx, name)
		if err != nil {
			return err
		}
		members = append(members, member)
	}
	if !yes {
		if err := t.showCopies(ctx, hub, names); err != nil {
			return err
		}
	}
	for _, member := range members {
		if err := hub.Annotate(ctx, member, what.annotation, set); err != nil {
			return err
		}
		if set {
			t.Resultf("%s is %s", member.Name, what.asked)
			continue
		}
		t.Resultf("%s is %s", member.Name, what.over)
		t.noteRegistration(ctx, hub, member, what.annotation)
	}
	if set {
		t.Resultf("End it with: kubectl flotilla %s %s", what.undo, strings.Join(names, " "))
	}
	return nil
}

// showCopies shows what is removed from members, and asks.
func (t *tool) showCopies(ctx context.Context, hub *site.Site, names []string) error {
	view, err := readFleet(ctx, hub)
	if err != nil {
		return err
	}
	var rows [][]console.Cell
	for _, name := range names {
		for _, object := range view.objects {
			if slices.Contains(clustersOf(object), name) {
				consequence := consequenceOf(object)
				if placementOf(object).DeletionPolicy == flotillav1.DeletionPolicyOrphan {
					consequence = "stays, as an object of the cluster"
				}
				rows = append(rows, []console.Cell{{Text: name}, {Text: nameOf(object)}, {Text: consequence}})
			}
		}
	}
	if len(rows) > 0 {
		t.Table([]string{"CLUSTER", "COPY", "WHEN DRAINED"}, rows)
	}
	return t.confirm(false, fmt.Sprintf("Drain %s?", text.List(names, 10)))
}

// noteRegistration says that the registration asks for the same, for which another owner may be responsible. Who may not
// read registrations is told nothing.
func (t *tool) noteRegistration(ctx context.Context, hub *site.Site, member *flotillav1.MemberCluster, annotation string) {
	secret, err := hub.Registration(ctx, member)
	if err == nil && secret.Annotations[annotation] == "true" {
		t.Notef("%s the registration, Secret %s/%s, asks for it too: remove its annotation %s",
			console.Paint(t.ErrOut, console.Yellow, "!"), secret.Namespace, secret.Name, annotation)
	}
}

func newRelease(t *tool) *cobra.Command {
	var clusters []string
	var yes bool
	c := &cobra.Command{
		Use:   "release (redis|nodepool)/NAME -c CLUSTER...",
		Short: "Give up the copies of an object in clusters that may never come back",
		Long: `Give up the copies of an object in some clusters, so that nothing waits for them any longer. A copy may still be in its member, and
runs on there. A cluster that is still chosen gets its copy back.`,
		Example:           `  kubectl flotilla release redis/cache -n shop -c eu-1`,
		Args:              oneObject,
		ValidArgsFunction: t.completeTargets,
		RunE: func(c *cobra.Command, args []string) error {
			return t.release(c.Context(), strings.Join(args, "/"), clusters, yes)
		},
	}
	c.Flags().StringSliceVarP(&clusters, "cluster", "c", nil, "Clusters whose copies are given up (required)")
	c.Flags().BoolVar(&yes, "yes", false, "Do not ask")
	_ = c.RegisterFlagCompletionFunc("cluster", t.CompleteMembers)
	return c
}

// release gives up copies.
func (t *tool) release(ctx context.Context, argument string, clusters []string, yes bool) error {
	of, hub, err := t.onHub(argument)
	if err != nil {
		return err
	}
	object, err := of.read(ctx, hub)
	if err != nil {
		return err
	}
	known := clustersOf(object)
	for _, name := range clusters {
		if !slices.Contains(known, name) {
			return console.Faultf("name some of "+text.List(known, 10), "%s has no copy in %q", of, name)
		}
	}
	if len(clusters) == 0 {
		return console.Faultf("name some of "+text.List(known, 10)+" with -c", "it is not clear which copies of %s to give up", of)
	}
	if err := t.confirm(yes, fmt.Sprintf("Give up the copies of %s in %s?", of, text.List(clusters, 10))); err != nil {
		return err
	}
	before := object.DeepCopyObject().(fleet.Object)
	metav1.SetMetaDataAnnotation(objectMeta(object), flotillav1.AnnotationRelease, joined(object, flotillav1.AnnotationRelease, clusters))
	if err := hub.Patch(ctx, object, client.MergeFrom(before), site.Person); err != nil {
		return hub.Explain("changing "+of.String(), err)
	}
	t.Resultf("Given up: %s in %s", of, text.List(clusters, 10))
	return nil
}
