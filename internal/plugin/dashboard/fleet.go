// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-dev/flotilla/internal/fleet"
)

const (
	// maxRows is how many rows a list has, and maxMore how many it has on demand.
	maxRows = 50
	maxMore = 1000
	// maxSamples is how many of the rows that have a cause are shown below it.
	maxSamples = 8
)

// What the page can be limited to.
const (
	showNotReady    = "notready"
	showUnreachable = "unreachable"
	showRefused     = "refused"
	showEnding      = "ending"
	showDegraded    = "degraded"
	showHalted      = "halted"
)

// number is a number at the top, which limits the page.
type number struct {
	Show, Label, Of  string
	Count            int
	Bad              bool
	Address, Command string
	Current          bool
}

// matches reports whether a member is among those that the page is limited to.
func (b *builder) matches(member *memberFacts) bool {
	switch b.show() {
	case showNotReady:
		return member.State < stateUnwell
	case showUnreachable:
		return member.State == stateUnreachable
	case showRefused:
		return member.State == stateRefused
	case showEnding:
		return isEnding(member.MemberCluster)
	}
	return true
}

// show returns what the page is limited to; empty for nothing.
func (b *builder) show() string { return b.query.Get("show") }

// address returns the address of the page with another value of a parameter.
func (b *builder) address(key, value string) string {
	query := url.Values{}
	for _, kept := range []string{"by", "show"} {
		if chosen := b.query.Get(kept); chosen != "" {
			query.Set(kept, chosen)
		}
	}
	query.Del(key)
	if value != "" {
		query.Set(key, value)
	}
	return (&url.URL{Path: "/", RawQuery: query.Encode()}).String()
}

// fleet returns the pieces of the first screen.
func (b *builder) fleet() []*piece {
	return []*piece{b.numbers(), b.tiles(), b.causes(), b.membersList(), b.objectsList(), b.held()}
}

// numbers returns the numbers at the top.
func (b *builder) numbers() *piece {
	counts := map[string]int{}
	for _, member := range b.m.members {
		counts[showNotReady] += count(member.State < stateUnwell)
		counts[showUnreachable] += count(member.State == stateUnreachable)
		counts[showRefused] += count(member.State == stateRefused)
		counts[showEnding] += count(isEnding(member.MemberCluster))
	}
	for _, object := range b.m.objects {
		counts[showDegraded] += count(object.degraded)
		counts[showHalted] += count(object.halted)
	}
	all, objects := len(b.m.members), len(b.m.objects)
	numbers := []number{
		{Show: showNotReady, Label: "members ready", Count: all - counts[showNotReady], Of: fmt.Sprint(all), Bad: counts[showNotReady] > 0, Command: "kubectl flotilla status --all"},
		{Show: showUnreachable, Label: "unreachable", Command: "kubectl flotilla status --all --sort=since"},
		{Show: showRefused, Label: "refused", Command: "kubectl flotilla doctor"},
		{Show: showEnding, Label: "credentials ending", Command: "kubectl flotilla expiries"},
		{Show: showDegraded, Label: "objects degraded", Of: fmt.Sprint(objects), Command: "kubectl flotilla status --all"},
		{Show: showHalted, Label: "rollouts halted", Command: "kubectl flotilla held"},
	}
	for i := range numbers {
		n := &numbers[i]
		if n.Show != showNotReady {
			n.Count, n.Bad = counts[n.Show], counts[n.Show] > 0
		}
		n.Current = b.show() == n.Show
		n.Address = b.address("show", n.Show)
		if n.Current {
			n.Address = b.address("show", "")
		}
	}
	return b.piece("numbers", "numbers", numbers)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// tile is a member, or a copy in one, in a few pixels.
type tile struct {
	ID, Class, Address, Label, Letter string
	Since                             *metav1.Time
	// Apart is true for tiles that the arrow keys reach, and Tab does not.
	Apart bool
}

// choice is a link that chooses something.
type choice struct {
	Label, Address string
	Current        bool
}

// tiles returns the members as tiles, in groups.
func (b *builder) tiles() *piece {
	by := b.query.Get("by")
	groups, names := b.groups(by)
	concerned := b.concerned()
	items := make([]*piece, 0, len(names))
	for i, name := range names {
		items = append(items, b.group(fmt.Sprintf("g%d", i), name, by, groups[name], concerned))
	}
	choices := []choice{{Label: "none", Address: b.address("by", ""), Current: by == ""}}
	for _, key := range b.m.labels {
		choices = append(choices, choice{Label: key, Address: b.address("by", key), Current: by == key})
	}
	counts := make([]map[string]any, 0, states)
	for s := range states {
		n := 0
		for _, member := range b.m.members {
			n += count(member.State == s)
		}
		if n > 0 {
			counts = append(counts, map[string]any{"State": s, "Class": stateClass(s), "Count": n})
		}
	}
	return b.piece("tiles", "tiles", map[string]any{"Choices": choices, "Counts": counts, "Empty": len(b.m.members) == 0}, items...)
}

// groups returns the members by the value of a label, and the values in their order. Members without the label come last.
func (b *builder) groups(by string) (groups map[string][]*memberFacts, names []string) {
	groups = map[string][]*memberFacts{}
	for _, member := range b.m.members {
		value := ""
		if by != "" {
			value = member.Labels[by]
		}
		if groups[value] == nil {
			names = append(names, value)
		}
		groups[value] = append(groups[value], member)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(count(a == ""), count(b == "")), strings.Compare(a, b))
	})
	return groups, names
}

// concerned returns which members the objects concern that the page is limited to; nil if it is not limited to objects.
func (b *builder) concerned() map[string]bool {
	if show := b.show(); show != showDegraded && show != showHalted {
		return nil
	}
	concerned := map[string]bool{}
	for _, object := range b.m.objects {
		if !b.matchesObject(object) {
			continue
		}
		for _, row := range object.unwell {
			concerned[row.Cluster] = true
		}
		if b.show() == showHalted {
			for cluster := range fleet.TrialsOf(object.Object) {
				concerned[cluster] = true
			}
		}
	}
	return concerned
}

// group returns a group of tiles.
func (b *builder) group(id, value, by string, members []*memberFacts, concerned map[string]bool) *piece {
	items := make([]*piece, 0, len(members))
	ready := 0
	for i, member := range members {
		ready += count(member.State >= stateUnwell)
		shown := tile{
			ID: "m-" + member.Name, Class: stateClass(member.State), Address: "/members/" + member.Name, Letter: member.State.Letter(),
			Label: member.Name + ": " + member.State.String(), Since: member.Since, Apart: i > 0,
		}
		if member.State < stateUnwell {
			shown.Label += ", " + cmp.Or(member.Unmet.Reason, "no status yet")
		}
		if concerned != nil && !concerned[member.Name] || !b.matches(member) {
			shown.Class += " dim"
		}
		items = append(items, b.piece(shown.ID, "tile", shown))
	}
	return b.piece(id, "group", map[string]any{"ID": id, "By": by, "Value": value, "Ready": ready, "Total": len(members)}, items...)
}

// stateClass returns the class of a state.
func stateClass(s state) string { return fmt.Sprintf("s%d", s) }
