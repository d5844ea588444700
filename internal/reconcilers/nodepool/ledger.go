// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

const (
	// fightLimit is how many times within fightWindow one key on one node is put back before it counts as a fight.
	fightLimit  = 3
	fightWindow = 10 * time.Minute
	// passInterval is the minimum time between two passes of a pool whose spec has not changed, so that a change of
	// 1,000 nodes does not cause 1,000 status writes.
	passInterval = time.Second
	// progressInterval is the minimum time between two status writes that only report progress.
	progressInterval = time.Minute
)

// Ledger is what the two controllers remember between passes. All of it may be lost; that only delays work.
type Ledger struct {
	fights fights
	// failures are why the last patch of nodes failed.
	failures *memory[nodeKey, ownership.Failure]
	paces    paces
	inFlight *inFlight
	seen     *memberships
	news     unreported
	usages   *usages
}

// NewLedger returns an empty Ledger.
func NewLedger() *Ledger {
	return &Ledger{
		fights:   fights{newMemory[rewrite, []time.Time]()},
		failures: newMemory[nodeKey, ownership.Failure](),
		paces:    paces{newMemory[poolKey, pass](), newMemory[poolKey, time.Time](), newMemory[poolKey, bool]()},
		inFlight: &inFlight{nodes: map[nodeKey]uint64{}, deletions: map[poolKey]deletion{}},
		seen:     &memberships{byNode: map[nodeKey]membership{}, gone: map[types.UID]time.Time{}},
		news:     unreported{newMemory[poolKey, news]()},
		usages:   &usages{byCluster: map[multicluster.ClusterName]ownership.Usage{}, reading: map[multicluster.ClusterName]bool{}},
	}
}

// forgetPool drops what is known about a pool that is gone.
func (l *Ledger) forgetPool(pool poolKey) {
	l.forgetPools(func(at poolKey) bool { return at == pool })
}

// forgetNode drops what is known about a node that is gone, except for its membership.
func (l *Ledger) forgetNode(node nodeKey) {
	l.forgetNodes(func(at nodeKey) bool { return at == node })
}

// forgetCluster drops what is known about a member that is offboarded.
func (l *Ledger) forgetCluster(name multicluster.ClusterName) {
	l.forgetPools(func(at poolKey) bool { return at.cluster == name })
	l.forgetNodes(func(at nodeKey) bool { return at.cluster == name })
	l.seen.forget(name)
	l.usages.forget(name)
}

func (l *Ledger) forgetPools(which func(poolKey) bool) {
	l.paces.passes.forget(which)
	l.paces.writes.forget(which)
	l.paces.waiting.forget(which)
	l.inFlight.forget(which)
	l.news.forget(which)
}

func (l *Ledger) forgetNodes(which func(nodeKey) bool) {
	l.failures.forget(which)
	l.fights.forget(func(at rewrite) bool { return which(at.node) })
}

type (
	nodeKey struct {
		cluster multicluster.ClusterName
		name    string
	}
	poolKey nodeKey
)

// memory is a map that is safe for concurrent use. Its lock is not held over I/O.
type memory[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

func newMemory[K comparable, V any]() *memory[K, V] {
	return &memory[K, V]{values: map[K]V{}}
}

func (m *memory[K, V]) get(k K) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[k]
}

func (m *memory[K, V]) set(k K, v V) {
	m.update(k, func(V) V { return v })
}

// update replaces a value by what the function makes of it.
func (m *memory[K, V]) update(k K, change func(V) V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[k] = change(m.values[k])
}

// remove removes a value and returns it.
func (m *memory[K, V]) remove(k K) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.values[k]
	delete(m.values, k)
	return v
}

func (m *memory[K, V]) forget(which func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.values, func(k K, _ V) bool { return which(k) })
}

// fights remembers when keys were put back within the last fightWindow.
type fights struct{ *memory[rewrite, []time.Time] }

// rewrite is a key of a node that is put back.
type rewrite struct {
	node nodeKey
	uid  types.UID
	key  ownership.Key
}

// add records that a key was put back.
func (f fights) add(at rewrite, now time.Time) {
	f.update(at, func(times []time.Time) []time.Time { return append(recent(times, now), now) })
}

// ongoing reports whether the key was put back too often recently.
func (f fights) ongoing(at rewrite, now time.Time) bool {
	return len(recent(f.get(at), now)) >= fightLimit
}

// recent returns the times within the last fightWindow. Times are in order.
func recent(times []time.Time, now time.Time) []time.Time {
	i := slices.IndexFunc(times, func(t time.Time) bool { return now.Sub(t) < fightWindow })
	if i < 0 {
		return nil
	}
	return times[i:]
}

// paces limits how often pools are reconciled and written.
type paces struct {
	// passes are the last passes of pools, and writes when their status was last written.
	passes *memory[poolKey, pass]
	writes *memory[poolKey, time.Time]
	// waiting are the pools with nodes that wait for their turn to receive NoExecute taints.
	waiting *memory[poolKey, bool]
}

// pass is what a pass of a pool observed.
type pass struct {
	at         time.Time
	uid        types.UID
	generation int64
	deleting   bool
}

// begin records a pass of a pool, or returns how long it has to wait because the last one was too recent. The queue never
// runs two passes of one pool at a time.
func (p paces) begin(pool poolKey, next pass) time.Duration {
	last := p.passes.get(pool)
	if last.uid == next.uid && last.generation == next.generation && last.deleting == next.deleting {
		if wait := passInterval - next.at.Sub(last.at); wait > 0 {
			return wait
		}
	}
	p.passes.set(pool, next)
	return 0
}

// inFlight remembers which passes over nodes are running, so that a deleted pool waits for patches planned before.
type inFlight struct {
	mu sync.Mutex
	// begun counts the passes over nodes, and nodes has the number of each running one.
	begun uint64
	nodes map[nodeKey]uint64
	// deletions has what begun was when a pool was first observed to be deleted.
	deletions map[poolKey]deletion
}

type deletion struct {
	uid   types.UID
	begun uint64
}

// begin records a pass over a node until the returned function is called.
func (f *inFlight) begin(node nodeKey) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun++
	f.nodes[node] = f.begun
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.nodes, node)
	}
}

// mayWriteFor reports whether a pass over a node of the member is still running that began before the pool was observed to
// be deleted. Later passes see the deletion, because both controllers read the same cache.
func (f *inFlight) mayWriteFor(pool poolKey, uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deletions[pool].uid != uid {
		f.deletions[pool] = deletion{uid, f.begun}
	}
	for node, number := range f.nodes {
		if node.cluster == pool.cluster && number <= f.deletions[pool].begun {
			return true
		}
	}
	return false
}

func (f *inFlight) forget(which func(poolKey) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.deletions, func(at poolKey, _ deletion) bool { return which(at) })
}
