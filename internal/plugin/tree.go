// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const waysHelp = `

It looks into members by --member-context [CLUSTER=]CONTEXT, else by a context that is called like the member, else by the
registration on the hub, if you may read it. A member that cannot be looked into is shown as the hub knows it.`

func newTree(t *tool) *cobra.Command {
	var cluster string
	c := &cobra.Command{
		Use:   "tree (redis|nodepool)/NAME",
		Short: "Follow an object of the hub down to the nodes",
		Long: `Follow an object of the hub to its copy in each cluster, and from there to what the copy consists of: StatefulSet, Pods
and Nodes, or the Nodes of a pool. SINCE is how long each has been as it is.` + waysHelp,
		Example: `  kubectl flotilla tree redis/cache -n shop
  kubectl flotilla tree nodepool/web -c eu-1`,
		Args:              oneObject,
		ValidArgsFunction: t.completeTargets,
		RunE: func(c *cobra.Command, args []string) error {
			return t.tree(c.Context(), strings.Join(args, "/"), cluster)
		},
	}
	c.Flags().StringVarP(&cluster, "cluster", "c", "", "Only this cluster")
	_ = c.RegisterFlagCompletionFunc("cluster", t.completeClusters)
	t.addMemberContext(c)
	return c
}

func (t *tool) tree(ctx context.Context, argument, only string) error {
	of, err := t.parseTarget(argument)
	if err != nil {
		return err
	}
	hub, err := t.hub()
	if err != nil {
		return err
	}
	object, err := of.read(ctx, hub)
	if err != nil {
		return err
	}
	into, err := t.waysInto(ctx, hub)
	if err != nil {
		return err
	}
	root := ofCondition(of.kind.Name, strings.Trim(of.key.Namespace+"/"+of.key.Name, "/"), *object.GetConditions())
	for _, name := range clustersOf(object, only) {
		below, err := t.clusterBranch(ctx, into, object, of, name)
		if err != nil {
			return err
		}
		root.below = append(root.below, below)
	}
	if only != "" && len(root.below) == 0 {
		return faultf("see "+of.command("tree"), "%s is not placed in %q", of, only)
	}
	t.tellFirst(of.String(), *object.GetConditions())
	t.printTree(root)
	return nil
}

// clustersOf names the clusters that an object is placed in, or is to be.
func clustersOf(object fleet.Object, only string) []string {
	names := slices.Clone(object.GetFleetStatus().PlacedIn)
	for _, entry := range entriesOf(object) {
		names = append(names, entry.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if only == "" {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool { return name != only })
}

// clusterBranch is a cluster as the hub knows it, with the copy below it where it can be looked into.
func (t *tool) clusterBranch(ctx context.Context, into *ways, object fleet.Object, of target, name string) (*branch, error) {
	b := &branch{kind: "Cluster", name: name, ready: metav1.ConditionUnknown}
	for _, entry := range entriesOf(object) {
		if entry.Name == name {
			b.ready, b.reason, b.since, b.detail = entry.Ready, entry.Reason, entry.Since, entry.Message
		}
	}
	member, err := into.hub.memberNamed(ctx, name)
	if err == nil {
		var found *site
		if found, err = into.into(ctx, member); err == nil {
			var below *branch
			if below, err = lookInto(ctx, found, of); err == nil {
				b.below = append(b.below, below)
				return b, nil
			}
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	known := (*fault)(nil)
	if errors.As(err, &known) {
		err = known.err
	}
	b.below = append(b.below, &branch{kind: of.kind.Name, name: of.key.Name, ready: metav1.ConditionUnknown, reason: "NotSeen", detail: text.Line(err.Error())})
	return b, nil
}

// completeTargets offers the objects of the hub: redis/NAME, or NAME behind redis.
func (t *tool) completeTargets(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	hub, err := t.hub()
	if err != nil || len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "/") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
	defer cancel()
	view, err := hub.view(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	namespace, _, err := t.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, object := range view.objects {
		kind := strings.ToLower(kindOf(object))
		switch {
		case object.GetNamespace() != "" && object.GetNamespace() != namespace:
		case len(args) == 0:
			names = append(names, kind+"/"+object.GetName())
		case strings.EqualFold(args[0], kind):
			names = append(names, object.GetName())
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeClusters offers the names of the members for a flag.
func (t *tool) completeClusters(c *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return t.completeMembers(c, nil, toComplete)
}
