// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cause is a reason, with what is not well because of it.
type cause struct {
	ID, Reason, Meaning string
	// What has the reason: members or objects.
	What    string
	Ready   metav1.ConditionStatus
	Since   *metav1.Time
	Count   int
	Samples []sample
	// Names are the objects, or the members, that have the reason, and More how many are not among the samples.
	Names []string
	More  int
}

// sample is something that is not well, with where to learn more.
type sample struct {
	Row
	// Address is of the screen that explains it, and Command what explains it in a terminal.
	Address, Command string
}

// causes returns why things are not well.
func (b *builder) causes() *piece {
	var rows []Row
	for _, member := range b.m.members {
		if member.State < stateUnwell {
			rows = append(rows, Row{
				Object: memberName(member.Name), Cluster: member.Name, Ready: member.Unmet.Status, Reason: member.Unmet.Reason, Since: member.Since, Message: member.Unmet.Message,
			})
		}
	}
	rows = append(rows, b.m.unwell(b.sayings)...)
	causes := b.causesOf(rows)
	shown := causes[:min(len(causes), maxRows)]
	items := make([]*piece, 0, len(shown))
	for _, found := range shown {
		items = append(items, b.piece(found.ID, "cause", found))
	}
	return b.piece("causes", "causes", map[string]any{"Rows": len(rows), "More": len(causes) - len(shown), "Command": "kubectl flotilla status --all"}, items...)
}

// memberName names a member as the commands name it among objects.
func memberName(name string) string { return "membercluster/" + name }

// causesOf groups rows by their reason. Those that are known to be bad come first, and then the most frequent ones.
func (b *builder) causesOf(rows []Row) []*cause {
	byID := map[string]*cause{}
	for _, row := range rows {
		what := "objects"
		if strings.HasPrefix(row.Object, "membercluster/") {
			what = "members"
		}
		id := "cause-" + what + "-" + row.Reason
		found := byID[id]
		if found == nil {
			found = &cause{ID: id, Reason: row.Reason, Meaning: b.sayings.Meaning(row.Reason), What: what, Ready: row.Ready, Since: row.Since}
			byID[id] = found
		}
		found.add(row)
	}
	causes := make([]*cause, 0, len(byID))
	for _, found := range byID {
		slices.Sort(found.Names)
		found.Names = slices.Compact(found.Names)
		for i := range found.Samples {
			found.Samples[i] = b.sampleOf(found.Samples[i].Row)
		}
		found.More = found.Count - len(found.Samples)
		causes = append(causes, found)
	}
	slices.SortFunc(causes, func(x, y *cause) int {
		return cmp.Or(cmp.Compare(severity(x.Ready), severity(y.Ready)), cmp.Compare(x.What, y.What), cmp.Compare(y.Count, x.Count), strings.Compare(x.ID, y.ID))
	})
	return causes
}

// add counts a row.
func (c *cause) add(row Row) {
	c.Count++
	if severity(row.Ready) < severity(c.Ready) {
		c.Ready = row.Ready
	}
	if row.Since != nil && (c.Since == nil || row.Since.Before(c.Since)) {
		c.Since = row.Since
	}
	if last := len(c.Names) - 1; last < 0 || c.Names[last] != row.Object {
		c.Names = append(c.Names, row.Object)
	}
	if len(c.Samples) < maxSamples {
		c.Samples = append(c.Samples, sample{Row: row})
	}
}

// Some names a few of the names.
func (c *cause) Some() string {
	const few = 3
	names := make([]string, 0, few)
	for _, name := range c.Names[:min(few, len(c.Names))] {
		names = append(names, strings.TrimPrefix(name, "membercluster/"))
	}
	some := strings.Join(names, ", ")
	if more := len(c.Names) - len(names); more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return some
}

// severity ranks what is known to be bad before what is not known.
func severity(ready metav1.ConditionStatus) int {
	switch ready {
	case metav1.ConditionFalse:
		return 0
	case metav1.ConditionUnknown:
		return 1
	}
	return 2
}

// sampleOf adds to a row where to learn more.
func (b *builder) sampleOf(row Row) sample {
	object := b.m.objectNamed[row.Object]
	switch {
	case object != nil && row.Cluster != "-":
		return sample{row, "/why/" + row.Cluster + "/" + row.Object, object.command("why") + " -c " + row.Cluster}
	case object != nil:
		return sample{row, "/objects/" + row.Object, object.command("tree")}
	}
	return sample{row, "/members/" + row.Cluster, memberCommand(row.Cluster)}
}

// memberCommand returns the command that shows all of a member.
func memberCommand(name string) string { return "kubectl get membercluster " + name + " -o yaml" }

// listed is a list of a part of what there is.
type listed struct {
	Title, Empty, Command string
	More                  int
	// All is the address of the page with everything.
	All string
}

// part returns how many of n rows are shown.
func (b *builder) part(n int, rows int) int {
	if b.query.Get("all") != "" {
		rows = maxMore
	}
	return min(n, rows)
}

// membersList lists the members that the page is limited to, or those that need attention.
func (b *builder) membersList() *piece {
	list := listed{Title: "Members that need attention", Empty: "All members are ready, and so is what is in them.", Command: "kubectl flotilla status"}
	limited := b.show()
	var members []*memberFacts
	for _, member := range b.m.members {
		if limited != "" && limited != showDegraded && limited != showHalted {
			list.Title, list.Empty = "Members: "+titles[limited], "None."
			if !b.matches(member) {
				continue
			}
		} else if member.State == stateReady {
			continue
		}
		members = append(members, member)
	}
	slices.SortStableFunc(members, func(x, y *memberFacts) int {
		return cmp.Or(cmp.Compare(x.urgency, y.urgency), cmp.Compare(x.State, y.State), timeOf(y.Since).Compare(timeOf(x.Since)))
	})
	shown := members[:b.part(len(members), maxRows)]
	items := make([]*piece, 0, len(shown))
	for _, member := range shown {
		id := "row-" + member.Name
		items = append(items, b.piece(id, "memberrow", map[string]any{
			"ID": id, "Member": member, "Class": stateClass(member.State), "Reason": member.Unmet.Reason, "Message": member.Unmet.Message,
			"Ready": member.State >= stateUnwell, "Summary": member.Status.Summary, "Command": memberCommand(member.Name),
		}))
	}
	list.More, list.All = len(members)-len(shown), b.address("all", "1")
	return b.piece("members", "listed", map[string]any{"ID": "members", "List": list}, items...)
}

// titles are of what the page can be limited to.
var titles = map[string]string{
	showNotReady: "not ready", showUnreachable: "unreachable", showRefused: "refused", showEnding: "credential ends soon",
	showDegraded: "degraded", showHalted: "rollout halted",
}

func timeOf(when *metav1.Time) time.Time {
	if when == nil {
		return time.Time{}
	}
	return when.Time
}

// matchesObject reports whether an object is among those that the page is limited to.
func (b *builder) matchesObject(object *objectFacts) bool {
	switch b.show() {
	case showDegraded:
		return object.degraded
	case showHalted:
		return object.halted
	}
	return true
}

// objectsList lists the hub objects; those that need attention come first.
func (b *builder) objectsList() *piece {
	list := listed{Title: "Objects", Empty: "There are no Redises and NodePools on the hub.", Command: "kubectl get redises,nodepools -A"}
	if limited := b.show(); limited == showDegraded || limited == showHalted {
		list.Title, list.Empty = "Objects: "+titles[limited], "None."
	}
	var objects []*objectFacts
	for _, object := range b.m.objects {
		if b.matchesObject(object) {
			objects = append(objects, object)
		}
	}
	rank := func(object *objectFacts) int { return 2 - 2*count(object.halted) - count(object.degraded) }
	slices.SortStableFunc(objects, func(x, y *objectFacts) int { return cmp.Compare(rank(x), rank(y)) })
	shown := objects[:b.part(len(objects), maxRows)]
	items := make([]*piece, 0, len(shown))
	for _, object := range shown {
		id := "object-" + object.name
		items = append(items, b.piece(id, "objectrow", map[string]any{
			"ID": id, "Object": object, "Name": object.name, "Counts": object.GetFleetStatus().ClusterCounts, "Ready": object.ready, "Degraded": object.degraded,
			"Halted": object.halted, "Command": object.command("tree"),
		}))
	}
	list.More, list.All = len(objects)-len(shown), b.address("all", "1")
	return b.piece("objects", "listed", map[string]any{"ID": "objects", "List": list}, items...)
}

// held lists what waits for a person.
func (b *builder) held() *piece {
	var all []Held
	for _, member := range b.m.members {
		all = append(all, member.held...)
	}
	for _, object := range b.m.objects {
		all = append(all, object.held...)
	}
	shown := all[:b.part(len(all), maxRows)]
	items := make([]*piece, 0, len(shown))
	for _, held := range shown {
		id := "held-" + held.Held + "-" + held.Object
		address := "/objects/" + held.Object
		if name, isMember := strings.CutPrefix(held.Object, "membercluster/"); isMember {
			address = "/members/" + name
		}
		items = append(items, b.piece(id, "heldrow", map[string]any{"ID": id, "Held": held, "Address": address}))
	}
	return b.piece("held", "held", listed{More: len(all) - len(shown), All: b.address("all", "1")}, items...)
}
