// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

func newTree(t *tool) *cobra.Command {
	var cluster, output string
	c := &cobra.Command{
		Use:   "tree (redis|nodepool)/NAME",
		Short: "Follow an object of the hub down to the nodes",
		Long: `Follow an object of the hub to its copy in each cluster, and from there to what the copy consists of: StatefulSet, Pods
and Nodes, or the Nodes of a pool. SINCE is how long each has been in its state.` + site.MembersHelp,
		Example: `  kubectl flotilla tree redis/cache -n shop
  kubectl flotilla tree nodepool/web -c eu-1`,
		Args:              oneObject,
		ValidArgsFunction: t.completeTargets,
		RunE: func(c *cobra.Command, args []string) error {
			return t.tree(c.Context(), strings.Join(args, "/"), cluster, output)
		},
	}
	t.addCluster(c, &cluster, "Only this cluster")
	addOutput(c, &output)
	t.AddMemberContexts(c)
	return c
}

func (t *tool) tree(ctx context.Context, argument, only, output string) error {
	of, object, ways, err := t.find(ctx, argument)
	if err != nil {
		return err
	}
	root := of.branch(object)
	names := clustersOf(object)
	if only != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return name != only })
	}
	unknown := map[string]bool{}
	for _, entry := range entriesOf(object) {
		unknown[entry.Name] = entry.Ready == metav1.ConditionUnknown
	}
	site.AtOnce(ctx, len(names), func(i int) bool { return unknown[names[i]] },
		func(ctx context.Context, i int) *branch { return clusterBranch(ctx, ways, object, of, names[i]) },
		func(_ int, below *branch) { root.below = append(root.below, below) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if only != "" && len(root.below) == 0 {
		return console.Faultf("see "+of.command("tree"), "%s is not placed in %q", of, only)
	}
	if output != "" {
		return t.PrintValue(output, root.items())
	}
	t.tellFirst(of.String(), *object.GetConditions())
	t.printTree(root)
	return nil
}

// find reads the object that an argument names from the hub, and prepares the ways into members.
func (t *tool) find(ctx context.Context, argument string) (target, fleet.Object, *site.Ways, error) {
	of, hub, err := t.onHub(argument)
	if err != nil {
		return of, nil, nil, err
	}
	object, err := of.read(ctx, hub)
	if err != nil {
		return of, nil, nil, err
	}
	ways, err := t.WaysInto(ctx, hub)
	return of, object, ways, err
}

// clusterBranch returns a cluster as the hub knows it, with the copy below it. A copy that cannot be read is NotSeen.
func clusterBranch(ctx context.Context, ways *site.Ways, object fleet.Object, of target, name string) *branch {
	b := &branch{kind: "Cluster", name: name, ready: metav1.ConditionUnknown}
	for _, entry := range entriesOf(object) {
		if entry.Name == name {
			b.ready, b.reason, b.since, b.detail = entry.Ready, entry.Reason, entry.Since, entry.Message
		}
	}
	member, err := ways.Hub.Member(ctx, name)
	if err == nil {
		var found *site.Site
		if found, err = ways.Into(ctx, member); err == nil {
			var below *branch
			if below, err = lookInto(ctx, found, of); err == nil {
				b.below = append(b.below, below)
				return b
			}
		}
	}
	detail, _ := console.Split(err)
	b.below = append(b.below, &branch{kind: of.kind.Name, name: of.key.Name, ready: metav1.ConditionUnknown, reason: "NotSeen", detail: detail})
	return b
}
