// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const (
	// fightLimit rewrites of one key on one node within fightWindow are a fight: someone else means it too.
	fightLimit  = 3
	fightWindow = 10 * time.Minute
	// passInterval is the least time between two passes of a pool whose spec has not changed, so that a change of
	// 1,000 nodes is not 1,000 status writes.
	passInterval = time.Second
	// progressInterval is the least time between two status writes that only tell how far a change of nodes has come.
	progressInterval = time.Minute
)

// Ledger is what the two controllers remember between passes. All of it may be lost: it only slows things down.
// The zero value is ready to use.
type Ledger struct {
	mu sync.Mutex
	// The fields below are guarded by mu, which is never held over I/O.
	rewrites map[rewriteKey][]time.Time
	failures map[nodeKey]failure
	passes   map[poolKey]pass
	// wrote is when the status of a pool was last written.
	wrote map[poolKey]time.Time
	// waiting are the pools with nodes that wait for their turn to get NoExecute taints.
	waiting map[poolKey]bool
	// members are the Nodes that have been seen, gone those that are no more, and untold what is to be told of pools.
	members map[nodeKey]membership
	gone    map[types.UID]time.Time
	untold  map[poolKey]*news
	// begun counts the passes over nodes, running has the number of each that has not ended, and deletions what begun was
	// when a pool was first found to be deleted.
	begun     uint64
	running   map[nodeKey]uint64
	deletions map[poolKey]deletion
	// usages are what the Pods of a member ask for, and reading the members where somebody finds it out.
	usages  map[multicluster.ClusterName]usage
	reading map[multicluster.ClusterName]bool
}

type (
	nodeKey struct {
		cluster multicluster.ClusterName
		name    string
	}
	poolKey    nodeKey
	rewriteKey struct {
		nodeKey
		uid types.UID
		key key
	}
	// failure is why a node could not be patched, as a condition says it.
	failure struct{ reason, message string }
	// deletion is when a pool was found to be deleted, counted in passes over nodes.
	deletion struct {
		uid   types.UID
		begun uint64
	}
	// pass is what the last pass of a pool saw.
	pass struct {
		at         time.Time
		uid        types.UID
		generation int64
		deleting   bool
	}
)

// rewrote notes that a key was put back.
func (l *Ledger) rewrote(node nodeKey, uid types.UID, k key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rewrites == nil {
		l.rewrites = map[rewriteKey][]time.Time{}
	}
	at := rewriteKey{node, uid, k}
	l.rewrites[at] = append(l.recent(at, now), now)
}

// fought reports whether the key has been put back too often of late.
func (l *Ledger) fought(node nodeKey, uid types.UID, k key, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.recent(rewriteKey{node, uid, k}, now)) >= fightLimit
}

// recent drops what is out of the window. The caller holds mu.
func (l *Ledger) recent(at rewriteKey, now time.Time) []time.Time {
	times := l.rewrites[at]
	for len(times) > 0 && now.Sub(times[0]) >= fightWindow {
		times = times[1:]
	}
	if len(times) == 0 {
		delete(l.rewrites, at)
	}
	return times
}

// setFailure notes why the last patch of the node failed; the zero failure says that it did not.
func (l *Ledger) setFailure(node nodeKey, why failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why == (failure{}) {
		delete(l.failures, node)
		return
	}
	if l.failures == nil {
		l.failures = map[nodeKey]failure{}
	}
	l.failures[node] = why
}

// failure returns why the last patch of the node failed.
func (l *Ledger) failure(node nodeKey) failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures[node]
}

// setWrote notes that the status of a pool was written.
func (l *Ledger) setWrote(pool poolKey, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrote == nil {
		l.wrote = map[poolKey]time.Time{}
	}
	l.wrote[pool] = now
}

// wroteWithin reports whether the status of a pool was written less than so long ago.
func (l *Ledger) wroteWithin(pool poolKey, span time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.wrote[pool]
	return ok && now.Sub(last) < span
}

// begin notes a pass of a pool and returns how long it has to wait instead, if the last one was just now.
func (l *Ledger) begin(pool poolKey, next pass) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.passes[pool]
	if ok && last.uid == next.uid && last.generation == next.generation && last.deleting == next.deleting {
		if wait := passInterval - next.at.Sub(last.at); wait > 0 {
			return wait
		}
	}
	if l.passes == nil {
		l.passes = map[poolKey]pass{}
	}
	l.passes[pool] = next
	return 0
}

// setWaiting notes whether nodes of the pool wait for their turn.
func (l *Ledger) setWaiting(pool poolKey, waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !waiting {
		delete(l.waiting, pool)
		return
	}
	if l.waiting == nil {
		l.waiting = map[poolKey]bool{}
	}
	l.waiting[pool] = true
}

// isWaiting reports whether nodes of the pool wait for their turn.
func (l *Ledger) isWaiting(pool poolKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting[pool]
}

// working notes a pass over a node until the function it returns is called.
func (l *Ledger) working(node nodeKey) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[nodeKey]uint64{}
	}
	l.begun++
	l.running[node] = l.begun
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.running, node)
	}
}

// mayBeWrittenFor reports whether a pass over a node of the member still runs that began before the pool was found to be
// deleted. Later ones see the deletion, because both controllers read the same cache.
func (l *Ledger) mayBeWrittenFor(pool poolKey, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deletions == nil {
		l.deletions = map[poolKey]deletion{}
	}
	if l.deletions[pool].uid != uid {
		l.deletions[pool] = deletion{uid, l.begun}
	}
	for node, number := range l.running {
		if node.cluster == pool.cluster && number <= l.deletions[pool].begun {
			return true
		}
	}
	return false
}

// claimUsage returns what is known of a member's Pods, and whether the caller is to read them anew and set it.
func (l *Ledger) claimUsage(clusterName multicluster.ClusterName, now time.Time) (usage, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.usages[clusterName]
	if l.reading[clusterName] || !known.at.IsZero() && now.Sub(known.at) < usageInterval {
		return known, false
	}
	if l.reading == nil {
		l.reading = map[multicluster.ClusterName]bool{}
	}
	l.reading[clusterName] = true
	return known, true
}

// setUsage ends the reading.
func (l *Ledger) setUsage(clusterName multicluster.ClusterName, read usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reading, clusterName)
	if l.usages == nil {
		l.usages = map[multicluster.ClusterName]usage{}
	}
	l.usages[clusterName] = read
}

// forgetPool drops what is known about a pool that is gone.
func (l *Ledger) forgetPool(pool poolKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.passes, pool)
	delete(l.wrote, pool)
	delete(l.waiting, pool)
	delete(l.untold, pool)
	delete(l.deletions, pool)
}

// forgetNode drops what is known about a node that is gone.
func (l *Ledger) forgetNode(node nodeKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failures, node)
	maps.DeleteFunc(l.rewrites, func(at rewriteKey, _ []time.Time) bool { return at.nodeKey == node })
}

// forgetCluster drops what is known about a member that is offboarded.
func (l *Ledger) forgetCluster(name multicluster.ClusterName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.usages, name)
	maps.DeleteFunc(l.failures, func(node nodeKey, _ failure) bool { return node.cluster == name })
	maps.DeleteFunc(l.members, func(node nodeKey, _ membership) bool { return node.cluster == name })
	maps.DeleteFunc(l.rewrites, func(at rewriteKey, _ []time.Time) bool { return at.cluster == name })
	maps.DeleteFunc(l.passes, func(pool poolKey, _ pass) bool { return pool.cluster == name })
	maps.DeleteFunc(l.wrote, func(pool poolKey, _ time.Time) bool { return pool.cluster == name })
	maps.DeleteFunc(l.untold, func(pool poolKey, _ *news) bool { return pool.cluster == name })
	maps.DeleteFunc(l.deletions, func(pool poolKey, _ deletion) bool { return pool.cluster == name })
	maps.DeleteFunc(l.waiting, func(pool poolKey, _ bool) bool { return pool.cluster == name })
}
