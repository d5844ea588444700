// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Member is what placement and roll-up need to know about a registered member.
type Member struct {
	Name   string
	Labels map[string]string
	// Accepted says that the registration has been accepted, now or before: selectors choose no others.
	Accepted bool
	// Serves says that the member takes part in the kind.
	Serves bool
	// Namespaces lists the namespaces of the hub that may place there, with "" for cluster-scoped objects; nil is all.
	Namespaces []string
	// Draining says that the member's copies are to be removed.
	Draining bool
	// Decided says that this process has found out whether the member can be seen.
	Decided bool
	// Visible says that the member's caches show it as it is now.
	Visible bool
	// Writable says that placement may write to the member now.
	Writable bool
	// Reason and Message say why the member is not visible; the reason is one of a cluster entry.
	Reason, Message string
}

// Allows reports whether hub objects of a namespace may be placed in the member; that of cluster-scoped ones is empty.
func (m Member) Allows(namespace string) bool {
	return m.Namespaces == nil || slices.Contains(m.Namespaces, namespace)
}

// Members adds to the members that this process knows those that have only been published so far. A registration that
// has not been read yet after a start must not look like one that is gone.
func Members(known []Member, published []flotillav1.MemberCluster) []Member {
	byName := make(map[string]Member, len(known)+len(published))
	for i := range published {
		object := &published[i]
		byName[object.Name] = Member{
			Name:     object.Name,
			Labels:   object.Labels,
			Accepted: object.Status.UID != "",
			Serves:   true,
			Reason:   flotillav1.ReasonClusterNotReady,
			Message:  "The registration has not been read yet",
		}
	}
	for _, member := range known {
		byName[member.Name] = member
	}
	members := make([]Member, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		members = append(members, byName[name])
	}
	return members
}

// Find returns the member of that name. members are sorted by name.
func Find(members []Member, name string) (Member, bool) {
	i, found := slices.BinarySearchFunc(members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return Member{}, false
	}
	return members[i], true
}

// Choose returns the names of the members that a placement chooses, sorted. A name counts whether it is registered or
// not; selectors choose accepted registrations only. A member that has a copy stays accepted for this object: that its
// registration is in doubt is no reason to take the copy away. A draining member is not chosen.
//
// A selector does not choose a member that lets objects of the namespace not be placed there, unless it has a copy: that
// one stays, and whoever applies refuses to touch it. A name is a wish that is answered with a refusal.
func Choose(placement *flotillav1.Placement, namespace string, members []Member, placedIn []string) ([]string, error) {
	if placement == nil {
		return nil, nil
	}
	selector := labels.Nothing()
	switch {
	case placement.All:
		selector = labels.Everything()
	case placement.ClusterSelector != nil:
		parsed, err := parseSelector(placement.ClusterSelector)
		if err != nil {
			return nil, fmt.Errorf("parsing clusterSelector: %w", err)
		}
		selector = parsed
	}
	chosen := make(map[string]bool, len(placement.Clusters))
	for _, name := range placement.Clusters {
		chosen[name] = true
	}
	for _, member := range members {
		accepted := member.Accepted && member.Allows(namespace) || slices.Contains(placedIn, member.Name)
		if accepted && member.Serves && selector.Matches(labels.Set(member.Labels)) {
			chosen[member.Name] = true
		}
		if member.Draining {
			delete(chosen, member.Name)
		}
	}
	return slices.Sorted(maps.Keys(chosen)), nil
}

// parseSelector refuses an empty selector, which would choose everything.
func parseSelector(selector *metav1.LabelSelector) (labels.Selector, error) {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	if parsed.Empty() {
		return labels.Nothing(), nil
	}
	return parsed, nil
}
