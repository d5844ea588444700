// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/docs"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxWarnings is how many events are shown.
const maxWarnings = 5

func newWhy(t *tool) *cobra.Command {
	var cluster string
	c := &cobra.Command{
		Use:   "why (redis|nodepool)/NAME -c CLUSTER",
		Short: "Say why an object is not ready in a cluster, and what to do",
		Long: `Say why an object is not ready in a cluster: follow it down from the hub, name the deepest thing that is not well and
since when, what that means and what to do, and show the last warnings about it.` + waysHelp,
		Example:           `  kubectl flotilla why redis/cache -n shop -c eu-1`,
		Args:              oneObject,
		ValidArgsFunction: t.completeTargets,
		RunE: func(c *cobra.Command, args []string) error {
			return t.why(c.Context(), strings.Join(args, "/"), cluster)
		},
	}
	c.Flags().StringVarP(&cluster, "cluster", "c", "", "The cluster (required)")
	_ = c.RegisterFlagCompletionFunc("cluster", t.completeClusters)
	t.addMemberContext(c)
	return c
}

func (t *tool) why(ctx context.Context, argument, cluster string) error {
	of, err := t.parseTarget(argument)
	if err != nil {
		return err
	}
	if cluster == "" {
		return faultf("name it with -c CLUSTER; "+of.command("tree")+" shows them all", "the cluster is missing")
	}
	hub, err := t.hub()
	if err != nil {
		return err
	}
	object, err := of.read(ctx, hub)
	if err != nil {
		return err
	}
	member, err := hub.memberNamed(ctx, cluster)
	if err != nil {
		return err
	}
	into, err := t.waysInto(ctx, hub)
	if err != nil {
		return err
	}
	if !slices.Contains(clustersOf(object, ""), cluster) {
		t.tell("%s is not in %s: %s", of, cluster, notChosen(object, member))
		return nil
	}
	seen, err := t.clusterBranch(ctx, into, object, of, cluster)
	if err != nil {
		return err
	}
	root := ofCondition(of.kind.Name, strings.Trim(of.key.Namespace+"/"+of.key.Name, "/"), *object.GetConditions())
	root.below = []*branch{seen}
	t.tellFirst(of.String(), *object.GetConditions())
	t.tellFirst("membercluster/"+member.Name, member.Status.Conditions)
	t.printTree(root)
	t.tell("")
	cause := causeOf(seen, member)
	if cause == nil {
		t.tell("%s is well in %s.", of, cluster)
		return nil
	}
	text := "Because: " + cause.title() + " is not ready"
	if cause.since != nil && !cause.since.IsZero() {
		text += " for " + t.ago(cause.since)
	}
	text += ": " + or(cause.reason)
	if cause.detail != "" {
		text += ": " + cause.detail
	}
	t.tell("%s", paint(t.Out, red, text))
	if meaning := meaningOf(cause.reason); meaning != "" {
		t.tell("What it means: %s", meaning)
	}
	return t.warnings(ctx, into, member, of)
}

// tellFirst says first what a person has to do something about.
func (t *tool) tellFirst(name string, conditions []metav1.Condition) {
	for _, said := range []struct{ conditionType, words string }{
		{flotillav1.ConditionStalled, "is stalled for"}, {flotillav1.ConditionCopyRecreated, "has copies that were made again, known for"},
	} {
		found := condition(conditions, said.conditionType)
		if found.Status != metav1.ConditionTrue {
			continue
		}
		t.tell("%s", paint(t.Out, red, fmt.Sprintf("%s %s %s: %s: %s", name, said.words, t.ago(&found.LastTransitionTime), found.Reason, found.Message)))
		if meaning := meaningOf(found.Reason); meaning != "" {
			t.tell("What it means: %s", meaning)
		}
		t.tell("")
	}
}

// notChosen says why a member is not among those of an object.
func notChosen(object fleet.Object, member *flotillav1.MemberCluster) string {
	placement := placementOf(object)
	switch {
	case object.GetPlacement() == nil:
		return "it has no spec.placement, so it is placed nowhere"
	case member.Status.UID == "":
		return "the registration has not been accepted: " + firstUnmet(member).Message
	case placement.ClusterSelector != nil:
		return "its clusterSelector is " + metav1.FormatLabelSelector(placement.ClusterSelector) + ", and the member has the labels " +
			or(metav1.FormatLabelSelector(metav1.SetAsLabelSelector(member.Labels))) + "; or the member does not take part in the kind or the namespace (annotations of its registration)"
	}
	return "its placement names " + or(strings.Join(placement.Clusters, ", "))
}

// causeOf is the deepest thing that is not well; nil when all is.
func causeOf(seen *branch, member *flotillav1.MemberCluster) *branch {
	if ready := condition(member.Status.Conditions, flotillav1.ConditionReady); ready.Status != metav1.ConditionTrue {
		unmet := firstUnmet(member)
		return &branch{kind: "MemberCluster", name: member.Name, ready: unmet.Status, reason: unmet.Reason, since: sinceOf(unmet), detail: unmet.Message}
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
	// What the hub says is the better answer when the copy is missing or only waits for the hub.
	if cause.reason == "NotFound" && cause.kind != "Node" && seen.reason != "" {
		return seen
	}
	return cause
}

// meanings are the rows of docs/conditions.md, by reason.
var meanings = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (.+) \\|$").FindAllStringSubmatch(docs.Conditions, -1) {
		text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(match[2], "$1")
		found[match[1]] = strings.ReplaceAll(text, "`", "")
	}
	return found
})

// meaningOf says what a reason of ours means and what to do.
func meaningOf(reason string) string { return meanings()[reason] }

// warnings shows the last warnings about an object and its parts in a member, or about the object on the hub where the
// member's cannot be read.
func (t *tool) warnings(ctx context.Context, into *ways, member *flotillav1.MemberCluster, of target) error {
	from, err := into.into(ctx, member)
	if err != nil {
		from = into.hub
	}
	list := &eventsv1.EventList{}
	namespace := cmp.Or(of.key.Namespace, metav1.NamespaceDefault)
	if err := from.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"type": corev1.EventTypeWarning}); err != nil {
		// Whoever may not read events, as the hub's own ServiceAccount in a member, gets what the hub was told.
		list = &eventsv1.EventList{}
		if err := into.hub.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"type": corev1.EventTypeWarning}); err != nil {
			return into.hub.explain("listing events", err)
		}
	}
	about := slices.DeleteFunc(list.Items, func(event eventsv1.Event) bool {
		name := event.Regarding.Name
		return name != of.key.Name && !strings.HasPrefix(name, of.key.Name+"-") && !strings.HasSuffix(name, "-"+of.key.Name) && !strings.Contains(name, "-"+of.key.Name+"-")
	})
	slices.SortFunc(about, func(a, b eventsv1.Event) int { return timeOf(&b).Compare(timeOf(&a).Time) })
	if len(about) == 0 {
		return nil
	}
	t.tell("\nLast warnings:")
	var rows [][]cell
	for i := range about[:min(len(about), maxWarnings)] {
		event := &about[i]
		rows = append(rows, []cell{{text: t.ago(timeOf(event))}, {text: event.Regarding.Kind + " " + event.Regarding.Name}, {text: event.Reason}, {text: text.Line(event.Note)}})
	}
	table(t.Out, []string{"AGO", "OBJECT", "REASON", "NOTE"}, rows)
	return nil
}

// timeOf is when an event was last told.
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

// sinceOf is when a condition last changed.
func sinceOf(c metav1.Condition) *metav1.Time { return new(c.LastTransitionTime) }

// placementOf is the placement of an object of the hub; an empty one when there is none.
func placementOf(object fleet.Object) flotillav1.Placement {
	return ptr.Deref(object.GetPlacement(), flotillav1.Placement{})
}
