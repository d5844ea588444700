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

// Published is what is known about a member that has only been published so far. A registration that has not been read
// yet after a start must not look like one that is gone.
func Published(object *flotillav1.MemberCluster) Member {
	return Member{
		Name:     object.Name,
		Labels:   object.Labels,
		Accepted: object.Status.UID != "",
		Serves:   true,
		Reason:   flotillav1.ReasonClusterNotReady,
		Message:  "The registration has not been read yet",
	}
}

// Members adds to the members that this process knows, which are sorted by name, those that have only been published so far.
func Members(known []Member, published []flotillav1.MemberCluster) []Member {
	members := known
	for i := range published {
		if _, found := Find(known, published[i].Name); !found {
			members = append(members, Published(&published[i]))
		}
	}
	if len(members) > len(known) {
		slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
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

// Choice is a placement that can be asked about one member at a time. The zero value chooses none.
type Choice struct {
	names     map[string]bool
	selector  labels.Selector
	namespace string
}

// NewChoice reads a placement of a hub object in that namespace; nil chooses none. A selector that does not parse is an error.
func NewChoice(placement *flotillav1.Placement, namespace string) (Choice, error) {
	choice := Choice{namespace: namespace}
	if placement == nil {
		return choice, nil
	}
	switch {
	case placement.All:
		choice.selector = labels.Everything()
	case placement.ClusterSelector != nil:
		parsed, err := parseSelector(placement.ClusterSelector)
		if err != nil {
			return choice, fmt.Errorf("parsing clusterSelector: %w", err)
		}
		choice.selector = parsed
	}
	choice.names = make(map[string]bool, len(placement.Clusters))
	for _, name := range placement.Clusters {
		choice.names[name] = true
	}
	return choice, nil
}

// Hash identifies the choice. It depends on nothing but clusters, clusterSelector and all of the placement, and not on the
// order in which a person writes names and requirements.
func (c Choice) Hash() string {
	var requirements []string
	if c.selector != nil {
		selectable, _ := c.selector.Requirements()
		for _, requirement := range selectable {
			requirements = append(requirements, requirement.String())
		}
		slices.Sort(requirements)
	}
	// Strings can always be encoded.
	hash, _ := hashOf(map[string]any{
		"clusters": slices.Sorted(maps.Keys(c.names)), "selector": requirements, "selects": c.selector != nil,
	})
	return hash
}

// Names reports whether the placement gives a name, which counts whether it is registered or not.
func (c Choice) Names(name string) bool { return c.names[name] }

// Takes reports whether a registered member is chosen: it matches, and is not draining.
func (c Choice) Takes(member Member, placed bool) bool {
	return !member.Draining && c.Matches(member, placed)
}

// Matches reports whether a registered member matches; placed says that it may have a copy.
//
// A member that has a copy stays accepted for this object: that its registration is in doubt is no reason to take the copy
// away. A selector does not choose a member that lets objects of the namespace not be placed
// there, unless it has a copy: that one stays, and whoever applies refuses to touch it. A name is a wish that is answered
// with a refusal.
func (c Choice) Matches(member Member, placed bool) bool {
	if c.names[member.Name] {
		return true
	}
	accepted := placed || member.Accepted && member.Allows(c.namespace)
	return accepted && member.Serves && c.selector != nil && c.selector.Matches(labels.Set(member.Labels))
}

// Choose returns the names of all that are chosen, sorted: members, and names that nobody has registered. members and
// placedIn are all that there are; members are sorted by name.
func (c Choice) Choose(members []Member, placedIn []string) []string {
	if !slices.IsSorted(placedIn) {
		placedIn = slices.Sorted(slices.Values(placedIn))
	}
	var chosen []string
	for i := range members {
		_, placed := slices.BinarySearch(placedIn, members[i].Name)
		if c.Takes(members[i], placed) {
			chosen = append(chosen, members[i].Name)
		}
	}
	for name := range c.names {
		if _, registered := Find(members, name); !registered {
			chosen = append(chosen, name)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// Choose returns the names of the members that a placement chooses, sorted.
func Choose(placement *flotillav1.Placement, namespace string, members []Member, placedIn []string) ([]string, error) {
	choice, err := NewChoice(placement, namespace)
	if err != nil {
		return nil, err
	}
	return choice.Choose(members, placedIn), nil
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
