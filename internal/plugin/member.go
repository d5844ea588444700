// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// ways lead into members: contexts that were named for one, and those of which only the cluster says for which they are.
type ways struct {
	tool  *tool
	hub   *site
	named map[string]string
	byUID map[types.UID]*site
}

// waysInto prepares the ways into members that the flags name.
func (t *tool) waysInto(ctx context.Context, hub *site) (*ways, error) {
	w := &ways{tool: t, hub: hub, named: map[string]string{}, byUID: map[types.UID]*site{}}
	for _, given := range t.memberContexts {
		if name, contextName, found := strings.Cut(given, "="); found {
			w.named[name] = contextName
			continue
		}
		member, err := t.memberByContext(given)
		if err != nil {
			return nil, err
		}
		uid, err := member.identity(ctx)
		if err != nil {
			return nil, err
		}
		w.byUID[uid] = member
	}
	return w, nil
}

// into returns a member by the first way that there is. The cluster is made sure to be the member.
func (w *ways) into(ctx context.Context, member *flotillav1.MemberCluster) (*site, error) {
	found, err := w.choose(ctx, member)
	if err != nil {
		return nil, err
	}
	return found, found.mustBe(ctx, member)
}

func (w *ways) choose(ctx context.Context, member *flotillav1.MemberCluster) (*site, error) {
	if contextName, found := w.named[member.Name]; found {
		return w.tool.memberByContext(contextName)
	}
	if found := w.byUID[types.UID(member.Status.UID)]; found != nil && member.Status.UID != "" {
		return found, nil
	}
	raw, err := w.tool.memberConfig("").RawConfig()
	if err == nil && raw.Contexts[member.Name] != nil {
		return w.tool.memberByContext(member.Name)
	}
	return w.byRegistration(ctx, member)
}

// byRegistration returns a member as the hub reaches it.
func (w *ways) byRegistration(ctx context.Context, member *flotillav1.MemberCluster) (*site, error) {
	secret, err := w.hub.registration(ctx, member)
	if err != nil {
		return nil, err
	}
	config, err := clusters.RegistrationConfig(secret, clusters.Policy{AllowSystemRoots: true, AllowProxyURL: true})
	if err != nil {
		return nil, faultf("correct the registration, or pass --member-context "+member.Name+"=CONTEXT", "member %q: %w", member.Name, err)
	}
	return newSite(config, fmt.Sprintf("member %q (through its registration)", member.Name), "pass --member-context "+member.Name+"=CONTEXT")
}
