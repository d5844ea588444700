// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// model is the fleet at one moment. It does not change.
type model struct {
	number  uint64
	link    link
	hub     HubState
	members []*memberFacts
	objects []*objectFacts
	events  []*eventsv1.Event
	// eventsTrouble says why there are no events.
	eventsTrouble string

	memberNamed map[string]*memberFacts
	objectNamed map[string]*objectFacts
	// labels are the keys by which members can be grouped.
	labels []string
}

// memberFacts are what is shown of a member.
type memberFacts struct {
	*flotillav1.MemberCluster
	State state
	// Unmet is the condition that the others wait for, and Since when that changed.
	Unmet   metav1.Condition
	Since   *metav1.Time
	urgency int
	held    []Held
}

// objectFacts are what is shown of a hub object.
type objectFacts struct {
	fleet.Object
	name     string
	kind     fleet.Kind
	clusters []string
	entries  []flotillav1.ClusterStatus
	unwell   []Row
	held     []Held
	ready    metav1.Condition
	degraded bool
	halted   bool
	// Since is when Ready changed.
	Since *metav1.Time
}

// key names the object on the hub.
func (o *objectFacts) key() types.NamespacedName { return client.ObjectKeyFromObject(o.Object) }

// placedIn reports whether the object is placed in a cluster.
func (o *objectFacts) placedIn(cluster string) bool {
	_, found := slices.BinarySearch(o.clusters, cluster)
	return found
}

// modeller makes models. It keeps what it has worked out about objects that have not changed.
type modeller struct {
	sayings Sayings
	number  uint64
	members map[*flotillav1.MemberCluster]*memberFacts
	objects map[fleet.Object]*objectFacts
}

// make returns the model of what the watches have.
func (d *modeller) make(w *watcher) *model {
	d.number++
	m := &model{number: d.number, memberNamed: map[string]*memberFacts{}, objectNamed: map[string]*objectFacts{}, eventsTrouble: w.eventsTrouble()}
	m.link, m.hub = w.link()
	members := map[*flotillav1.MemberCluster]*memberFacts{}
	keys := map[string]bool{}
	for _, member := range stored[*flotillav1.MemberCluster](w.members) {
		facts := d.members[member]
		if facts == nil {
			facts = d.member(member)
		}
		members[member], m.memberNamed[member.Name] = facts, facts
		m.members = append(m.members, facts)
		for key := range member.Labels {
			keys[key] = true
		}
	}
	objects := map[fleet.Object]*objectFacts{}
	add := func(object fleet.Object, kind fleet.Kind) {
		facts := d.objects[object]
		if facts == nil {
			facts = d.object(object, kind)
		}
		objects[object], m.objectNamed[facts.name] = facts, facts
		m.objects = append(m.objects, facts)
	}
	for _, object := range stored[*flotillav1.Redis](w.redises) {
		add(object, fleet.Redis)
	}
	for _, object := range stored[*flotillav1.NodePool](w.pools) {
		add(object, fleet.NodePool)
	}
	d.members, d.objects = members, objects
	slices.SortFunc(m.members, func(a, b *memberFacts) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.objects, func(a, b *objectFacts) int { return strings.Compare(a.name, b.name) })
	m.labels = slices.Sorted(maps.Keys(keys))
	m.events = stored[*eventsv1.Event](w.events)
	slices.SortFunc(m.events, func(a, b *eventsv1.Event) int {
		return cmp.Or(d.sayings.When(b).Compare(d.sayings.When(a).Time), strings.Compare(a.Name, b.Name))
	})
	return m
}

// stored returns what an informer has.
func stored[T any](informer cache.SharedIndexInformer) []T {
	all := informer.GetStore().List()
	objects := make([]T, 0, len(all))
	for _, one := range all {
		if object, ok := one.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

func (d *modeller) member(member *flotillav1.MemberCluster) *memberFacts {
	facts := &memberFacts{MemberCluster: member, urgency: d.sayings.Urgency(member), held: d.sayings.HeldMember(member)}
	facts.Unmet, facts.Since = d.sayings.Unmet(member)
	facts.State = stateOf(member, facts.urgency)
	return facts
}

func (d *modeller) object(object fleet.Object, kind fleet.Kind) *objectFacts {
	facts := &objectFacts{
		Object: object, kind: kind, name: d.sayings.Name(object), clusters: d.sayings.Clusters(object), entries: kind.Entries(object),
		unwell: d.sayings.Unwell(object), held: d.sayings.HeldObject(object),
		ready: metav1.Condition{Type: flotillav1.ConditionReady, Status: metav1.ConditionUnknown},
	}
	conditions := *object.GetConditions()
	if ready := apimeta.FindStatusCondition(conditions, flotillav1.ConditionReady); ready != nil {
		facts.ready, facts.Since = *ready, &ready.LastTransitionTime
	}
	facts.degraded = !apimeta.IsStatusConditionTrue(conditions, flotillav1.ConditionFullyReady)
	progressing := apimeta.FindStatusCondition(conditions, flotillav1.ConditionProgressing)
	facts.halted = progressing != nil && progressing.Reason == flotillav1.ReasonRolloutHalted
	return facts
}

// unwell lists everything that is not well, by object and cluster.
func (m *model) unwell(sayings Sayings) []Row {
	var rows []Row
	for _, object := range m.objects {
		rows = append(rows, object.unwell...)
	}
	for _, member := range m.members {
		rows = append(rows, m.attention(sayings, member)...)
	}
	return rows
}

// attention lists what a member has of its own that is not well.
func (m *model) attention(sayings Sayings, member *memberFacts) []Row {
	if len(member.Status.Attention) == 0 {
		return nil
	}
	return sayings.Attention(member.MemberCluster, func(name string) bool {
		object := m.objectNamed[name]
		return object != nil && object.placedIn(member.Name)
	})
}
