// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

const (
	// maxEvents is how many events are shown, and maxEntries how many clusters of an object.
	maxEvents  = 200
	maxEntries = 100
	// whyPatience is how long looking into a cluster may take.
	whyPatience = 30 * time.Second
)

// command returns a command about the object.
func (o *objectFacts) command(name string) string { return fleet.Command(name, o.kind.Name, o.key()) }

// get returns the command that shows all of the object.
func (o *objectFacts) get() string {
	command := "kubectl get " + strings.ToLower(o.kind.Name) + " " + o.GetName()
	if o.GetNamespace() != "" {
		command += " -n " + o.GetNamespace()
	}
	return command + " -o yaml"
}

// said is a condition with its meaning.
type said struct {
	metav1.Condition
	Meaning string
	// Bad is true if the status is not what it should be.
	Bad bool
}

// Since returns when the condition changed.
func (s said) Since() *metav1.Time { return &s.LastTransitionTime }

// usual are conditions that are well when they are False or absent; the others when they are True.
var usual = []string{
	flotillav1.ConditionPaused, flotillav1.ConditionFrozen, flotillav1.ConditionStalled, flotillav1.ConditionRemovalHeld, flotillav1.ConditionCopyRecreated,
	flotillav1.ConditionProgressing, flotillav1.ConditionPlacementIgnored,
}

// saidOf returns conditions with their meanings; those that are not well come first.
func (b *builder) saidOf(conditions []metav1.Condition) []said {
	all := make([]said, 0, len(conditions))
	for _, condition := range conditions {
		bad := (condition.Status == metav1.ConditionTrue) == slices.Contains(usual, condition.Type)
		one := said{Condition: condition, Bad: bad}
		if bad {
			one.Meaning = b.sayings.Meaning(condition.Reason)
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(x, y said) int { return cmp.Compare(count(y.Bad), count(x.Bad)) })
	return all
}

// memberScreen returns the pieces of a member.
func (b *builder) memberScreen(member *memberFacts) []*piece {
	var copies []sample
	for _, object := range b.m.objects {
		if !object.placedIn(member.Name) {
			continue
		}
		row := Row{Object: object.name, Cluster: member.Name, Ready: metav1.ConditionTrue, Reason: "not listed, as it is ready or not urgent"}
		for i := range object.entries {
			if entry := &object.entries[i]; entry.Name == member.Name {
				row.Ready, row.Reason, row.Since, row.Message = entry.Ready, entry.Reason, entry.Since, entry.Message
			}
		}
		copies = append(copies, b.sampleOf(row))
	}
	slices.SortStableFunc(copies, func(x, y sample) int { return cmp.Compare(severity(x.Ready), severity(y.Ready)) })
	var attention []sample
	for _, row := range b.m.attention(b.sayings, member) {
		attention = append(attention, sample{Row: row, Command: memberCommand(member.Name)})
	}
	events := b.eventsAbout(func(event *eventsv1.Event) bool {
		return event.Regarding.Kind == flotillav1.KindMemberCluster && event.Regarding.Name == member.Name
	})
	return []*piece{
		b.piece("title", "membertitle", map[string]any{"Member": member, "Class": stateClass(member.State), "State": member.State, "Command": memberCommand(member.Name)}),
		b.piece("conditions", "conditions", map[string]any{"Conditions": b.saidOf(member.Status.Conditions), "Command": "kubectl describe membercluster " + member.Name}),
		b.piece("facts", "memberfacts", map[string]any{"Member": member, "Labels": metav1.FormatLabelSelector(metav1.SetAsLabelSelector(member.Labels))}),
		b.piece("copies", "samples", map[string]any{"ID": "copies", "Title": "Placed here", "Rows": copies[:min(len(copies), maxEntries)], "More": len(copies) - min(len(copies), maxEntries), "Empty": "No object of the hub is placed here.", "ByObject": true, "Command": "kubectl flotilla status --all"}),
		b.piece("attention", "samples", map[string]any{"ID": "attention", "Title": "Its own objects that are not ready", "Rows": attention, "Empty": "None.", "ByObject": true, "Command": memberCommand(member.Name)}),
		b.piece("events", "events", map[string]any{"Title": "Warnings about it", "Groups": events, "Trouble": b.m.eventsTrouble, "Command": "kubectl events --for membercluster/" + member.Name}),
	}
}

// bar is a part of the picture of a rollout: a stage and the clusters in it.
type bar struct {
	StageCount
	X, Width, Class string
}

// objectScreen returns the pieces of a hub object.
func (b *builder) objectScreen(object *objectFacts) []*piece {
	rollout := b.sayings.Rollout(object.Object)
	differences, err := b.sayings.Differences(object.Object, object.clusters, func(cluster string) map[string]string {
		if member := b.m.memberNamed[cluster]; member != nil {
			return member.Labels
		}
		return nil
	})
	trouble := ""
	if err != nil {
		trouble, _ = console.Split(err)
	}
	unwell, well := b.entriesOf(object)
	shown := min(len(unwell), maxEntries)
	events := b.eventsAbout(func(event *eventsv1.Event) bool {
		return event.Regarding.Kind == object.kind.Name && event.Regarding.Name == object.GetName() && event.Regarding.Namespace == object.GetNamespace()
	})
	return []*piece{
		b.piece("title", "objecttitle", map[string]any{
			"Object": object, "Name": object.name, "Ready": object.ready, "Counts": object.GetFleetStatus().ClusterCounts, "Held": object.held, "Command": object.get(),
		}),
		b.piece("wave", "wave", map[string]any{"Rollout": rollout, "Bars": barsOf(rollout.Counts), "Command": object.command("rollout status"), "History": object.command("rollout history")}),
		b.copies(object),
		b.piece("entries", "samples", map[string]any{"ID": "entries", "Title": "Not ready", "Rows": unwell[:shown], "More": len(unwell) - shown, "Empty": "It is ready in every cluster that the hub lists.", "Command": object.command("tree")}),
		b.piece("differences", "differences", map[string]any{"Differences": differences, "Trouble": trouble, "Clusters": len(object.clusters), "Command": object.get()}),
		b.piece("conditions", "conditions", map[string]any{"Conditions": b.saidOf(*object.GetConditions()), "Command": object.get()}),
		b.piece("ready", "samples", map[string]any{"ID": "ready", "Title": "Ready", "Rows": well[:min(len(well), maxEntries)], "More": len(well) - min(len(well), maxEntries), "Empty": "Nowhere.", "Command": object.command("tree"), "Folded": true}),
		b.piece("events", "events", map[string]any{"Title": "Warnings about it", "Groups": events, "Trouble": b.m.eventsTrouble, "Command": "kubectl events --for " + strings.ToLower(object.kind.Name) + "/" + object.GetName()}),
	}
}

// entriesOf returns what the hub says about each cluster of an object.
func (b *builder) entriesOf(object *objectFacts) (unwell, well []sample) {
	for i := range object.entries {
		entry := &object.entries[i]
		row := b.sampleOf(Row{Object: object.name, Cluster: entry.Name, Ready: entry.Ready, Reason: entry.Reason, Since: entry.Since, Message: entry.Message})
		if entry.Ready == metav1.ConditionTrue {
			well = append(well, row)
		} else {
			unwell = append(unwell, row)
		}
	}
	slices.SortStableFunc(unwell, func(x, y sample) int {
		return cmp.Or(cmp.Compare(severity(x.Ready), severity(y.Ready)), timeOf(y.Since).Compare(timeOf(x.Since)))
	})
	return unwell, well
}

// copies returns the clusters of an object as tiles.
func (b *builder) copies(object *objectFacts) *piece {
	entries := map[string]*flotillav1.ClusterStatus{}
	for i := range object.entries {
		entries[object.entries[i].Name] = &object.entries[i]
	}
	items := make([]*piece, 0, len(object.clusters))
	for i, cluster := range object.clusters {
		shown := tile{ID: "copy-" + cluster, Class: "s9", Address: "/why/" + cluster + "/" + object.name, Label: cluster + ": not listed by the hub", Apart: i > 0}
		if entry := entries[cluster]; entry != nil {
			is := copyState(entry.Ready)
			if entry.Reason == flotillav1.ReasonClusterUnreachable {
				is = stateUnreachable
			}
			shown.Class, shown.Letter, shown.Since = stateClass(is), is.Letter(), entry.Since
			shown.Label = cluster + ": " + is.String()
			if entry.Ready != metav1.ConditionTrue {
				shown.Label += ", " + console.OrDash(entry.Reason)
			}
		}
		items = append(items, b.piece(shown.ID, "tile", shown))
	}
	return b.piece("copies", "copies", map[string]any{"Clusters": len(object.clusters), "Omitted": object.GetFleetStatus().ClustersOmitted, "Command": object.command("tree")}, items...)
}

// whyScreen returns the pieces of an object in a cluster. The answer is asked for by the page, because that may take long.
func (b *builder) whyScreen(object *objectFacts, cluster string) []*piece {
	answer := b.piece("answer", "asking", map[string]any{"Cluster": cluster, "Address": "/answer/" + cluster + "/" + object.name})
	answer.still = true
	return []*piece{
		b.piece("title", "whytitle", map[string]any{"Object": object, "Name": object.name, "Cluster": cluster, "Command": object.command("why") + " -c " + cluster}),
		answer,
	}
}

// answer explains an object in a cluster.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.use(0)
	m := s.latest()
	object := m.objectNamed[r.PathValue("kind")+"/"+r.PathValue("path")]
	if object == nil {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), whyPatience)
	defer cancel()
	answer, err := s.Sayings.Why(ctx, object.Object, r.PathValue("cluster"))
	trouble, remedy := "", ""
	if err != nil {
		trouble, remedy = console.Split(err)
	}
	b := &builder{renderer: s.render, m: m}
	groups := b.grouped(answer.Warnings)
	shown := b.piece("answer", "answer", map[string]any{
		"Answer": answer, "Trouble": trouble, "Remedy": remedy, "Groups": groups, "Command": object.command("why") + " -c " + r.PathValue("cluster"),
		"Tree": object.command("tree") + " -c " + r.PathValue("cluster"),
	})
	if b.err != nil {
		refuse(w, http.StatusInternalServerError, "The answer could not be shown: "+b.err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(shown.appendTo(nil))
}

// eventGroup is an event, with how often it was recorded about the same object for the same reason.
type eventGroup struct {
	ID, Object, Address, Reason, Note string
	Count                             int
	Last                              *metav1.Time
}

// eventsAbout returns the newest events that are about something, in groups.
func (b *builder) eventsAbout(about func(*eventsv1.Event) bool) []*eventGroup {
	var found []eventsv1.Event
	for _, event := range b.m.events {
		if len(found) < maxEvents && about(event) {
			found = append(found, *event)
		}
	}
	return b.grouped(found)
}

// grouped groups events by what they are about and why. The newest stay first.
func (b *builder) grouped(events []eventsv1.Event) []*eventGroup {
	groups, byID := []*eventGroup{}, map[string]*eventGroup{}
	for i := range events {
		event := &events[i]
		name := strings.ToLower(event.Regarding.Kind) + "/" + strings.Trim(event.Regarding.Namespace+"/"+event.Regarding.Name, "/")
		if event.Regarding.Kind == flotillav1.KindMemberCluster {
			name = memberName(event.Regarding.Name)
		}
		id := "event-" + name + "-" + event.Reason
		group := byID[id]
		if group == nil {
			group = &eventGroup{ID: id, Object: name, Reason: event.Reason, Note: event.Note, Last: b.sayings.When(event)}
			switch {
			case b.m.objectNamed[name] != nil:
				group.Address = "/objects/" + name
			case event.Regarding.Kind == flotillav1.KindMemberCluster && b.m.memberNamed[event.Regarding.Name] != nil:
				group.Address = "/members/" + event.Regarding.Name
			}
			byID[id], groups = group, append(groups, group)
		}
		group.Count += timesOf(event)
	}
	return groups
}

// timesOf returns how often an event was recorded.
func timesOf(event *eventsv1.Event) int {
	if event.Series != nil {
		return int(event.Series.Count)
	}
	return max(1, int(event.DeprecatedCount))
}

// eventsScreen returns the pieces of the screen of events.
func (b *builder) eventsScreen() []*piece {
	groups := b.eventsAbout(func(*eventsv1.Event) bool { return true })
	return []*piece{b.piece("events", "events", map[string]any{
		"Title": "Warnings of the hub", "Groups": groups, "Trouble": b.m.eventsTrouble, "Command": "kubectl events -A --types=Warning", "Whole": true,
	})}
}

// barsOf returns the picture of a rollout: a bar whose parts are as wide as the stages have clusters.
func barsOf(counts []StageCount) []bar {
	total := 0
	for _, one := range counts {
		total += one.Count
	}
	if total == 0 {
		return nil
	}
	// The bar is 1000 wide. A part that is there can be seen.
	const width, least = 1000.0, 6.0
	bars := make([]bar, 0, len(counts))
	wide := 0.0
	for _, one := range counts {
		if one.Count > 0 {
			wide += max(least, width*float64(one.Count)/float64(total))
		}
	}
	x := 0.0
	for _, one := range counts {
		if one.Count == 0 {
			continue
		}
		part := max(least, width*float64(one.Count)/float64(total)) * width / wide
		bars = append(bars, bar{StageCount: one, X: formatted(x), Width: formatted(part), Class: "st-" + strings.ReplaceAll(one.Stage, " ", "-")})
		x += part
	}
	return bars
}

func formatted(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
