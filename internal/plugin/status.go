// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// watchEvery is how often --watch looks.
const watchEvery = 2 * time.Second

// maxUnwell is how many objects that are not well are listed; a screen has no room for more.
const maxUnwell = 15

// fleetView is what the hub says about the fleet.
type fleetView struct {
	members []flotillav1.MemberCluster
	objects []fleet.Object
}

func newStatus(t *tool) *cobra.Command {
	var output string
	var watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the fleet in one screen",
		Long: `Show the fleet in one screen: the members, and what on the hub and in them is not well. Everything is read from the hub.

With -o json or yaml the objects are printed: MemberClusters, Redis and NodePools of the hub, as one List.
--watch shows the screen again whenever it changes.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watch && (output == "json" || output == "yaml") {
				return faultf("use kubectl get --watch for objects", "--watch does not go with -o %s", output)
			}
			if watch {
				return t.watchStatus(c.Context(), output == "wide")
			}
			return t.status(c.Context(), output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json, yaml or wide")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "Show the screen again whenever it changes")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", "wide"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (t *tool) status(ctx context.Context, output string) error {
	hub, err := t.hub()
	if err != nil {
		return err
	}
	view, err := hub.view(ctx)
	if err != nil {
		return err
	}
	switch output {
	case "", "wide":
		t.printFleet(t.Out, view, output == "wide")
		return nil
	case "json", "yaml":
		list, err := view.list()
		if err != nil {
			return err
		}
		return t.printAs(output, list)
	}
	return badOutput(output, "json", "yaml", "wide")
}

// watchStatus shows the screen until it is interrupted: anew every time on a terminal, below the last one and only when
// something but time has changed elsewhere. A hub that does not answer any more is told and asked again.
func (t *tool) watchStatus(ctx context.Context, wide bool) error {
	hub, err := t.hub()
	if err != nil {
		return err
	}
	var last *fleetView
	shown := ""
	for {
		view, err := hub.view(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // An interruption is how watching ends.
		}
		if err != nil && last == nil {
			return err
		}
		if err == nil {
			last = view
		}
		trouble := ""
		if err != nil {
			trouble = text.Line(err.Error())
		}
		if state := last.state() + trouble; state != shown || isTerminal(t.Out) {
			shown = state
			t.redraw(last, wide, trouble)
		}
		timer := t.clock.NewTimer(watchEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// redraw shows the screen, with what is wrong with asking the hub.
func (t *tool) redraw(view *fleetView, wide bool, trouble string) {
	if isTerminal(t.Out) {
		_, _ = fmt.Fprint(t.Out, "\x1b[H\x1b[2J")
	}
	t.printFleet(t.Out, view, wide)
	if trouble != "" {
		t.tell("\n%s", paint(t.Out, yellow, "As last seen: "+trouble))
	}
	if !isTerminal(t.Out) {
		t.tell("")
	}
}

// state differs whenever an object has changed.
func (v *fleetView) state() string {
	var state strings.Builder
	for i := range v.members {
		state.WriteString(v.members[i].Name + "@" + v.members[i].ResourceVersion + "\n")
	}
	for _, object := range v.objects {
		state.WriteString(nameOf(object) + "@" + object.GetResourceVersion() + "\n")
	}
	return state.String()
}

// view reads the fleet from the hub.
func (s *site) view(ctx context.Context) (*fleetView, error) {
	members, err := s.members(ctx)
	if err != nil {
		return nil, err
	}
	view := &fleetView{members: members}
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		list := kind.NewList()
		if err := s.List(ctx, list); err != nil {
			return nil, s.explain("listing objects of kind "+kind.Name, err)
		}
		view.objects = append(view.objects, kind.Items(list)...)
	}
	return view, nil
}

// list is the view as one List.
func (v *fleetView) list() (runtime.Object, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("List"))
	list.SetAPIVersion("v1")
	add := func(object runtime.Object, kind string) error {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("encoding an object: %w", err)
		}
		item := unstructured.Unstructured{Object: fields}
		item.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(kind))
		unstructured.RemoveNestedField(item.Object, "metadata", "managedFields")
		list.Items = append(list.Items, item)
		return nil
	}
	for i := range v.members {
		if err := add(&v.members[i], "MemberCluster"); err != nil {
			return nil, err
		}
	}
	for _, object := range v.objects {
		if err := add(object, kindOf(object)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// kindOf names the kind of an object of ours.
func kindOf(object any) string {
	if _, ok := object.(*flotillav1.NodePool); ok {
		return fleet.NodePool.Name
	}
	return fleet.Redis.Name
}

// nameOf names an object of ours for people: redis/shop/cache.
func nameOf(object fleet.Object) string {
	parts := []string{strings.ToLower(kindOf(object))}
	if object.GetNamespace() != "" {
		parts = append(parts, object.GetNamespace())
	}
	return strings.Join(append(parts, object.GetName()), "/")
}

// printFleet writes the screen.
func (t *tool) printFleet(out io.Writer, view *fleetView, wide bool) {
	_, _ = fmt.Fprintln(out, view.summary())
	for _, section := range []struct{ title, condition string }{
		{"Stalled until a person acts:", flotillav1.ConditionStalled}, {"Made again after they were gone:", flotillav1.ConditionCopyRecreated},
	} {
		if rows := t.withCondition(view, section.condition); len(rows) > 0 {
			_, _ = fmt.Fprintln(out, "\n"+section.title)
			listRows(out, []string{"OBJECT", "REASON", "SINCE", "MESSAGE"}, rows)
		}
	}
	if len(view.members) > 0 {
		_, _ = fmt.Fprintln(out)
		t.printMembers(out, view.members, wide)
	}
	unwell := t.unwell(view)
	if len(unwell) == 0 {
		return
	}
	_, _ = fmt.Fprintln(out, "\nNot well:")
	listRows(out, []string{"OBJECT", "CLUSTER", "READY", "REASON", "SINCE", "MESSAGE"}, unwell)
}

// listRows writes a table of at most maxUnwell rows.
func listRows(out io.Writer, header []string, rows [][]cell) {
	table(out, header, rows[:min(len(rows), maxUnwell)])
	if more := len(rows) - maxUnwell; more > 0 {
		_, _ = fmt.Fprintf(out, "and %d more\n", more)
	}
}

// summary is the fleet in one line.
func (v *fleetView) summary() string {
	ready := 0
	for i := range v.members {
		if apimeta.IsStatusConditionTrue(v.members[i].Status.Conditions, flotillav1.ConditionReady) {
			ready++
		}
	}
	parts := []string{fmt.Sprintf("Members %d/%d ready", ready, len(v.members))}
	for _, kind := range []string{fleet.Redis.Name, fleet.NodePool.Name} {
		total, well := 0, 0
		for _, object := range v.objects {
			if kindOf(object) != kind {
				continue
			}
			total++
			if apimeta.IsStatusConditionTrue(*object.GetConditions(), flotillav1.ConditionFullyReady) {
				well++
			}
		}
		parts = append(parts, fmt.Sprintf("%s %d/%d fully ready", kind, well, total))
	}
	return strings.Join(parts, " · ")
}

// printMembers writes the table of members.
func (t *tool) printMembers(out io.Writer, members []flotillav1.MemberCluster, wide bool) {
	header := []string{"MEMBER", "READY", "REASON", "VERSION", "REDIS", "NODEPOOLS", "NODES", "CREDENTIAL", "SINCE"}
	if wide {
		header = append(header, "ENDPOINT", "LABELS", "MESSAGE")
	}
	rows := make([][]cell, 0, len(members))
	for i := range members {
		member := &members[i]
		ready := condition(member.Status.Conditions, flotillav1.ConditionReady)
		counts := flotillav1.MemberClusterSummary{}
		if member.Status.Summary != nil {
			counts = *member.Status.Summary
		}
		row := []cell{
			{text: member.Name},
			{string(ready.Status), forStatus(ready.Status)},
			{text: or(ready.Reason)},
			{text: or(member.Status.KubernetesVersion)},
			counted(counts.Redises, member), counted(counts.NodePools, member), counted(counts.Nodes, member),
			t.credentialCell(member),
			{text: t.ago(since(ready, member))},
		}
		if wide {
			row = append(row, cell{text: or(member.Status.Endpoint)}, cell{text: or(metav1.FormatLabelSelector(metav1.SetAsLabelSelector(member.Labels)))}, cell{text: ready.Message})
		}
		rows = append(rows, row)
	}
	table(out, header, rows)
}

// counted shows how many are ready; in yellow when some are not.
func counted(counts flotillav1.ObjectCounts, member *flotillav1.MemberCluster) cell {
	if member.Status.Summary == nil {
		return cell{text: "-"}
	}
	shown := cell{text: fmt.Sprintf("%d/%d", counts.Ready, counts.Total)}
	if counts.Ready < counts.Total {
		shown.colour = yellow
	}
	return shown
}

// credentialCell shows when the credential in use ends.
func (t *tool) credentialCell(member *flotillav1.MemberCluster) cell {
	known := member.Status.Credentials
	switch {
	case known == nil:
		return cell{text: "-"}
	case known.ExpirationTime == nil:
		return cell{text: "no end", colour: faint}
	}
	shown := cell{text: t.in(known.ExpirationTime.Time)}
	switch condition(member.Status.Conditions, flotillav1.ConditionCredentialsAccepted).Reason {
	case flotillav1.ReasonExpiresSoon:
		shown.colour = yellow
	case flotillav1.ReasonExpired:
		shown.colour = red
	}
	return shown
}

// entriesOf returns what a hub object says about each cluster.
func entriesOf(object fleet.Object) []flotillav1.ClusterStatus {
	var entries []flotillav1.ClusterStatus
	switch o := object.(type) {
	case *flotillav1.Redis:
		for i := range o.Status.Clusters {
			entries = append(entries, o.Status.Clusters[i].ClusterStatus)
		}
	case *flotillav1.NodePool:
		for i := range o.Status.Clusters {
			entries = append(entries, o.Status.Clusters[i].ClusterStatus)
		}
	}
	return entries
}
