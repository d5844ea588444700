// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// MembersHelp ends the help of commands that look into members.
const MembersHelp = `

It reaches a member by --member-context [CLUSTER=]CONTEXT, else by a context with the name of the member, else by the
registration on the hub, if you may read it. A member that cannot be reached is shown as the hub knows it.`

// Access finds the hub and the members by the flags of a command.
type Access struct {
	// Flags are the flags that every kubectl command has.
	Flags *genericclioptions.ConfigFlags
	// Registrations is the namespace of the registrations on the hub.
	Registrations string

	memberKubeconfig string
	memberContexts   []string
	// loaded returns the kubeconfig for members, which is read once: it may have a context for each of a thousand.
	loaded func() (*clientcmdapi.Config, error)
}

// NewAccess returns an Access whose flags are those of all commands below root.
func NewAccess(root *cobra.Command) *Access {
	a := &Access{Flags: genericclioptions.NewConfigFlags(true)}
	a.loaded = sync.OnceValues(func() (*clientcmdapi.Config, error) { return a.memberRules().Load() })
	flags := root.PersistentFlags()
	a.Flags.AddFlags(flags)
	flags.StringVar(&a.Registrations, "registration-namespace", flotillav1.RegistrationNamespace, "Namespace of the registrations on the hub")
	flags.StringVar(&a.memberKubeconfig, "member-kubeconfig", "", "Kubeconfig with the contexts of members; the hub's if empty")
	return a
}

// AddMemberContexts adds --member-context to a command that looks into members.
func (a *Access) AddMemberContexts(c *cobra.Command) {
	c.Flags().StringArrayVar(&a.memberContexts, "member-context", nil,
		"[CLUSTER=]CONTEXT: the context of your kubeconfig for a member; may be repeated. See kubectl flotilla --help for the other ways")
	_ = c.RegisterFlagCompletionFunc("member-context", a.CompleteContexts)
}

// Hub returns the cluster of the current context.
func (a *Access) Hub() (*Site, error) {
	config, called, err := a.hubConfig()
	if err != nil {
		return nil, err
	}
	return New(config, called, hubRemedy)
}

// hubRemedy is what the user can do when the hub cannot be used.
const hubRemedy = "choose the hub with --kubeconfig and --context"

// hubConfig returns the config of the current context, and how messages call the hub.
func (a *Access) hubConfig() (*rest.Config, string, error) {
	config, err := a.Flags.ToRESTConfig()
	if err != nil {
		return nil, "", console.Faultf("set --kubeconfig and --context to those of the hub", "loading the kubeconfig: %w", err)
	}
	return config, fmt.Sprintf("the hub (context %q)", a.HubContext()), nil
}

// HubContext returns the name of the current context.
func (a *Access) HubContext() string {
	if name := *a.Flags.Context; name != "" {
		return name
	}
	raw, err := a.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

// Namespace returns the namespace of the current context, or of --namespace.
func (a *Access) Namespace() (string, error) {
	namespace, _, err := a.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace of the context: %w", err)
	}
	return namespace, nil
}

// MemberConfig loads a context of the kubeconfig for members.
func (a *Access) MemberConfig(contextName string) clientcmd.ClientConfig {
	rules, overrides := a.memberRules(), &clientcmd.ConfigOverrides{CurrentContext: contextName}
	config, err := a.loaded()
	if err != nil {
		// It fails again, where the error can be returned.
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	}
	return clientcmd.NewNonInteractiveClientConfig(*config, contextName, overrides, rules)
}

func (a *Access) memberRules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cmp.Or(a.memberKubeconfig, *a.Flags.KubeConfig)
	return rules
}

// ByContext returns the cluster of a context of the kubeconfig for members.
func (a *Access) ByContext(contextName string) (*Site, error) {
	config, err := a.MemberConfig(contextName).ClientConfig()
	remedy := "choose another --member-context (or --member-kubeconfig)"
	if err != nil {
		return nil, console.Faultf(remedy+"; kubectl config get-contexts lists them", "loading context %q: %w", contextName, err)
	}
	return New(config, fmt.Sprintf("the member (context %q)", contextName), remedy)
}

// CompleteContexts completes the contexts of the kubeconfig for members.
func (a *Access) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := a.MemberConfig("").RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// CompleteMembers completes the names of members in a flag.
func (a *Access) CompleteMembers(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.CompleteFromHub(c, memberNames)
}

// CompleteMember completes the name of a member as the first argument.
func (a *Access) CompleteMember(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.CompleteFromHub(c, memberNames)
}

// CompleteFromHub completes what is read from the hub. A hub that cannot be read completes nothing.
func (a *Access) CompleteFromHub(c *cobra.Command, read func(ctx context.Context, hub *Site) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	hub, err := a.Hub()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(c.Context(), RequestTimeout)
	defer cancel()
	names, err := read(ctx, hub)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
