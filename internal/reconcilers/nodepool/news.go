// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

const (
	// maxSingly is how many nodes are told of one by one; more at once are told of in one event.
	maxSingly = 10
	// goneFor is how long the end of a Node is remembered, so that late word of it is not taken for a new one.
	goneFor = 10 * time.Minute
)

// membership is which pools a Node is recorded in, as of a version of it.
type membership struct {
	uid     types.UID
	version string
	pools   []string
}

// news is what happened to nodes of a pool since its last pass: the UID of each node by name, and for those that were
// put right the keys too.
type news struct {
	joined, left map[string]types.UID
	healed       map[string]healing
}

type healing struct {
	uid  types.UID
	keys []string
}

// empty reports whether there is nothing to tell.
func (n news) empty() bool { return len(n.joined)+len(n.left)+len(n.healed) == 0 }

// events are what is told, in order of the nodes' names.
func (n news) events() []clusters.Event {
	out := singlyOrTogether(n.joined, "Join", nodeJoined, func(count int, names string) (string, string) {
		return "NodesJoined", fmt.Sprintf("%d nodes joined the pool: %s", count, names)
	})
	out = append(out, singlyOrTogether(n.left, "Leave", nodeLeft, func(count int, names string) (string, string) {
		return "NodesLeft", fmt.Sprintf("%d nodes left the pool: %s", count, names)
	})...)
	return append(out, singlyOrTogether(n.healed, "Heal", nodeHealed, func(count int, names string) (string, string) {
		return "NodesHealed", fmt.Sprintf("Put back on %d nodes what someone else had changed: %s", count, names)
	})...)
}

// singlyOrTogether makes an event for each node or, for many, one.
func singlyOrTogether[T any](nodes map[string]T, action string, single func(string, T) clusters.Event, together func(int, string) (string, string)) []clusters.Event {
	names := slices.Sorted(maps.Keys(nodes))
	if len(names) > maxSingly {
		reason, note := together(len(names), enumerate(names))
		return []clusters.Event{{Type: corev1.EventTypeNormal, Reason: reason, Action: action, Note: clean(note, maxNote)}}
	}
	out := make([]clusters.Event, 0, len(names))
	for _, name := range names {
		out = append(out, single(name, nodes[name]))
	}
	return out
}

// eventNode is a Node for an event to refer to.
func eventNode(name string, uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

func nodeJoined(name string, uid types.UID) clusters.Event {
	return clusters.Event{
		Type: corev1.EventTypeNormal, Reason: "NodeJoined", Action: "Join",
		Note: fmt.Sprintf("Node %s joined the pool", name), Related: eventNode(name, uid),
	}
}

func nodeLeft(name string, uid types.UID) clusters.Event {
	return clusters.Event{
		Type: corev1.EventTypeNormal, Reason: "NodeLeft", Action: "Leave",
		Note: fmt.Sprintf("Node %s left the pool", name), Related: eventNode(name, uid),
	}
}

func nodeHealed(name string, done healing) clusters.Event {
	return clusters.Event{
		Type: corev1.EventTypeNormal, Reason: "NodeHealed", Action: "Heal",
		Note:    clean(fmt.Sprintf("Put back on node %s what someone else had changed: %s", name, enumerate(done.keys)), maxNote),
		Related: eventNode(name, done.uid),
	}
}

// saw notes which pools a Node is in. Word that is older than what is known is no news. It returns the pools that an
// earlier Node of the name was in.
func (l *Ledger) saw(at nodeKey, node *corev1.Node) []poolKey {
	seen := membership{uid: node.UID, version: node.ResourceVersion, pools: slices.Sorted(maps.Keys(recordOf(node)))}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, gone := l.gone[node.UID]; gone {
		return nil
	}
	known, ok := l.members[at]
	if ok && older(seen.version, known.version) {
		return nil
	}
	var vacated []poolKey
	if ok && known.uid != seen.uid {
		vacated = l.vacate(at, known)
	}
	if l.members == nil {
		l.members = map[nodeKey]membership{}
	}
	l.members[at] = seen
	return vacated
}

// older reports whether one resourceVersion is older than another. What cannot be compared is not.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// ended notes that there is no Node of the name any more, and returns the pools that it was in.
func (l *Ledger) ended(at nodeKey, now time.Time) []poolKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.members[at]
	if !ok {
		return nil
	}
	delete(l.members, at)
	maps.DeleteFunc(l.gone, func(_ types.UID, since time.Time) bool { return now.Sub(since) > goneFor })
	if l.gone == nil {
		l.gone = map[types.UID]time.Time{}
	}
	l.gone[known.uid] = now
	return l.vacate(at, known)
}

// vacate notes that a Node that is gone has left its pools. The caller holds mu.
func (l *Ledger) vacate(at nodeKey, known membership) []poolKey {
	pools := make([]poolKey, 0, len(known.pools))
	for _, name := range known.pools {
		pool := poolKey{at.cluster, name}
		l.newsOf(pool, func(n *news) { n.left[at.name] = known.uid })
		pools = append(pools, pool)
	}
	return pools
}

// happened notes news of a pool.
func (l *Ledger) happened(pool poolKey, change func(*news)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newsOf(pool, change)
}

// newsOf changes the news of a pool. The caller holds mu.
func (l *Ledger) newsOf(pool poolKey, change func(*news)) {
	n, ok := l.untold[pool]
	if !ok {
		n = &news{joined: map[string]types.UID{}, left: map[string]types.UID{}, healed: map[string]healing{}}
		if l.untold == nil {
			l.untold = map[poolKey]*news{}
		}
		l.untold[pool] = n
	}
	change(n)
}

// takeNews returns what is to be told of a pool, once.
func (l *Ledger) takeNews(pool poolKey) news {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, ok := l.untold[pool]
	if !ok {
		return news{}
	}
	delete(l.untold, pool)
	return *n
}

// knownNodes returns the names of the Nodes of a member that have been seen and not been found gone.
func (l *Ledger) knownNodes(clusterName multicluster.ClusterName) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for at := range l.members {
		if at.cluster == clusterName {
			names = append(names, at.name)
		}
	}
	return names
}

// bell queues passes of the pool controller for which there is no change in a member. The zero value is ready to use.
type bell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[clusters.Request]
}

// Start implements source.TypedSource.
func (b *bell) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = queue
	return nil
}

// String names the source in logs.
func (b *bell) String() string { return "news of nodes" }

// ring asks for a pass of each pool, a little later, so that what happens at once is told at once. It is nil-safe.
func (b *bell) ring(pools ...poolKey) {
	if b == nil {
		return
	}
	b.mu.Lock()
	queue := b.queue
	b.mu.Unlock()
	if queue == nil {
		return
	}
	for _, pool := range pools {
		queue.AddAfter(request(pool.cluster, pool.name), passInterval)
	}
}
