// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// What the commands that read print with -o json or yaml. Scripts depend on it: fields are added, and neither renamed nor
// removed. Times are RFC 3339.

// itemList is a list of anything.
type itemList[T any] struct {
	Items []T `json:"items"`
}

// named is an item that has a name, which -o name prints.
type named interface{ name() string }

// printItems prints a list of items. With -o name it prints a name a line, as arguments name it, for xargs.
func printItems[T named](t *tool, output string, items []T) error {
	if output != "name" {
		return t.PrintValue(output, itemList[T]{items})
	}
	for _, item := range items {
		t.Resultf("%s", item.name())
	}
	return nil
}

// heldItem is something that waits for a person.
type heldItem struct {
	// Object is named as arguments name it: redis/shop/cache, nodepool/web, membercluster/eu-1.
	Object string `json:"object"`
	// Held is what waits: removal, leave, recreated, or the reason of a condition.
	Held     string       `json:"held"`
	Since    *metav1.Time `json:"since,omitempty"`
	Clusters []string     `json:"clusters,omitempty"`
	// Next is what to do.
	Next string `json:"next"`
}

func (i heldItem) name() string { return i.Object }

// expiryItem is the credential of a member.
type expiryItem struct {
	Member     string       `json:"member"`
	Credential string       `json:"credential,omitempty"`
	Ends       *metav1.Time `json:"ends,omitempty"`
	// State is the reason of condition CredentialsAccepted.
	State string `json:"state,omitempty"`
}

func (i expiryItem) name() string { return memberPath(i.Member) }

// rolloutItem is how far a rollout has come.
type rolloutItem struct {
	Object     string `json:"object"`
	Generation int64  `json:"generation"`
	// Reason and Message are those of condition Progressing, if that is about this generation.
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
	Over    bool         `json:"over"`
	// Promotion is Soak or Full if a person has promoted the rollout.
	Promotion fleet.Promotion `json:"promotion,omitempty"`
	Clusters  []stageItem     `json:"clusters"`
}

// stageItem is a cluster in a rollout.
type stageItem struct {
	Cluster string                 `json:"cluster"`
	Stage   string                 `json:"stage"`
	Since   *metav1.Time           `json:"since,omitempty"`
	Ready   metav1.ConditionStatus `json:"ready"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
}

// revisionItem is a revision of an object.
type revisionItem struct {
	Revision int64       `json:"revision"`
	Name     string      `json:"name"`
	Created  metav1.Time `json:"created"`
	Present  bool        `json:"present"`
	// Changed are the fields that differ from the revision before.
	Changed []string `json:"changed,omitempty"`
}

func (i revisionItem) name() string { return i.Name }

// treeItem is an object with what it consists of below it.
type treeItem struct {
	Kind    string                 `json:"kind"`
	Name    string                 `json:"name"`
	Ready   metav1.ConditionStatus `json:"ready,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	Since   *metav1.Time           `json:"since,omitempty"`
	Message string                 `json:"message,omitempty"`
	Below   []treeItem             `json:"below,omitempty"`
}

// whyItem is why an object is not ready in a cluster.
type whyItem struct {
	Object  string `json:"object"`
	Cluster string `json:"cluster"`
	// NotThere says why the object is not in the cluster. Nothing else is known then.
	NotThere string `json:"notThere,omitempty"`
	Well     bool   `json:"well"`
	// Because is the deepest object that is not well, and Meaning what its reason means and what to do.
	Because string `json:"because,omitempty"`
	Meaning string `json:"meaning,omitempty"`
	// Findings need a person: they come before all else.
	Findings []findingItem `json:"findings,omitempty"`
	Tree     *treeItem     `json:"tree,omitempty"`
	Warnings []warningItem `json:"warnings,omitempty"`
}

// warningItem is a Warning event.
type warningItem struct {
	Object string       `json:"object"`
	Reason string       `json:"reason"`
	Note   string       `json:"note"`
	Last   *metav1.Time `json:"last,omitempty"`
}

// trialItem is what a change would do on the hub or in a cluster.
type trialItem struct {
	Object string `json:"object"`
	// Cluster is empty for the hub.
	Cluster string `json:"cluster,omitempty"`
	// Result is created, changed, unchanged, refused, not tried or not chosen.
	Result string `json:"result"`
	// Effect is what a change does to Pods.
	Effect string `json:"effect,omitempty"`
	// Changes are the fields that change, and Detail what else there is to say.
	Changes []string `json:"changes,omitempty"`
	Detail  string   `json:"detail,omitempty"`
}

// orphanItem is a copy without an object on the hub.
type orphanItem struct {
	Cluster string `json:"cluster"`
	Object  string `json:"object"`
}

// examinedItem is the hub or a member as doctor finds it.
type examinedItem struct {
	Where    string        `json:"where"`
	Well     []string      `json:"well,omitempty"`
	Findings []findingItem `json:"findings,omitempty"`
}

// findingItem is a finding of doctor.
type findingItem struct {
	// Severity is problem, warning or note.
	Severity string `json:"severity"`
	What     string `json:"what"`
	Remedy   string `json:"remedy,omitempty"`
}

// addOutput adds the flag --output to a command, for json, yaml and other formats. An unknown value is refused before anything is read.
func addOutput(c *cobra.Command, output *string, others ...string) {
	formats := append([]string{"json", "yaml"}, others...)
	c.Flags().StringVarP(output, "output", "o", "", strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = func(*cobra.Command, []string) error {
		if *output != "" && !slices.Contains(formats, *output) {
			return console.BadOutput(*output, formats...)
		}
		return nil
	}
}

// at returns a time, or nil for none.
func at(when time.Time) *metav1.Time {
	if when.IsZero() {
		return nil
	}
	return &metav1.Time{Time: when.UTC()}
}

// items describes the branch and everything below it.
func (b *branch) items() treeItem {
	item := treeItem{Kind: b.kind, Name: b.name, Ready: b.ready, Reason: b.reason, Since: b.since, Message: b.detail}
	for _, below := range b.below {
		item.Below = append(item.Below, below.items())
	}
	return item
}

// item describes an examination.
func (e *examination) item() examinedItem {
	return examinedItem{Where: e.where, Well: e.well, Findings: findingItems(e.findings)}
}

// findingItems describes findings.
func findingItems(findings []finding) []findingItem {
	var items []findingItem
	for _, f := range findings {
		items = append(items, findingItem{
			Severity: map[severity]string{note: "note", warning: "warning", problem: "problem"}[f.severity], What: f.what, Remedy: f.remedy,
		})
	}
	return items
}

// rolloutOf describes how far the rollout of an object has come.
func (t *tool) rolloutOf(of target, object fleet.Object) rolloutItem {
	item := rolloutItem{Object: of.String(), Generation: object.GetGeneration(), Over: rolloutOver(object), Promotion: fleet.PromotionOf(object), Clusters: t.stagesOf(object)}
	if progressing := condition.Of(*object.GetConditions(), flotillav1.ConditionProgressing); progressing.ObservedGeneration == object.GetGeneration() {
		item.Reason, item.Message, item.Since = progressing.Reason, progressing.Message, at(progressing.LastTransitionTime.Time)
	}
	return item
}
