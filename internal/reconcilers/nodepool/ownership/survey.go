// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// keptKeys is how many keys a pool may have had without any being dropped from status.ownedKeys; maxOwnedKeys is the limit
// of the CRD.
const keptKeys, maxOwnedKeys = 256, 512

// Failure is why something could not be done, as a condition shows it. The zero value is no failure.
type Failure struct{ Reason, Message string }

// Survey is what the nodes of a member mean for one pool. Slices contain names of nodes.
type Survey struct {
	Counts flotillav1.NodePoolCounts
	// Carriers is how many nodes have an entry of the pool in their record.
	Carriers int
	// Pending are the nodes that lack something.
	Pending []string
	// These are all pending: Failing could not be patched, Fighting are left as they are for now, Oversized have too large
	// a record, Waiting wait for their turn to receive NoExecute taints, Refused would need keys that no spec may contain,
	// and Looping would join and leave forever.
	Failing, Fighting, Oversized, Waiting, Refused, Looping []string
	// Conflicting have a key with another value, and NotReady are not ready.
	Conflicting, NotReady []string
	// LoopPools are the pools that affect each other through LoopLabels.
	LoopPools  sets.Set[string]
	LoopLabels []string
	// Failure is why the first of Failing failed.
	Failure Failure
	// ConflictKeys, FightKeys and RefusedKeys are the keys concerned; RecordedKeys are those in any record.
	ConflictKeys, FightKeys, RefusedKeys, RecordedKeys sets.Set[string]
	// Changes are what a dry run would do on the pending nodes.
	Changes sets.Set[string]
	// Halted is set when NoExecute taints wait because too many nodes are not ready.
	Halted bool
	// RoleValues are the values of the pool's role label on its nodes.
	RoleValues sets.Set[string]
	// Usage is that of the input.
	Usage *Usage
}

// SurveyInput is everything that a survey depends on. All fields but Usage are required.
type SurveyInput struct {
	Pool *flotillav1.NodePool
	// Views are all pools of the member in order of precedence.
	Views []*View
	Nodes []corev1.Node
	// Failure returns why the last patch of a node failed.
	Failure func(node string) Failure
	// Fought reports whether a key has been put back so often that it is left as it is for now.
	Fought func(node *corev1.Node, k Key) bool
	Now    time.Time
	// Usage is what the Pods of the member request; nil if the pool does not report it.
	Usage *Usage
}

// SurveyNodes counts the nodes of a pool by planning each as if the pool had all authority.
func SurveyNodes(in SurveyInput) Survey {
	s := Survey{
		ConflictKeys: sets.New[string](), FightKeys: sets.New[string](), RefusedKeys: sets.New[string](),
		RecordedKeys: sets.New[string](), Changes: sets.New[string](), LoopPools: sets.New[string](), Usage: in.Usage,
		RoleValues: sets.New[string](),
	}
	self, views := selfWithAuthority(in.Pool, in.Views)
	var rollout Rollout
	if self.evicts() {
		rollout = RolloutOf(self, in.Nodes, in.Now)
		s.Halted = rollout.Halted
	}
	var used Requests
	if in.Usage != nil {
		used = in.Usage.ByNode
	}
	totals := newTotals()
	for i := range in.Nodes {
		node := &in.Nodes[i]
		matches := self.Matches(node)
		if !matches && !mayRecord(node, in.Pool.Name) {
			continue
		}
		before := recordOf(node)
		if recorded := s.addRecord(before, in.Pool.Name); !matches && !recorded {
			continue
		}
		planned := planRecorded(PlanInput{
			Node: node, Views: views, Now: in.Now,
			Fought:   func(k Key) bool { return in.Fought(node, k) },
			MayEvict: func(v *View) bool { return v != self || rollout.Turns.Has(node.Name) },
		}, before)
		if o := planned.Outcomes[in.Pool.Name]; o != nil {
			s.addOutcome(node.Name, matches, o, in.Failure)
		}
		if matches {
			s.addMember(node, in.Pool.Name)
			totals.add(node, used[node.Name])
		}
	}
	s.LoopLabels = loopLabels(views, s.LoopPools)
	s.Counts = totals.counts()
	if in.Usage != nil {
		s.Counts.Requested = in.Usage.publish(in.Pool.Status.Requested, totals.requested, s.Counts.Allocatable)
		s.Counts.Utilize()
	}
	s.Counts.UpdatedNodes = s.Counts.NodeCount - s.unfinishedMembers(in.Nodes, self)
	s.Counts.ConflictingNodes = int32(len(s.Conflicting))
	return s
}

// selfWithAuthority returns the pool's view with all authority, and the views with that one among them.
func selfWithAuthority(pool *flotillav1.NodePool, views []*View) (*View, []*View) {
	self := NewView(pool).withAuthority()
	all := slices.DeleteFunc(slices.Clone(views), func(v *View) bool { return v.Pool.Name == pool.Name })
	all = append(all, self)
	sortViews(all)
	return self, all
}

// addRecord adds the pool's entry in the record of one node and reports whether there is one.
func (s *Survey) addRecord(before record, poolName string) bool {
	recorded, ok := before[poolName]
	if !ok {
		return false
	}
	s.Carriers++
	for k := range recorded.items {
		s.RecordedKeys.Insert(k.String())
	}
	return true
}

// addMember adds a node that belongs to the pool.
func (s *Survey) addMember(node *corev1.Node, poolName string) {
	if role, ok := node.Labels[flotillav1.NodeRolePrefix+poolName]; ok {
		s.RoleValues.Insert(role)
	}
	if !IsReady(node) {
		s.NotReady = append(s.NotReady, node.Name)
	}
}

// addOutcome adds the outcome of one node.
func (s *Survey) addOutcome(node string, matches bool, o *Outcome, failure func(string) Failure) {
	if matches && len(o.Conflicts) > 0 {
		s.Conflicting = append(s.Conflicting, node)
		s.ConflictKeys.Insert(o.Conflicts...)
	}
	if o.Done() {
		return
	}
	s.Pending = append(s.Pending, node)
	if why := failure(node); why != (Failure{}) {
		s.Failing = append(s.Failing, node)
		s.Failure = cmp.Or(s.Failure, why)
	}
	if len(o.Fights) > 0 {
		s.Fighting = append(s.Fighting, node)
		s.FightKeys.Insert(o.Fights...)
	}
	if len(o.Loop) > 0 {
		s.Looping = append(s.Looping, node)
		s.LoopPools.Insert(o.Loop...)
	}
	if len(o.Refused) > 0 {
		s.Refused = append(s.Refused, node)
		s.RefusedKeys.Insert(o.Refused...)
	}
	if o.TooLarge {
		s.Oversized = append(s.Oversized, node)
	}
	if o.EvictionHeld {
		s.Waiting = append(s.Waiting, node)
	}
	s.Changes.Insert(o.Changes...)
}

// unfinishedMembers counts the nodes of the pool that do not carry what the spec says, including conflicts.
func (s *Survey) unfinishedMembers(nodes []corev1.Node, self *View) int32 {
	unfinished := sets.New(s.Pending...).Insert(s.Conflicting...)
	var n int32
	for i := range nodes {
		if unfinished.Has(nodes[i].Name) && self.Matches(&nodes[i]) {
			n++
		}
	}
	return n
}

// OwnedKeys returns the keys that the spec has or had, for status.ownedKeys. A patch that was planned before the spec changed
// may still arrive, so keys that the spec had are dropped only if there are very many, and first those in no record.
func OwnedKeys(pool *flotillav1.NodePool, recorded sets.Set[string]) []string {
	wanted := sets.New[string]()
	for _, d := range NewView(pool).desired {
		wanted.Insert(d.key.String())
	}
	keys := wanted.Union(sets.New(pool.Status.OwnedKeys...))
	if keys.Len() > keptKeys {
		keys = wanted.Union(keys.Intersection(recorded))
	}
	if keys.Len() <= maxOwnedKeys {
		return sets.List(keys)
	}
	had := sets.List(keys.Difference(wanted))
	return sets.List(wanted.Insert(had[:maxOwnedKeys-wanted.Len()]...))
}
