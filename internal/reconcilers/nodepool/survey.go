// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// maxGroups bounds resources, architectures and zones: nodes are described by whoever runs the member.
	maxGroups = 64
	// otherGroup takes what is beyond.
	otherGroup = "other"
	// maxGroupName is the limit of the CRD.
	maxGroupName = 63
	// maxPlanChanges is the limit of the CRD.
	maxPlanChanges = 50
	// keptKeys is how many keys a pool may have had without any being dropped from status.ownedKeys; maxOwnedKeys is
	// the limit of the CRD.
	keptKeys, maxOwnedKeys = 256, 512
)

// census is what the nodes of a member are for one pool. The slices hold names of nodes.
type census struct {
	counts flotillav1.NodePoolCounts
	// carriers is how many nodes have an entry of the pool in their record.
	carriers int
	// pending lack something; of these, failing could not be patched, fighting are left alone, oversized have too
	// large a record, waiting wait for their turn to get NoExecute taints, refused are asked for system keys, and
	// looping are left alone because they would join and leave for ever.
	pending, failing, fighting, oversized, waiting, refused, looping []string
	conflicting, notReady                                            []string
	// loopPools are the pools that decide about each other, by loopLabels.
	loopPools  sets.Set[string]
	loopLabels []string
	// failure is why the first of failing failed.
	failure failure
	// conflictKeys, fightKeys and refusedKeys are the keys concerned; recordedKeys are those in any record.
	conflictKeys, fightKeys, refusedKeys, recordedKeys sets.Set[string]
	// changes are what a dry run would do, on changing nodes.
	changes  sets.Set[string]
	changing int
	halted   bool
	// roleValues are the values that the role label of the pool has on its nodes.
	roleValues sets.Set[string]
	// usage is what was known of the Pods, when the pool asks for it.
	usage usage
}

// surveyInput is what a census is taken from.
type surveyInput struct {
	pool  *flotillav1.NodePool
	views []*view
	nodes []corev1.Node
	// failure and fought ask the ledger.
	failure func(node string) failure
	fought  func(node *corev1.Node, k key) bool
	now     time.Time
	// usage is what the Pods ask for, when the pool wants to know.
	usage usage
}

// survey counts the nodes of a pool by planning each as if the pool had all authority. It is pure.
func survey(in surveyInput) census {
	c := census{
		conflictKeys: sets.New[string](), fightKeys: sets.New[string](), refusedKeys: sets.New[string](),
		recordedKeys: sets.New[string](), changes: sets.New[string](), loopPools: sets.New[string](), usage: in.usage,
		roleValues: sets.New[string](),
	}
	self, views := supposingSelf(in.pool, in.views)
	var turns rollout
	if self.evicts() {
		turns = rolloutOf(self, in.nodes, in.now)
		c.halted = turns.halted
	}
	sums := newSums()
	for i := range in.nodes {
		node := &in.nodes[i]
		matches := self.matches(node)
		if !matches && !mayRecord(node, in.pool.Name) {
			continue
		}
		before := recordOf(node)
		if recorded := c.addRecord(before, in.pool.Name); !matches && !recorded {
			continue
		}
		planned := planRecorded(input{
			node: node, views: views, now: metav1.NewTime(in.now),
			fought:   func(k key) bool { return in.fought(node, k) },
			mayEvict: func(v *view) bool { return v != self || turns.turns.Has(node.Name) },
		}, before)
		if o := planned.outcomes[in.pool.Name]; o != nil {
			c.add(node.Name, matches, o, in.failure)
		}
		if matches {
			if role, ok := node.Labels[flotillav1.NodeRolePrefix+in.pool.Name]; ok {
				c.roleValues.Insert(role)
			}
			sums.add(node, in.usage.byNode[node.Name])
			if !isReady(node) {
				c.notReady = append(c.notReady, node.Name)
			}
		}
	}
	c.loopLabels = loopLabels(views, c.loopPools)
	sums.into(&c.counts)
	c.addUsage(in.pool, sums.requested)
	c.counts.UpdatedNodes = c.counts.NodeCount - c.unsettledMembers(in.nodes, self)
	c.counts.ConflictingNodes = int32(len(c.conflicting))
	return c
}

// supposingSelf returns the pool's view with all authority, and the views with it in place.
func supposingSelf(pool *flotillav1.NodePool, views []*view) (*view, []*view) {
	self := viewOf(pool).supposing()
	all := slices.DeleteFunc(slices.Clone(views), func(v *view) bool { return v.name == pool.Name })
	all = append(all, self)
	sortViews(all)
	return self, all
}

// addRecord takes the pool's entry in the record of one node into account and reports whether there is one.
func (c *census) addRecord(before record, poolName string) bool {
	recorded, ok := before[poolName]
	if !ok {
		return false
	}
	c.carriers++
	for k := range recorded.items {
		c.recordedKeys.Insert(k.String())
	}
	return true
}

// add takes the outcome of one node into account.
func (c *census) add(node string, matches bool, o *outcome, why func(string) failure) {
	if matches && len(o.conflicts) > 0 {
		c.conflicting = append(c.conflicting, node)
		c.conflictKeys.Insert(o.conflicts...)
	}
	if o.settled() {
		return
	}
	c.pending = append(c.pending, node)
	if why := why(node); why != (failure{}) {
		c.failing = append(c.failing, node)
		c.failure = cmp.Or(c.failure, why)
	}
	if len(o.fights) > 0 {
		c.fighting = append(c.fighting, node)
		c.fightKeys.Insert(o.fights...)
	}
	if len(o.loop) > 0 {
		c.looping = append(c.looping, node)
		c.loopPools.Insert(o.loop...)
	}
	if len(o.refused) > 0 {
		c.refused = append(c.refused, node)
		c.refusedKeys.Insert(o.refused...)
	}
	if o.tooLarge {
		c.oversized = append(c.oversized, node)
	}
	if o.evictionHeld {
		c.waiting = append(c.waiting, node)
	}
	c.changing++
	c.changes.Insert(o.changes...)
}

// unsettledMembers counts the nodes of the pool that do not carry what the spec says, be it for a conflict.
func (c *census) unsettledMembers(nodes []corev1.Node, self *view) int32 {
	unsettled := sets.New(c.pending...).Insert(c.conflicting...)
	var n int32
	for i := range nodes {
		if unsettled.Has(nodes[i].Name) && self.matches(&nodes[i]) {
			n++
		}
	}
	return n
}

// addUsage publishes what the Pods ask for. While that is not known, the last numbers stay.
func (c *census) addUsage(pool *flotillav1.NodePool, requested corev1.ResourceList) {
	if !wantsUsage(pool) {
		return
	}
	c.counts.Requested = pool.Status.Requested
	if c.usage.byNode != nil && c.usage.why == (failure{}) {
		c.counts.Requested = settled(pool.Status.Requested, bounded(requested), c.counts.Allocatable)
	}
	c.counts.Utilize()
}

// wantsUsage reports whether the pool's status tells what Pods ask for.
func wantsUsage(pool *flotillav1.NodePool) bool {
	return pool.Spec.Reporting != nil && pool.Spec.Reporting.Requested
}

// sums adds nodes up.
type sums struct {
	counts                                        flotillav1.NodePoolCounts
	capacity, allocatable, schedulable, requested corev1.ResourceList
	architectures, zones                          map[string]flotillav1.NodeGroup
}

func newSums() *sums {
	// CPU and memory are there, as zeros, for an empty pool as well.
	zeros := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0"), corev1.ResourceMemory: resource.MustParse("0")}
	return &sums{
		capacity: zeros.DeepCopy(), allocatable: zeros.DeepCopy(), schedulable: zeros.DeepCopy(), requested: zeros.DeepCopy(),
		architectures: map[string]flotillav1.NodeGroup{}, zones: map[string]flotillav1.NodeGroup{},
	}
}

func (s *sums) add(node *corev1.Node, requested corev1.ResourceList) {
	ready := isReady(node)
	s.counts.NodeCount++
	if ready {
		s.counts.ReadyNodes++
	}
	if node.Spec.Unschedulable {
		s.counts.UnschedulableNodes++
	}
	addResources(s.capacity, node.Status.Capacity)
	addResources(s.allocatable, node.Status.Allocatable)
	addResources(s.requested, requested)
	if ready && !node.Spec.Unschedulable {
		addResources(s.schedulable, node.Status.Allocatable)
	}
	addToGroup(s.architectures, cmp.Or(node.Status.NodeInfo.Architecture, node.Labels[corev1.LabelArchStable]), ready)
	addToGroup(s.zones, node.Labels[corev1.LabelTopologyZone], ready)
}

func (s *sums) into(counts *flotillav1.NodePoolCounts) {
	*counts = s.counts
	counts.Capacity, counts.Allocatable, counts.Schedulable = bounded(s.capacity), bounded(s.allocatable), bounded(s.schedulable)
	counts.Architectures, counts.Zones = groups(s.architectures), groups(s.zones)
}

func addResources(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// bounded keeps the first names, CPU and memory always among them, and writes quantities in their usual form.
func bounded(sum corev1.ResourceList) corev1.ResourceList {
	basic := func(name corev1.ResourceName) int {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			return 0
		}
		return 1
	}
	names := slices.SortedFunc(maps.Keys(sum), func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(basic(a), basic(b)), cmp.Compare(a, b))
	})
	out := make(corev1.ResourceList, min(len(names), maxGroups))
	for _, name := range names[:min(len(names), maxGroups)] {
		out[name] = sum[name]
	}
	return out
}

func addToGroup(all map[string]flotillav1.NodeGroup, name string, ready bool) {
	name = clean(name, maxGroupName)
	if name == "" {
		return
	}
	group := all[name]
	group.Name = name
	group.NodeCount++
	if ready {
		group.ReadyNodes++
	}
	all[name] = group
}

// groups sorts by name and adds what is beyond the limit up under "other".
func groups(all map[string]flotillav1.NodeGroup) []flotillav1.NodeGroup {
	if len(all) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Values(all), func(a, b flotillav1.NodeGroup) int { return cmp.Compare(a.Name, b.Name) })
	if len(out) <= maxGroups {
		return out
	}
	other := flotillav1.NodeGroup{Name: otherGroup}
	kept := out[:0:0]
	for _, group := range out {
		if len(kept) < maxGroups-1 && group.Name != otherGroup {
			kept = append(kept, group)
			continue
		}
		other.NodeCount += group.NodeCount
		other.ReadyNodes += group.ReadyNodes
	}
	return append(kept, other)
}

// ownedKeys returns the keys that the spec has or had. Those that it had are dropped only when there are very many and
// no record lists them: a patch that was planned before the spec changed may still be on its way.
func ownedKeys(pool *flotillav1.NodePool, recorded sets.Set[string]) []string {
	wanted := sets.New[string]()
	for _, w := range viewOf(pool).wishes {
		wanted.Insert(w.key.String())
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
