// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxWarnings is how many events are shown.
const maxWarnings = 5

func newWhy(t *tool) *cobra.Command {
	var cluster, output string
	c := &cobra.Command{
		Use:   "why (redis|nodepool)/NAME -c CLUSTER",
		Short: "Say why an object is not ready in a cluster, and what to do",
		Long: `Say why an object is not ready in a cluster: follow it down from the hub, name the deepest object that is not well, since
when, what that means and what to do, and show the last warnings about it.` + site.MembersHelp,
		Example:           `  kubectl flotilla why redis/cache -n shop -c eu-1`,
		Args:              oneObject,
		ValidArgsFunction: t.completeTargets,
		RunE: func(c *cobra.Command, args []string) error {
			return t.why(c.Context(), strings.Join(args, "/"), cluster, output)
		},
	}
	t.addCluster(c, &cluster, "The cluster (required)")
	addOutput(c, &output)
	t.AddMemberContexts(c)
	return c
}

func (t *tool) why(ctx context.Context, argument, cluster, output string) error {
	of, object, ways, err := t.find(ctx, argument)
	if err != nil {
		return err
	}
	if cluster == "" {
		return console.Faultf("name it with -c CLUSTER; "+of.command("tree")+" shows them all", "the cluster is missing")
	}
	member, err := ways.Hub.Member(ctx, cluster)
	if err != nil {
		return err
	}
	if !slices.Contains(clustersOf(object), cluster) {
		why := notChosen(object, member)
		if output != "" {
			return t.PrintValue(output, whyItem{Object: of.String(), Cluster: cluster, NotThere: why})
		}
		t.Resultf("%s is not in %s: %s", of, cluster, why)
		return nil
	}
	said, err := t.explain(ctx, ways, of, object, member)
	switch {
	case said == nil:
		return err
	case output != "":
		return errors.Join(err, t.PrintValue(output, said.item(of, cluster)))
	}
	t.tellWhy(said)
	return err
}

// item describes an explanation.
func (e *explanation) item(of target, cluster string) whyItem {
	tree := e.root.items()
	item := whyItem{
		Object: of.String(), Cluster: cluster, Well: e.well != "", Because: strings.TrimPrefix(e.because, "Because: "), Meaning: e.meaning,
		Findings: findingItems(e.first), Tree: &tree,
	}
	for i := range e.warnings {
		warning := &e.warnings[i]
		item.Warnings = append(item.Warnings, warningItem{
			Object: pathOf(warning.Regarding.Kind, warning.Regarding.Namespace, warning.Regarding.Name), Reason: warning.Reason, Note: warning.Note, Last: at(timeOf(warning).Time),
		})
	}
	return item
}

// explanation is why an object is not ready in a cluster.
type explanation struct {
	// first are the conditions that need a person.
	first []finding
	root  *branch
	// well says that all is well; otherwise because says what is not, and meaning what to do.
	well, because, meaning string
	// warnings are the last ones about the object and its parts.
	warnings []eventsv1.Event
}

// explain follows an object from the hub into a cluster. With an explanation the error is about its warnings.
func (t *tool) explain(ctx context.Context, ways *site.Ways, of target, object fleet.Object, member *flotillav1.MemberCluster) (*explanation, error) {
	seen := clusterBranch(ctx, ways, object, of, member.Name)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	said := &explanation{root: of.branch(object), first: append(
		t.firstOf(of.String(), *object.GetConditions()), t.firstOf("membercluster/"+member.Name, member.Status.Conditions)...)}
	said.root.below = []*branch{seen}
	cause := causeOf(seen, member)
	if cause == nil {
		said.well = fmt.Sprintf("%s is well in %s.", of, member.Name)
		return said, nil
	}
	said.because = "Because: " + cause.title() + " is not ready"
	if cause.since != nil && !cause.since.IsZero() {
		said.because += " for " + t.Ago(cause.since)
	}
	said.because += ": " + console.OrDash(cause.reason)
	if cause.detail != "" {
		said.because += ": " + cause.detail
	}
	said.meaning = condition.Meaning(cause.reason)
	var err error
	said.warnings, err = warningsAbout(ctx, ways, member, of)
	return said, err
}

// tellWhy writes an explanation.
func (t *tool) tellWhy(said *explanation) {
	t.tell(said.first)
	t.printTree(said.root)
	t.Resultf("")
	if said.well != "" {
		t.Resultf("%s", said.well)
		return
	}
	t.Resultf("%s", console.Paint(t.Out, console.Red, said.because))
	if said.meaning != "" {
		t.Resultf("What it means: %s", said.meaning)
	}
	t.printWarnings(said.warnings)
}

// tellFirst writes the conditions of an object that need a person.
func (t *tool) tellFirst(name string, conditions []metav1.Condition) {
	t.tell(t.firstOf(name, conditions))
}

// tell writes findings, each with its meaning.
func (t *tool) tell(first []finding) {
	for _, found := range first {
		t.Resultf("%s", console.Paint(t.Out, console.Red, found.what))
		if found.remedy != "" {
			t.Resultf("What it means: %s", found.remedy)
		}
		t.Resultf("")
	}
}

// firstOf returns the conditions of an object that need a person.
func (t *tool) firstOf(name string, conditions []metav1.Condition) []finding {
	var first []finding
	for _, said := range []struct{ conditionType, words string }{
		{flotillav1.ConditionStalled, "is stalled for"}, {flotillav1.ConditionCopyRecreated, "has copies that were made again, known for"},
	} {
		found := condition.Of(conditions, said.conditionType)
		if found.Status == metav1.ConditionTrue {
			what := fmt.Sprintf("%s %s %s: %s: %s", name, said.words, t.Ago(&found.LastTransitionTime), found.Reason, found.Message)
			first = append(first, finding{severity: problem, what: what, remedy: condition.Meaning(found.Reason)})
		}
	}
	return first
}

// notChosen returns why an object is not placed in a member.
func notChosen(object fleet.Object, member *flotillav1.MemberCluster) string {
	placement := placementOf(object)
	switch {
	case object.GetPlacement() == nil:
		return "it has no spec.placement, so it is placed nowhere"
	case member.Status.UID == "":
		return "the registration has not been accepted: " + condition.FirstUnmet(member).Message
	case placement.ClusterSelector != nil:
		return "its clusterSelector is " + metav1.FormatLabelSelector(placement.ClusterSelector) + ", and the member has the labels " +
			console.OrDash(metav1.FormatLabelSelector(metav1.SetAsLabelSelector(member.Labels))) + "; or the member does not take part in the kind or the namespace (annotations of its registration)"
	}
	return "its placement names " + console.OrDash(strings.Join(placement.Clusters, ", "))
}

// causeOf returns the deepest branch that is not ready, or nil when all are.
func causeOf(seen *branch, member *flotillav1.MemberCluster) *branch {
	if ready := condition.Of(member.Status.Conditions, flotillav1.ConditionReady); ready.Status != metav1.ConditionTrue {
		unmet := condition.FirstUnmet(member)
		return &branch{kind: flotillav1.KindMemberCluster, name: member.Name, ready: unmet.Status, reason: unmet.Reason, since: &unmet.LastTransitionTime, detail: unmet.Message}
	}
	if seen.ready == metav1.ConditionTrue {
		return nil
	}
	cause := seen
	for next := seen; next != nil; {
		cause = next
		next = nil
		for _, child := range cause.below {
			if child.ready != metav1.ConditionTrue && child.reason != "NotSeen" && (next == nil || next.ready == metav1.ConditionUnknown && child.ready == metav1.ConditionFalse) {
				next = child
			}
		}
	}
	// The hub knows the cause when the copy is missing or only waits for the hub.
	if cause.reason == "NotFound" && cause.kind != "Node" && seen.reason != "" {
		return seen
	}
	return cause
}

// warningsAbout returns the last warnings about an object and its parts in a member, or those on the hub when the member's
// cannot be read.
func warningsAbout(ctx context.Context, ways *site.Ways, member *flotillav1.MemberCluster, of target) ([]eventsv1.Event, error) {
	from, err := ways.Into(ctx, member)
	if err != nil {
		from = ways.Hub
	}
	list, options := &eventsv1.EventList{}, []client.ListOption{
		client.InNamespace(cmp.Or(of.key.Namespace, metav1.NamespaceDefault)), client.MatchingFields{"type": corev1.EventTypeWarning},
	}
	if err := from.List(ctx, list, options...); err != nil {
		// The hub's own ServiceAccount, for one, may not read events in a member.
		if err := ways.Hub.List(ctx, list, options...); err != nil {
			return nil, ways.Hub.Explain("listing events", err)
		}
	}
	about := slices.DeleteFunc(list.Items, func(event eventsv1.Event) bool {
		name := event.Regarding.Name
		return name != of.key.Name && !strings.HasPrefix(name, of.key.Name+"-") && !strings.HasSuffix(name, "-"+of.key.Name) && !strings.Contains(name, "-"+of.key.Name+"-")
	})
	slices.SortFunc(about, func(a, b eventsv1.Event) int { return timeOf(&b).Compare(timeOf(&a).Time) })
	return about[:min(len(about), maxWarnings)], nil
}

// printWarnings writes events.
func (t *tool) printWarnings(warnings []eventsv1.Event) {
	if len(warnings) == 0 {
		return
	}
	t.Resultf("\nLast warnings:")
	var rows [][]console.Cell
	for i := range warnings {
		event := &warnings[i]
		rows = append(rows, []console.Cell{{Text: t.Ago(timeOf(event))}, {Text: event.Regarding.Kind + " " + event.Regarding.Name}, {Text: event.Reason}, {Text: text.Line(event.Note)}})
	}
	t.Table([]string{"AGO", "OBJECT", "REASON", "NOTE"}, rows)
}

// timeOf returns when an event was last recorded.
func timeOf(event *eventsv1.Event) *metav1.Time {
	switch {
	case event.Series != nil:
		return &metav1.Time{Time: event.Series.LastObservedTime.Time}
	case !event.EventTime.IsZero():
		return &metav1.Time{Time: event.EventTime.Time}
	case !event.DeprecatedLastTimestamp.IsZero():
		return &event.DeprecatedLastTimestamp
	}
	return &event.CreationTimestamp
}
