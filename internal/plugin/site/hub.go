// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Members lists the MemberClusters of a hub by name.
func (s *Site) Members(ctx context.Context) ([]flotillav1.MemberCluster, error) {
	list := &flotillav1.MemberClusterList{}
	if err := s.List(ctx, list); err != nil {
		return nil, s.Explain("listing MemberClusters", err)
	}
	slices.SortFunc(list.Items, func(a, b flotillav1.MemberCluster) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// memberNames lists the names of the members of a hub.
func memberNames(ctx context.Context, hub *Site) ([]string, error) {
	members, err := hub.Members(ctx)
	names := make([]string, 0, len(members))
	for i := range members {
		names = append(names, members[i].Name)
	}
	return names, err
}

// Member returns a MemberCluster of a hub. If there is none of this name, the error lists those that exist.
func (s *Site) Member(ctx context.Context, name string) (*flotillav1.MemberCluster, error) {
	member := &flotillav1.MemberCluster{}
	err := s.Get(ctx, client.ObjectKey{Name: name}, member)
	if !apierrors.IsNotFound(err) {
		return member, s.Explain(fmt.Sprintf("reading MemberCluster %q", name), err)
	}
	names, err := memberNames(ctx, s)
	if err != nil {
		return nil, err
	}
	remedy := "no member is registered here: see kubectl flotilla register --help, or check the context"
	if len(names) > 0 {
		remedy = "name one of " + text.List(names, 10)
	}
	return nil, console.Faultf(remedy, "no member is called %q", name)
}

// Registration returns the registration Secret of a member on its hub.
func (s *Site) Registration(ctx context.Context, member *flotillav1.MemberCluster) (*corev1.Secret, error) {
	ref := member.Spec.SecretRef
	secret := &corev1.Secret{}
	err := s.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, secret)
	return secret, s.Explain(fmt.Sprintf("reading the registration, Secret %s/%s", ref.Namespace, ref.Name), err)
}

// Events are events by UID and version: a repeated event has the same UID and another version.
type Events map[string]eventsv1.Event

// EventsOf returns the events with a reason about an object.
func (s *Site) EventsOf(ctx context.Context, name, reason string) (Events, error) {
	list := &eventsv1.EventList{}
	if err := s.List(ctx, list, client.MatchingFields{"reason": reason}); err != nil {
		return nil, s.Explain("listing events", err)
	}
	events := Events{}
	for i := range list.Items {
		if list.Items[i].Regarding.Name == name {
			events[string(list.Items[i].UID)+"/"+list.Items[i].ResourceVersion] = list.Items[i]
		}
	}
	return events, nil
}

// Since returns the events that were not there before.
func (e Events) Since(before Events) []eventsv1.Event {
	var fresh []eventsv1.Event
	for key, event := range e {
		if _, known := before[key]; !known {
			fresh = append(fresh, event)
		}
	}
	return fresh
}

// Annotate sets an annotation of a MemberCluster, or removes it.
func (s *Site) Annotate(ctx context.Context, member *flotillav1.MemberCluster, annotation string, set bool) error {
	before := member.DeepCopy()
	if set {
		metav1.SetMetaDataAnnotation(&member.ObjectMeta, annotation, "true")
	} else {
		delete(member.Annotations, annotation)
	}
	return s.Explain("annotating MemberCluster "+member.Name, s.Patch(ctx, member, client.MergeFrom(before), Person))
}
