// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

// goneFor is how long a deleted Node is remembered, so that late observations of it are ignored.
const goneFor = 10 * time.Minute

// memberships remembers which pools Nodes are recorded in, so that a Node that is deleted leaves its pools.
type memberships struct {
	mu     sync.Mutex
	byNode map[nodeKey]membership
	// gone has when Nodes were observed to be deleted.
	gone map[types.UID]time.Time
}

// membership is which pools a Node is recorded in, as of one of its versions.
type membership struct {
	uid     types.UID
	version string
	pools   []string
}

// observe records which pools a Node is in. Observations older than the last one are ignored. If the last one was of another
// Node with the same name, observe returns what is known of that one, which is gone.
func (m *memberships) observe(at nodeKey, node *corev1.Node) membership {
	observed := membership{uid: node.UID, version: node.ResourceVersion, pools: ownership.RecordedPools(node)}
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.byNode[at]
	if _, gone := m.gone[node.UID]; gone || ok && older(observed.version, known.version) {
		return membership{}
	}
	m.byNode[at] = observed
	if known.uid == observed.uid {
		return membership{}
	}
	return known
}

// older reports whether one resourceVersion is older than another. Versions that cannot be compared are not.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// end records that there is no Node of the name any more, and returns what is known of the last one.
func (m *memberships) end(at nodeKey, now time.Time) membership {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.byNode[at]
	if ok {
		delete(m.byNode, at)
		maps.DeleteFunc(m.gone, func(_ types.UID, since time.Time) bool { return now.Sub(since) > goneFor })
		m.gone[known.uid] = now
	}
	return known
}

// nodes returns the names of the Nodes of a member that were observed and are not known to be gone.
func (m *memberships) nodes(clusterName multicluster.ClusterName) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for at := range m.byNode {
		if at.cluster == clusterName {
			names = append(names, at.name)
		}
	}
	return names
}

func (m *memberships) forget(clusterName multicluster.ClusterName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.byNode, func(at nodeKey, _ membership) bool { return at.cluster == clusterName })
}

// news is what happened to nodes of a pool since its last pass, by name of the node.
type news struct{ joined, left, healed map[string]nodeNews }

// nodeNews is what happened to one node; keys are set if they were put back.
type nodeNews struct {
	uid  types.UID
	keys []string
}

// unreported has the news that the next pass of a pool reports as events.
type unreported struct{ *memory[poolKey, news] }

// add changes the news of a pool.
func (u unreported) add(pool poolKey, change func(*news)) {
	u.update(pool, func(n news) news {
		if n.joined == nil {
			n = news{joined: map[string]nodeNews{}, left: map[string]nodeNews{}, healed: map[string]nodeNews{}}
		}
		change(&n)
		return n
	})
}

// observeNode records which pools a Node is in, and returns those that an earlier Node of the name has left.
func (l *Ledger) observeNode(at nodeKey, node *corev1.Node) []poolKey {
	return l.leave(at, l.seen.observe(at, node))
}

// nodeGone records that there is no Node of the name any more, and returns the pools that it has left.
func (l *Ledger) nodeGone(at nodeKey, now time.Time) []poolKey {
	return l.leave(at, l.seen.end(at, now))
}

// leave adds the news that a Node that is gone has left its pools.
func (l *Ledger) leave(at nodeKey, was membership) []poolKey {
	pools := make([]poolKey, 0, len(was.pools))
	for _, name := range was.pools {
		pool := poolKey{at.cluster, name}
		l.news.add(pool, func(n *news) { n.left[at.name] = nodeNews{uid: was.uid} })
		pools = append(pools, pool)
	}
	return pools
}
