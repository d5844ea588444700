// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package membership has the commands with which a cluster becomes a member, gets another credential or other manifests, and
// leaves.
package membership

import (
	"github.com/spf13/cobra"

	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// tool is what the commands share.
type tool struct {
	*console.Console
	*site.Access
}

// Commands returns the commands.
func Commands(streams *console.Console, access *site.Access) []*cobra.Command {
	t := &tool{Console: streams, Access: access}
	return []*cobra.Command{newRegister(t), newUnregister(t), newRotate(t), newUpgradeMember(t)}
}

// credentialFlags are the flags of commands that make a credential in a member.
type credentialFlags struct {
	context, output string
	lifetime        lifetimeFlag
}

// addCredential adds the flags of a command that makes a credential in a member.
func (t *tool) addCredential(c *cobra.Command, to *credentialFlags) {
	c.Flags().StringVar(&to.context, "member-context", "", "Context of an administrator of the member (required)")
	c.Flags().DurationVar(&to.lifetime.wanted, "token-lifetime", wantedLifetime, lifetimeUsage)
	c.Flags().StringVarP(&to.output, "output", "o", "", "yaml or json: print the registration, credential included, instead of writing it")
	_ = c.RegisterFlagCompletionFunc("member-context", t.CompleteContexts)
}

// check refuses values that cannot be used.
func (f *credentialFlags) check() error {
	if f.context == "" {
		return console.Faultf("name a context of an administrator of the member; kubectl config get-contexts lists them", "--member-context is missing")
	}
	if f.output != "" && f.output != "yaml" && f.output != "json" {
		return console.BadOutput(f.output, "json", "yaml")
	}
	return nil
}
