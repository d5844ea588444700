// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

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
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/changes"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/dashboard"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// sayings are what the commands say, for the page of the dashboard.
type sayings struct {
	*tool
	ways *site.Ways
}

// Hub implements dashboard.Sayings. It asks for the Lease of the manager and the freeze switch.
func (s *sayings) Hub(ctx context.Context) (dashboard.HubState, error) {
	state := dashboard.HubState{Context: s.HubContext()}
	lease, err := s.ways.Hub.ManagerLease(ctx)
	switch {
	case err == nil && lease.HeldAt(s.Clock.Now()):
		state.Alive, state.Manager = true, "manager alive"
	case err == nil && lease.HubID() != "":
		state.Manager = "manager silent since " + lease.Renewed().UTC().Format("15:04:05 UTC")
	case err == nil, apierrors.IsNotFound(err):
		state.Manager = "no manager"
	case answered(err):
		state.Manager = "manager not known"
	default:
		return state, err
	}
	freeze := &corev1.ConfigMap{}
	err = s.ways.Hub.Get(ctx, client.ObjectKey{Namespace: flotillav1.SystemNamespace, Name: flotillav1.FreezeConfigMap}, freeze)
	switch {
	case err == nil:
		state.Frozen = "frozen: " + console.OrDash(text.Line(freeze.Data["reason"]))
	case !answered(err):
		return state, err
	}
	return state, nil
}

// answered reports whether an error is the answer of an API server.
func answered(err error) bool { return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown }

// Meaning implements dashboard.Sayings.
func (s *sayings) Meaning(reason string) string { return condition.Meaning(reason) }

// Unmet implements dashboard.Sayings.
func (s *sayings) Unmet(member *flotillav1.MemberCluster) (metav1.Condition, *metav1.Time) {
	unmet := condition.FirstUnmet(member)
	return unmet, condition.Since(unmet, member)
}

// Urgency implements dashboard.Sayings.
func (s *sayings) Urgency(member *flotillav1.MemberCluster) int { return urgency(member) }

// Name implements dashboard.Sayings.
func (s *sayings) Name(object fleet.Object) string { return nameOf(object) }

// Clusters implements dashboard.Sayings.
func (s *sayings) Clusters(object fleet.Object) []string { return clustersOf(object) }

// Unwell implements dashboard.Sayings.
func (s *sayings) Unwell(object fleet.Object) []dashboard.Row { return unwellIn(object) }

// Attention implements dashboard.Sayings.
func (s *sayings) Attention(member *flotillav1.MemberCluster, placed func(name string) bool) []dashboard.Row {
	return attentionOf(member, placed)
}

// HeldMember implements dashboard.Sayings.
func (s *sayings) HeldMember(member *flotillav1.MemberCluster) []dashboard.Held {
	return heldOnPage(heldAtMember(member))
}

// HeldObject implements dashboard.Sayings.
func (s *sayings) HeldObject(object fleet.Object) []dashboard.Held {
	return heldOnPage(heldAtObject(object))
}

func heldOnPage(items []heldItem) []dashboard.Held {
	shown := make([]dashboard.Held, 0, len(items))
	for _, item := range items {
		shown = append(shown, dashboard.Held{Object: item.Object, Held: item.Held, Since: item.Since, Clusters: item.Clusters, Next: item.Next})
	}
	return shown
}

// When implements dashboard.Sayings.
func (s *sayings) When(event *eventsv1.Event) *metav1.Time { return timeOf(event) }

// Rollout implements dashboard.Sayings.
func (s *sayings) Rollout(object fleet.Object) dashboard.Rollout {
	of := targetOf(object)
	item := s.rolloutOf(of, object)
	shown := dashboard.Rollout{Reason: item.Reason, Message: item.Message, Since: item.Since, Over: item.Over, Promoted: promotionEffects[item.Promotion]}
	counts := countStages(object.GetFleetStatus(), item.Clusters)
	for _, stage := range stageOrder {
		shown.Counts = append(shown.Counts, dashboard.StageCount{Stage: stage, Count: counts[stage]})
	}
	for _, stage := range item.Clusters {
		shown.Stages = append(shown.Stages, dashboard.Stage{
			Cluster: stage.Cluster, Stage: stage.Stage, Since: stage.Since, Ready: stage.Ready, Reason: stage.Reason, Message: stage.Message,
		})
	}
	for _, h := range heldAtObject(object) {
		if h.Held == item.Reason {
			shown.Next = h.Next
		}
	}
	return shown
}

// Differences implements dashboard.Sayings.
func (s *sayings) Differences(object fleet.Object, clusters []string, labels func(string) map[string]string) ([]dashboard.Difference, error) {
	if len(placementOf(object).Overrides) == 0 {
		return nil, nil
	}
	kind := kindOf(object)
	specs, err := fleet.NewSpecs(kind, object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flotillav1.ReasonOverrideInvalid, err)
	}
	base, _ := changes.Fields(kind.Spec(object)).(map[string]any)
	delete(base, "placement")
	var found []dashboard.Difference
	byHash := map[string]int{}
	for _, cluster := range clusters {
		want, err := specs.For(cluster, labels(cluster))
		if err != nil {
			return found, fmt.Errorf("%s: %w", flotillav1.ReasonOverrideInvalid, err)
		}
		key := want.Hash + "/" + want.LeftNames()
		at, known := byHash[key]
		if !known {
			at, byHash[key] = len(found), len(found)
			found = append(found, dashboard.Difference{Changes: overridden(base, want)})
		}
		found[at].Clusters = append(found[at].Clusters, cluster)
	}
	return slices.DeleteFunc(found, func(difference dashboard.Difference) bool { return len(difference.Changes) == 0 }), nil
}

// overridden returns the fields that differ in a cluster from the spec of the hub, and those that are left to the member.
func overridden(base map[string]any, want fleet.Effective) []string {
	changed := changes.Between(base, want.Spec)
	for _, path := range want.Left {
		field := strings.Join(path, ".")
		changed = slices.DeleteFunc(changed, func(change string) bool {
			return strings.HasPrefix(change, field+" ") || strings.HasPrefix(change, field+".")
		})
		changed = append(changed, field+" is left to the member")
	}
	return changed
}

// Why implements dashboard.Sayings.
func (s *sayings) Why(ctx context.Context, object fleet.Object, cluster string) (dashboard.Answer, error) {
	of, answer := targetOf(object), dashboard.Answer{Asked: s.Clock.Now()}
	member, err := s.ways.Hub.Member(ctx, cluster)
	if err != nil {
		return answer, err
	}
	if !slices.Contains(clustersOf(object), cluster) {
		answer.NotThere = fmt.Sprintf("%s is not in %s: %s", of, cluster, notChosen(object, member))
		return answer, nil
	}
	said, err := s.explain(ctx, s.ways, of, object, member)
	if said == nil {
		return answer, err
	}
	for _, found := range said.first {
		answer.First = append(answer.First, dashboard.Finding{Text: found.what, Meaning: found.remedy})
	}
	answer.Tree, answer.Well, answer.Because, answer.Meaning, answer.Warnings = s.rows(said.root, "", ""), said.well, said.because, said.meaning, said.warnings
	answer.Compared, answer.Differences = s.compare(ctx, of, object, member)
	return answer, err
}

// compare compares the spec of a copy with what the hub wants there.
func (s *sayings) compare(ctx context.Context, of target, object fleet.Object, member *flotillav1.MemberCluster) (said string, differences []string) {
	failed := func(err error) (string, []string) {
		what, _ := console.Split(err)
		return "It could not be compared: " + what, nil
	}
	specs, err := fleet.NewSpecs(of.kind, object)
	if err != nil {
		return failed(err)
	}
	want, err := specs.For(member.Name, member.Labels)
	if err != nil {
		return failed(err)
	}
	there, err := s.ways.Into(ctx, member)
	if err != nil {
		return failed(err)
	}
	copied := of.kind.New()
	if err := there.Get(ctx, of.key, copied); apierrors.IsNotFound(err) {
		return "The member has no such object.", nil
	} else if err != nil {
		return failed(there.Explain("reading "+of.String(), err))
	}
	spec, err := want.Onto(of.kind.Spec(copied))
	if err != nil {
		return failed(err)
	}
	// What the hub does not state has the default of the member.
	differences = slices.DeleteFunc(changes.Between(spec, of.kind.Spec(copied)), func(change string) bool { return strings.Contains(change, " unset → ") })
	if len(differences) == 0 {
		return "It is what the hub wants in this cluster.", nil
	}
	return "What the hub wants in this cluster, and what it has:", differences
}
