// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/text"
)

// errSaid says that a command has failed and has already told everything.
var errSaid = errors.New("already told")

// Run runs the plugin and returns the exit code. version is what --version prints.
func Run(ctx context.Context, version string, args []string, streams genericiooptions.IOStreams) int {
	root := NewCommand(streams, clock.RealClock{})
	root.Version = version
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSaid):
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(streams.ErrOut, "error: interrupted")
	default:
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", text.Line(suggestion(err.Error())))
	}
	return 1
}

// NewCommand returns the command with everything below it.
func NewCommand(streams genericiooptions.IOStreams, clk clock.Clock) *cobra.Command {
	t := &tool{IOStreams: streams, clock: clk, flags: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:   "flotilla",
		Short: "Register members, and see and explain the fleet",
		Long: `Register members of a Flotilla hub, and see and explain the fleet.

The hub is the cluster of the current context of your kubeconfig, or what --kubeconfig and --context say.

Commands that look into members (tree, why, diff, doctor, prune) get there, for each member, in the first of these ways
that there is, and never guess further:
  1. --member-context [CLUSTER=]CONTEXT: a context of your kubeconfig
  2. a context of your kubeconfig that is called like the member
  3. the registration Secret on the hub, if you may read it: you then act with the hub's own rights there
A cluster that is not the one which the hub knows by that name is refused, whichever way leads to it.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl flotilla"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	t.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&t.registrations, "registration-namespace", "flotilla-clusters", "Namespace of the registrations on the hub")
	root.PersistentFlags().StringVar(&t.memberKubeconfig, "member-kubeconfig", "", "Kubeconfig with the contexts of members; the hub's if empty")
	for _, add := range []func(*tool) *cobra.Command{
		newRegister, newUnregister, newRotate, newStatus, newExpiries, newRBAC, newTree, newWhy,
		newDiff, newPrune, newDetach, newDoctor, newVersion,
	} {
		command := add(t)
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
		Run:   func(c *cobra.Command, _ []string) { t.tell("%s", c.Root().Version) },
	}
}

// suggestion makes one sentence of cobra's message about a command that it does not know.
func suggestion(text string) string {
	unknown, names, found := strings.Cut(text, "\n\nDid you mean this?\n")
	if !found {
		return text
	}
	return unknown + "; did you mean " + strings.Join(strings.Fields(names), " or ") + "?"
}

// fault is an error that says what to do.
type fault struct {
	err    error
	remedy string
}

// Error implements error.
func (f *fault) Error() string { return text.Line(f.err.Error()) + "; " + f.remedy }

// Unwrap implements the interface of errors.
func (f *fault) Unwrap() error { return f.err }

// faultf makes a fault; the remedy comes first.
func faultf(remedy, format string, args ...any) error {
	return &fault{err: fmt.Errorf(format, args...), remedy: remedy}
}

// exactlyOne takes one argument, which is called like that in the usage.
func exactlyOne(usage string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s is needed, and nothing else; see %s --help", usage, c.CommandPath())
		}
		return nil
	}
}

// oneObject takes redis/NAME, or the same as two arguments, as kubectl does.
func oneObject(c *cobra.Command, args []string) error {
	if len(args) == 1 || len(args) == 2 && !strings.Contains(args[0], "/") {
		return nil
	}
	return fmt.Errorf("redis/NAME or nodepool/NAME is needed, and nothing else; see %s --help", c.CommandPath())
}

// readInput reads a file, or standard input for "-".
func (t *tool) readInput(path string) ([]byte, error) {
	if path == "-" {
		return readAll(t.In)
	}
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, faultf("give a file that can be read with -f", "reading the file: %w", err)
	}
	return content, nil
}
