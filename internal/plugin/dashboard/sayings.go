// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// Sayings are what the commands of the plugin say about objects. The page says the same, in the same words.
type Sayings interface {
	// Hub returns the state of the hub. The error is that of a hub that does not answer.
	Hub(ctx context.Context) (HubState, error)
	// Meaning returns what a reason means and what to do, if that is known.
	Meaning(reason string) string
	// Unmet returns the condition of a member that the others wait for, and since when.
	Unmet(member *flotillav1.MemberCluster) (metav1.Condition, *metav1.Time)
	// Urgency ranks members: lower ones need attention first.
	Urgency(member *flotillav1.MemberCluster) int
	// Name returns the name of a hub object as arguments have it, and Clusters where it is placed, sorted.
	Name(object fleet.Object) string
	Clusters(object fleet.Object) []string
	// Unwell lists where a hub object is not well, and Attention what a member has of its own that is not; placed reports
	// whether a hub object of that name is placed there.
	Unwell(object fleet.Object) []Row
	Attention(member *flotillav1.MemberCluster, placed func(name string) bool) []Row
	// HeldMember and HeldObject list what waits for a person.
	HeldMember(member *flotillav1.MemberCluster) []Held
	HeldObject(object fleet.Object) []Held
	// Rollout returns how far the last change of a hub object has come.
	Rollout(object fleet.Object) Rollout
	// Differences returns what the overrides of a hub object change in which of the clusters.
	Differences(object fleet.Object, clusters []string, labels func(cluster string) map[string]string) ([]Difference, error)
	// Why explains a hub object in a cluster, which it looks into, and compares the specs.
	Why(ctx context.Context, object fleet.Object, cluster string) (Answer, error)
	// When returns when an event was last recorded.
	When(event *eventsv1.Event) *metav1.Time
}

// HubState is the state of the hub itself.
type HubState struct {
	// Context is the name of the context, and ID that of the hub, if it is known.
	Context, ID string
	// Manager says how its manager is, and Alive whether that is well.
	Manager string
	Alive   bool
	// Frozen says why the fleet is frozen; empty if it is not.
	Frozen string
}

// Row is something that is not well.
type Row struct {
	// Object and Cluster are named as arguments are. Cluster is a dash if it is nowhere.
	Object, Cluster string
	Ready           metav1.ConditionStatus
	Reason          string
	Since           *metav1.Time
	Message         string
}

// Held is something that waits for a person.
type Held struct {
	Object, Held string
	Since        *metav1.Time
	Clusters     []string
	// Next is what to do.
	Next string
}

// Rollout is how far a change of a hub object has come.
type Rollout struct {
	Reason, Message string
	Since           *metav1.Time
	Over            bool
	// Promoted says what a promotion does, and Next how to go on.
	Promoted, Next string
	// Counts are the clusters by stage, in the order in which stages are shown, and Stages those that the hub lists.
	Counts []StageCount
	Stages []Stage
}

// StageCount counts the clusters in a stage.
type StageCount struct {
	Stage string
	Count int
}

// Stage is a cluster in a rollout.
type Stage struct {
	Cluster, Stage  string
	Since           *metav1.Time
	Ready           metav1.ConditionStatus
	Reason, Message string
}

// Difference is what overrides change in some clusters.
type Difference struct {
	Changes, Clusters []string
}

// Answer explains a hub object in a cluster.
type Answer struct {
	// Asked is when that was.
	Asked time.Time
	// First are the conditions that need a person.
	First []Finding
	// NotThere says why the object is not placed in the cluster; the rest is empty then.
	NotThere string
	// Tree has the columns OBJECT, READY, REASON, SINCE and DETAIL.
	Tree [][]console.Cell
	// Well says that all is well; otherwise Because says what is not, and Meaning what to do.
	Well, Because, Meaning string
	// Warnings are the last ones about the object and its parts.
	Warnings []eventsv1.Event
	// Compared says what the spec there was compared with, or why it was not, and Differences the fields that differ.
	Compared    string
	Differences []string
}

// Finding is a sentence, and what it means.
type Finding struct{ Text, Meaning string }
