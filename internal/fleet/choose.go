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

// Member describes a registered member as placement and roll-up see it.
type Member struct {
	Name   string
	Labels map[string]string
	// Accepted reports whether the registration is or was accepted. Selectors choose accepted members only.
	Accepted bool
	// Serves reports whether the kind is reconciled in the member.
	Serves bool
	// Namespaces lists the namespaces of the hub that may place there, with "" for cluster-scoped objects; nil means all.
	Namespaces []string
	// Draining reports whether the copies have to be removed from the member.
	Draining bool
	// Decided reports whether this process knows if the member is visible.
	Decided bool
	// Visible reports whether the caches of the member are current.
	Visible bool
	// Writable reports whether placement may write to the member.
	Writable bool
	// Reason and Message explain why the member is not visible. The reason is used in the entry of the cluster.
	Reason, Message string
}

// Allows reports whether hub objects of a namespace may be placed in the member. The namespace of cluster-scoped objects
// is empty.
func (m Member) Allows(namespace string) bool {
	return m.Namespaces == nil || slices.Contains(m.Namespaces, namespace)
}

// Published returns a Member for a MemberCluster whose registration has not been read since the start. It must not look
// like a removed registration.
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

// Members adds to the known members, which are sorted by name, those of which this process has only read the MemberCluster.
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

// Find returns the member with that name. members must be sorted by name.
func Find(members []Member, name string) (Member, bool) {
	i, found := slices.BinarySearchFunc(members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return Member{}, false
	}
	return members[i], true
}

// Choice is a parsed placement. It is evaluated for one member at a time. The zero value chooses none.
type Choice struct {
	names     map[string]bool
	selector  labels.Selector
	namespace string
}

// NewChoice parses the placement of a hub object in that namespace; nil chooses none. It fails if a selector does not parse.
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

// Hash identifies the choice. It depends only on clusters, clusterSelector and all of the placement, and not on the order
// of names and requirements.
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

// Names reports whether the placement lists a name, whether or not it is registered.
func (c Choice) Names(name string) bool { return c.names[name] }

// Takes reports whether a registered member is chosen: it matches and is not draining.
func (c Choice) Takes(member Member, placed bool) bool {
	return !member.Draining && c.Matches(member, placed)
}

// Matches reports whether the choice matches a registered member. placed reports whether the member may have a copy.
//
// A member with a copy counts as accepted for this object: a refused registration is no reason to remove the copy. A
// selector does not match a member that does not allow the namespace, unless it has a copy; that copy is kept, and the
// copy pass refuses to change it. A name always matches, and the copy pass reports the refusal.
func (c Choice) Matches(member Member, placed bool) bool {
	if c.names[member.Name] {
		return true
	}
	accepted := placed || member.Accepted && member.Allows(c.namespace)
	return accepted && member.Serves && c.selector != nil && c.selector.Matches(labels.Set(member.Labels))
}

// Choose returns the sorted names of all chosen clusters: members, and listed names without a registration. members must
// contain all members, sorted by name.
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

// Choose returns the sorted names of the clusters that a placement chooses.
func Choose(placement *flotillav1.Placement, namespace string, members []Member, placedIn []string) ([]string, error) {
	choice, err := NewChoice(placement, namespace)
	if err != nil {
		return nil, err
	}
	return choice.Choose(members, placedIn), nil
}

// parseSelector parses a selector. An empty selector chooses nothing, not everything.
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
