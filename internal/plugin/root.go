// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/membership"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// tool is what all commands share.
type tool struct {
	*console.Console
	*site.Access
}

// Run runs the plugin and returns the exit code. version is what --version prints.
func Run(ctx context.Context, version string, args []string, streams genericiooptions.IOStreams) int {
	root := NewCommand(streams, clock.RealClock{})
	root.Version = version
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, console.ErrReported):
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(streams.ErrOut, "error: interrupted")
	default:
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", text.Line(suggestion(err.Error())))
	}
	return 1
}

// NewCommand returns the command with everything below it.
func NewCommand(streams genericiooptions.IOStreams, clk clock.Clock) *cobra.Command {
	root := &cobra.Command{
		Use:   "flotilla",
		Short: "Register members, and see and explain the fleet",
		Long: `Register members of a Flotilla hub, and see and explain the fleet.

The hub is the cluster of the current context of your kubeconfig, or of --kubeconfig and --context.

Commands that look into members (tree, why, diff, doctor, prune) reach each member in the first of these ways that exists:
  1. --member-context [CLUSTER=]CONTEXT: a context of your kubeconfig
  2. a context of your kubeconfig with the name of the member
  3. the registration Secret on the hub, if you may read it: you then act with the hub's own rights there
A cluster that is not the one that the hub knows by this name is refused.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl flotilla"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	t := &tool{Console: console.New(streams, clk), Access: site.NewAccess(root)}
	commands := membership.Commands(t.Console, t.Access)
	for _, newCommand := range []func(*tool) *cobra.Command{
		newStatus, newDashboard, newExpiries, newRBAC, newPause, newResume, newDrain, newUndrain, newRollout, newHeld, newConfirm,
		newRelease, newTree, newWhy, newDiff, newPrune, newDetach, newDoctor, newVersion,
	} {
		commands = append(commands, newCommand(t))
	}
	for _, command := range commands {
		command.DisableFlagsInUseLine = true
		root.AddCommand(command)
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	})
	return root
}

func newVersion(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  cobra.NoArgs,
		Run:   func(c *cobra.Command, _ []string) { t.Resultf("%s", c.Root().Version) },
	}
}

// suggestion turns cobra's message about an unknown command into one sentence.
func suggestion(text string) string {
	unknown, names, found := strings.Cut(text, "\n\nDid you mean this?\n")
	if !found {
		return text
	}
	return unknown + "; did you mean " + strings.Join(strings.Fields(names), " or ") + "?"
}

// addCluster adds --cluster to a command that can be limited to a member.
func (t *tool) addCluster(c *cobra.Command, cluster *string, usage string) {
	c.Flags().StringVarP(cluster, "cluster", "c", "", usage)
	_ = c.RegisterFlagCompletionFunc("cluster", t.CompleteMembers)
}
