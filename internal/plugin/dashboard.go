// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/dashboard"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

func newDashboard(t *tool) *cobra.Command {
	var noOpen, registrations bool
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Show the fleet in a browser, live",
		Long: `Show the fleet in your browser, live: the members as tiles, what is not well and why, each object with its clusters and its rollout.

The page comes from this command, at a port of 127.0.0.1 and to your browser only, and has your rights: it reads from the hub and
writes nothing. Nothing is installed on the hub. The command goes on until it is interrupted, or nobody has looked for 12 hours.

To explain an object in a cluster the page looks into that cluster as kubectl flotilla why does, by --member-context
[CLUSTER=]CONTEXT or by a context with the name of the member; with --registrations also by the registration on the hub, if you
may read it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return t.dashboard(c.Context(), noOpen, registrations, commandFlags(c))
		},
	}
	c.Flags().BoolVar(&noOpen, "no-open", false, "Only print the address of the page")
	c.Flags().BoolVar(&registrations, "registrations", false, "Look into members by their registrations too, with the rights of the hub there")
	t.AddMemberContexts(c)
	return c
}

func (t *tool) dashboard(ctx context.Context, noOpen, registrations bool, flags string) error {
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	// What cannot be read is told in a sentence, before anything is watched.
	if err := t.readSome(ctx, hub); err != nil {
		return err
	}
	watching, err := t.Watching()
	if err != nil {
		return err
	}
	ways, err := t.WaysInto(ctx, hub)
	if err != nil {
		return err
	}
	ways.ContextsOnly = !registrations
	var opener opener
	defer opener.remove()
	server := dashboard.New(dashboard.Options{
		Hub: watching, Sayings: &sayings{tool: t, ways: ways}, Clock: t.Clock, CommandFlags: flags,
		Opened: func(address string) {
			t.Resultf("The fleet is at %s", address)
			t.Notef("The address is for you alone; interrupt the command to end it.")
			if noOpen {
				return
			}
			if err := opener.open(ctx, address); err != nil {
				t.Notef("No browser could be started (%v): open the address yourself.", err)
			}
		},
	})
	err = server.Run(ctx)
	if errors.Is(err, dashboard.ErrIdle) {
		t.Notef("%s: the command ends", err)
		return nil
	}
	if ctx.Err() != nil {
		// An interruption is how it ends.
		return nil
	}
	return err
}

// readSome lists one of everything that the page needs.
func (t *tool) readSome(ctx context.Context, hub *site.Site) error {
	lists := []client.ObjectList{&flotillav1.MemberClusterList{}}
	for _, kind := range placedKinds {
		if list, ok := kind.NewList().(client.ObjectList); ok {
			lists = append(lists, list)
		}
	}
	for _, list := range lists {
		if err := hub.List(ctx, list, client.Limit(1)); err != nil {
			return hub.Explain("listing what the page shows", err)
		}
	}
	return nil
}

// commandFlags returns the flags that chose the hub, for commands that the page offers.
func commandFlags(c *cobra.Command) string {
	var flags []string
	for _, name := range []string{"kubeconfig", "context"} {
		if flag := c.Flag(name); flag != nil && flag.Changed {
			flags = append(flags, "--"+name+"="+quoted(flag.Value.String()))
		}
	}
	return strings.Join(flags, " ")
}

// quoted returns a text as one word of a shell.
func quoted(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if text != "" && !slices.ContainsFunc([]rune(text), func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// opener opens a browser.
type opener struct{ folder string }

// leading is a page that leads to another.
var leading = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={{.}}"><title>Flotilla</title>`))

// open opens the browser at an address. The address has a token, and everybody on the machine can read the arguments of a
// program: the browser is given a file that only the user can read.
func (o *opener) open(ctx context.Context, address string) error {
	folder, err := os.MkdirTemp("", "kubectl-flotilla-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	o.folder = folder
	path := filepath.Join(folder, "open.html")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // The folder is new.
	if err != nil {
		return fmt.Errorf("making a file: %w", err)
	}
	if err := errors.Join(leading.Execute(file, address), file.Close()); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	program := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		program = []string{"open"}
	case "windows":
		program = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	browser := exec.CommandContext(ctx, program[0], append(program[1:], path)...)
	if err := browser.Start(); err != nil {
		return fmt.Errorf("starting it: %w", err)
	}
	go func() { _ = browser.Wait() }()
	return nil
}

// remove removes the file.
func (o *opener) remove() {
	if o.folder != "" {
		_ = os.RemoveAll(o.folder)
	}
}
