// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// watchEvery is the interval at which --watch looks whether there is something new to show.
const watchEvery = 2 * time.Second

const (
	// maxUnwell is the maximum number of rows of a table, and maxMembers of the table of members.
	maxUnwell  = 15
	maxMembers = 30
)

// layout is how the fleet is shown.
type layout struct {
	// all shows all rows, and wide more columns.
	all, wide bool
	// sort is the order of the members: one of memberOrders.
	sort string
	// selector limits the members that are listed.
	selector labels.Selector
}

// Orders of members.
const (
	byName       = "name"
	bySince      = "since"
	byCredential = "credential"
)

var memberOrders = []string{byName, bySince, byCredential}

// fleetView is the fleet as the hub knows it.
type fleetView struct {
	members []flotillav1.MemberCluster
	objects []fleet.Object
}

func newStatus(t *tool) *cobra.Command {
	var output, selector string
	var watch bool
	how := layout{}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the fleet on one screen",
		Long: `Show the fleet on one screen: the members, and what is not well on the hub and in them. Everything is read from the hub.
Of more than 30 members those are listed that need attention most, and their causes are counted.

With -o json or yaml the objects are printed: MemberClusters, Redis and NodePools of the hub, as one List.
--watch shows the screen again whenever it changes.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watch && output != "" && output != "wide" {
				return console.Faultf("use kubectl get --watch for objects", "--watch does not go with -o %s", output)
			}
			if !slices.Contains(memberOrders, how.sort) {
				return console.Faultf("use "+strings.Join(memberOrders, ", "), "members cannot be sorted by %q", how.sort)
			}
			var err error
			if how.selector, err = labels.Parse(selector); err != nil {
				return console.Faultf("write a label selector, such as region=eu", "%q is not a selector: %w", selector, err)
			}
			how.wide = output == "wide"
			if watch {
				return t.watchStatus(c.Context(), how)
			}
			return t.status(c.Context(), output, how)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json, yaml, name or wide")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "Show the screen again whenever it changes")
	c.Flags().BoolVar(&how.all, "all", false, "Show all rows")
	c.Flags().StringVar(&how.sort, "sort", byName, "Order of the members: "+strings.Join(memberOrders, ", "))
	c.Flags().StringVarP(&selector, "selector", "l", "", "Label selector of the members to list")
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(memberOrders, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", "name", "wide"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (t *tool) status(ctx context.Context, output string, how layout) error {
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	view, err := readFleet(ctx, hub)
	if err != nil {
		return err
	}
	switch output {
	case "", "wide":
		t.printFleet(view, how)
		return nil
	case "json", "yaml":
		view.members = how.selected(view.members)
		return t.PrintObject(output, view.list())
	case "name":
		for _, member := range how.selected(view.members) {
			t.Resultf("%s", memberPath(member.Name))
		}
		return nil
	}
	return console.BadOutput(output, "json", "yaml", "name", "wide")
}

// watchStatus shows the fleet until it is interrupted.
func (t *tool) watchStatus(ctx context.Context, how layout) error {
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	look, err := followFleet(ctx, hub, t.Clock)
	if err != nil {
		return err
	}
	return t.watch(ctx, func(context.Context) (*screenful, error) {
		view, err := look()
		if err != nil {
			return nil, err
		}
		return &screenful{state: view.state(), print: func() { t.printFleet(view, how) }}, nil
	})
}

// screenful is what --watch shows.
type screenful struct {
	// state changes whenever anything but times does.
	state string
	// over is true if nothing more is to come.
	over  bool
	print func()
}

// watch shows a screen until it is interrupted or over. On a terminal the screen is redrawn each time; otherwise it is
// printed again when anything but times has changed. If the hub stops answering, the last screen stays, together with the
// error.
func (t *tool) watch(ctx context.Context, read func(context.Context) (*screenful, error)) error {
	var last *screenful
	shown := ""
	for {
		now, err := read(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // An interruption is how watching ends.
		}
		if err != nil && last == nil {
			return err
		}
		trouble := ""
		if err == nil {
			last = now
		} else {
			trouble = text.Line(err.Error())
		}
		if state := last.state + trouble; state != shown || t.IsTerminal() {
			shown = state
			t.redraw(last, trouble)
		}
		if last.over && err == nil {
			return nil
		}
		timer := t.Clock.NewTimer(watchEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// redraw shows a screen, with the error of the last request to the hub.
func (t *tool) redraw(shown *screenful, trouble string) {
	if t.IsTerminal() {
		t.Clear()
	}
	shown.print()
	if trouble != "" {
		t.Resultf("\n%s", console.Paint(t.Out, console.Yellow, "As last seen: "+trouble))
	}
	if !t.IsTerminal() {
		t.Resultf("")
	}
}

// state returns a value that changes whenever an object does.
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

// readFleet lists the fleet on the hub.
func readFleet(ctx context.Context, hub *site.Site) (*fleetView, error) {
	members, err := hub.Members(ctx)
	if err != nil {
		return nil, err
	}
	view := &fleetView{members: members}
	for _, kind := range placedKinds {
		list := kind.NewList()
		if err := hub.List(ctx, list); err != nil {
			return nil, hub.Explain("listing objects of kind "+kind.Name, err)
		}
		view.objects = append(view.objects, kind.Items(list)...)
	}
	return view, nil
}

// list returns the view as one List.
func (v *fleetView) list() runtime.Object {
	list := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	add := func(object client.Object, kind string) {
		object.GetObjectKind().SetGroupVersionKind(flotillav1.GroupVersion.WithKind(kind))
		object.SetManagedFields(nil)
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	for i := range v.members {
		add(&v.members[i], flotillav1.KindMemberCluster)
	}
	for _, object := range v.objects {
		add(object, kindOf(object).Name)
	}
	return list
}

// printFleet writes the screen.
func (t *tool) printFleet(view *fleetView, how layout) {
	t.Resultf("%s", view.summary())
	if len(view.members) == 0 {
		t.Resultf("\nNo cluster is a member yet. Register one: kubectl flotilla register NAME --member-context CONTEXT")
	}
	for _, section := range []struct{ title, condition string }{
		{"Stalled until a person acts:", flotillav1.ConditionStalled}, {"Made again after they were gone:", flotillav1.ConditionCopyRecreated},
	} {
		if rows := t.withCondition(view, section.condition); len(rows) > 0 {
			t.Resultf("\n%s", section.title)
			t.listRows([]string{"OBJECT", "REASON", "SINCE", "MESSAGE"}, rows, how.limit(maxUnwell))
		}
	}
	if members := how.selected(view.members); len(members) > 0 {
		t.Resultf("")
		t.printMembers(members, how)
	}
	if rows := t.unwell(view); len(rows) > 0 {
		t.Resultf("\nNot well:")
		t.listRows([]string{"OBJECT", "CLUSTER", "READY", "REASON", "SINCE", "MESSAGE"}, rows, how.limit(maxUnwell))
	}
}

// limit returns the number of rows that are shown at most.
func (l layout) limit(rows int) int {
	if l.all {
		return math.MaxInt
	}
	return rows
}

// selected returns the members to list.
func (l layout) selected(members []flotillav1.MemberCluster) []flotillav1.MemberCluster {
	if l.selector == nil || l.selector.Empty() {
		return members
	}
	return slices.DeleteFunc(slices.Clone(members), func(member flotillav1.MemberCluster) bool { return !l.selector.Matches(labels.Set(member.Labels)) })
}

// listRows writes a table of at most limit rows.
func (t *tool) listRows(header []string, rows [][]console.Cell, limit int) {
	t.Table(header, rows[:min(len(rows), limit)])
	if more := len(rows) - limit; more > 0 {
		t.Resultf("and %d more", more)
	}
}

// summary returns the fleet in one line.
func (v *fleetView) summary() string {
	ready := 0
	for i := range v.members {
		if apimeta.IsStatusConditionTrue(v.members[i].Status.Conditions, flotillav1.ConditionReady) {
			ready++
		}
	}
	parts := []string{fmt.Sprintf("Members %d/%d ready", ready, len(v.members))}
	for _, kind := range fleet.KindNames {
		total, well := 0, 0
		for _, object := range v.objects {
			if kindOf(object).Name != kind {
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
