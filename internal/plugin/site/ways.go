// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// Policy is what a registration is accepted by. A hub may be configured to be stricter.
var Policy = registration.Policy{AllowSystemRoots: true, AllowProxyURL: true}

// Ways lead into the members of a hub.
type Ways struct {
	Hub *Site
	// ContextsOnly leaves out the registrations.
	ContextsOnly bool

	access *Access
	// named are the contexts that were given for a member, by its name, and byUID the clusters of the others.
	named map[string]string
	byUID map[types.UID]*Site
}

// WaysInto prepares the ways into members that the flags name.
func (a *Access) WaysInto(ctx context.Context, hub *Site) (*Ways, error) {
	w := &Ways{Hub: hub, access: a, named: map[string]string{}, byUID: map[types.UID]*Site{}}
	for _, given := range a.memberContexts {
		if name, contextName, found := strings.Cut(given, "="); found {
			w.named[name] = contextName
			continue
		}
		member, err := a.ByContext(given)
		if err != nil {
			return nil, err
		}
		uid, err := member.Identity(ctx)
		if err != nil {
			return nil, err
		}
		w.byUID[uid] = member
	}
	return w, nil
}

// Into returns a member by the first way that exists. It refuses a cluster that is not the member.
func (w *Ways) Into(ctx context.Context, member *flotillav1.MemberCluster) (*Site, error) {
	found, err := w.choose(ctx, member)
	if err != nil {
		return nil, err
	}
	return found, found.MustBe(ctx, member)
}

// ByContext returns a member by a context of the kubeconfig, for what the hub may not do there. It refuses a cluster that is
// not the member.
func (w *Ways) ByContext(ctx context.Context, member *flotillav1.MemberCluster) (*Site, error) {
	found, err := w.context(member)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, console.Faultf("pass --member-context "+member.Name+"=CONTEXT", "no context leads to member %q", member.Name)
	}
	return found, found.MustBe(ctx, member)
}

func (w *Ways) choose(ctx context.Context, member *flotillav1.MemberCluster) (*Site, error) {
	if found, err := w.context(member); found != nil || err != nil {
		return found, err
	}
	if w.ContextsOnly {
		return nil, console.Faultf("pass --member-context "+member.Name+"=CONTEXT, or --registrations if you may read them",
			"no context of your kubeconfig is called %q", member.Name)
	}
	return w.byRegistration(ctx, member)
}

// context returns a member by a context of the kubeconfig; nil if none leads there.
func (w *Ways) context(member *flotillav1.MemberCluster) (*Site, error) {
	if contextName, found := w.named[member.Name]; found {
		return w.access.ByContext(contextName)
	}
	if found := w.byUID[types.UID(member.Status.UID)]; found != nil && member.Status.UID != "" {
		return found, nil
	}
	raw, err := w.access.MemberConfig("").RawConfig()
	if err == nil && raw.Contexts[member.Name] != nil {
		return w.access.ByContext(member.Name)
	}
	return nil, nil
}

// ByRegistration returns a member with the credential of the hub. It refuses a cluster that is not the member.
func (w *Ways) ByRegistration(ctx context.Context, member *flotillav1.MemberCluster) (*Site, error) {
	found, err := w.byRegistration(ctx, member)
	if err != nil {
		return nil, err
	}
	return found, found.MustBe(ctx, member)
}

func (w *Ways) byRegistration(ctx context.Context, member *flotillav1.MemberCluster) (*Site, error) {
	secret, err := w.Hub.Registration(ctx, member)
	if err != nil {
		return nil, err
	}
	instead := "pass --member-context " + member.Name + "=CONTEXT"
	credential, err := registration.Accept(secret, Policy)
	if err != nil {
		return nil, console.Faultf("correct the registration, or "+instead, "member %q: %w", member.Name, err)
	}
	link, err := transport.NewLink(credential, clock.RealClock{}, transport.Limits{})
	if err != nil {
		return nil, console.Faultf("correct the registration, or "+instead, "member %q: %w", member.Name, err)
	}
	// The link authenticates requests and sends them to the server of the credential only.
	config := &rest.Config{Host: "https://" + credential.Endpoint(), Transport: link}
	found, err := New(config, fmt.Sprintf("member %q (through its registration)", member.Name), instead)
	if err != nil {
		return nil, err
	}
	found.ByRegistration = true
	return found, nil
}

// LookAround reads the members from the hub and prepares the ways into them.
func (a *Access) LookAround(ctx context.Context) (*Ways, []flotillav1.MemberCluster, error) {
	hub, err := a.Hub()
	if err != nil {
		return nil, nil, err
	}
	members, err := hub.Members(ctx)
	if err != nil {
		return nil, nil, err
	}
	ways, err := a.WaysInto(ctx, hub)
	return ways, members, err
}
