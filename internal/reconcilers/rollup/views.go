// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// views caches for each hub object what its last pass has read about its clusters. Every event source marks the changed
// cluster before it queues the object, and the next pass re-reads only the marked clusters, so the cost of a change in
// one member does not grow with the number of members. The first pass of a hub object reads all of its clusters.
//
// Nothing is read while the lock is held. A change that arrives while a pass reads is marked for the next pass.
type views struct {
	mu       sync.Mutex
	byObject map[types.NamespacedName]*entry
}

// entry is the state of a view that views.mu guards.
type entry struct {
	// changed are the clusters that the next pass reads.
	changed map[string]bool
	// view is used by one pass at a time; nil until the first one has ended.
	view *view
	// taken reports whether a pass is in progress.
	taken bool
	// asked reports whether a pass has been queued since the last one began. It covers all changes until it begins.
	asked bool
	// choice is the choice of the last pass, and names are its clusters, sorted.
	choice fleet.Choice
	names  []string
}

// view is what passes for a hub object have read. It is owned by the pass that has taken it.
type view struct {
	basis    basis
	placedIn []string
	// departing are the departures of clusters in placedIn that are no longer chosen.
	departing []flotillav1.Departure
	// trials are the clusters on trial, and recorded is their record.
	trials   fleet.Trials
	recorded []flotillav1.Trial
	choice   fleet.Choice
	invalid  error
	// specs is nil if it cannot be computed; specsError is the cause.
	specs      *fleet.Specs
	specsError error
	template   string
	// clusters are the chosen clusters and those that may have a copy, by name.
	clusters map[string]*cluster
	// past are the clusters of the view before the hub object changed, until they have been read again. They provide the
	// published state of clusters that the list omits.
	past map[string]*cluster
	// names are the sorted names of the clusters; nil if clusters were added or removed.
	names []string
	// stale are the clusters that were read since their rows were computed, and unsaid those without events since then.
	stale, unsaid map[string]bool
	// listed are the listed names when the last rows were computed, and held those that waited for their turn then.
	listed, held []string
	// chosen counts the chosen clusters. open are the turns that a rollout has to consider; done and undecided count the
	// other turns.
	chosen          int
	open            map[string]fleet.Turn
	done, undecided int
	ledger          ledger
}

// basis contains the parts of a hub object that affect all of its clusters.
type basis struct {
	uid          types.UID
	generation   int64
	deleting     bool
	confirmLeave string
	// reverted is the change that is taken back.
	reverted string
}

func basisOf(hubObject fleet.Object) basis {
	basis := basis{
		uid: hubObject.GetUID(), generation: hubObject.GetGeneration(), deleting: hubObject.GetDeletionTimestamp() != nil,
		confirmLeave: hubObject.GetAnnotations()[flotillav1.AnnotationConfirmLeave],
	}
	if change := fleet.RevertedChange(hubObject); change != nil {
		basis.reverted = change.Rollout
	}
	return basis
}

// put and drop add, replace and remove clusters of a view.
func (v *view) put(found *cluster) {
	if before := v.clusters[found.Name]; before != nil {
		v.leave(before)
	} else {
		v.names = nil
	}
	v.clusters[found.Name], v.stale[found.Name] = found, true
	if found.chosen {
		v.chosen++
	}
	turn, ok := fleet.TurnOf(found.Observation, v.basis.generation)
	switch {
	case !ok || !found.placed:
	case turn.Open(v.template):
		v.open[found.Name] = turn
	default:
		found.done, found.undecided = turn.Done(v.template), !turn.Decided
	}
	v.done, v.undecided = v.done+number(found.done), v.undecided+number(found.undecided)
}

func (v *view) drop(name string) {
	before := v.clusters[name]
	if before == nil {
		return
	}
	v.leave(before)
	if before.counted {
		v.ledger.count(before.row, -1)
	}
	v.names = nil
	delete(v.clusters, name)
	delete(v.stale, name)
	delete(v.unsaid, name)
}

// leave subtracts what put has counted.
func (v *view) leave(before *cluster) {
	v.chosen, v.done, v.undecided = v.chosen-number(before.chosen), v.done-number(before.done), v.undecided-number(before.undecided)
	delete(v.open, before.Name)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// outdated returns the clusters whose rows have to be computed, sorted: those that were read since then, those that are
// listed, and those that were listed when the last rows were computed.
func (v *view) outdated(kind Kind, hubObject fleet.Object) []*cluster {
	published := map[string]*flotillav1.ClusterStatus{}
	for _, entry := range kind.Entries(hubObject) {
		published[entry.Name] = &entry
	}
	for _, name := range v.listed {
		v.stale[name] = true
	}
	for name := range published {
		v.stale[name] = true
	}
	v.listed = slices.Collect(maps.Keys(published))
	var outdated []*cluster
	for _, name := range slices.Sorted(maps.Keys(v.stale)) {
		found := v.clusters[name]
		if found == nil {
			delete(v.stale, name)
			continue
		}
		found.Previous = cmp.Or(published[name], found.lastEntry())
		outdated = append(outdated, found)
	}
	return outdated
}

// sorted returns the sorted names of the clusters. The result must not be modified.
func (v *view) sorted() []string {
	if v.names == nil {
		v.names = slices.Sorted(maps.Keys(v.clusters))
	}
	return v.names
}

// begin resets a view for a hub object that has changed.
func (v *view) begin(kind Kind, hubObject fleet.Object) {
	past := v.clusters
	if v.basis.uid != hubObject.GetUID() {
		past = nil
	}
	*v = view{
		basis: basisOf(hubObject), placedIn: hubObject.GetFleetStatus().PlacedIn, clusters: map[string]*cluster{}, past: past,
		stale: map[string]bool{}, unsaid: map[string]bool{}, open: map[string]fleet.Turn{}, ledger: newLedger(kind),
	}
	if !v.basis.deleting {
		v.choice, v.invalid = fleet.NewChoice(hubObject.GetPlacement(), hubObject.GetNamespace())
		if v.invalid != nil {
			v.choice = fleet.Choice{}
		}
	}
	if v.specs, v.specsError = fleet.NewSpecs(kind.Kind, hubObject); v.specsError == nil {
		if v.template, v.specsError = v.specs.Template(); v.specsError != nil {
			v.specs = nil
		}
	}
}

// invalidOverride returns the error of an invalid override, whether or not it applies to a cluster of the view.
func (v *view) invalidOverride() error {
	if v.specs == nil {
		return v.specsError
	}
	return v.specs.Invalid()
}

// unused returns the clusters that overrides name and the placement does not choose, sorted.
func (v *view) unused(placement *flotillav1.Placement) []string {
	if placement == nil || v.invalid != nil {
		return nil
	}
	var names []string
	for i := range placement.Overrides {
		for _, name := range placement.Overrides[i].Clusters {
			if found := v.clusters[name]; found == nil || !found.chosen {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func newViews() *views { return &views{byObject: map[types.NamespacedName]*entry{}} }

// take returns the view of a hub object, or an empty one, and the clusters that have changed since the last pass.
func (v *views) take(key types.NamespacedName) (seen *view, changed []string) {
	if v == nil {
		return &view{}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.byObject[key]
	if known == nil {
		known = &entry{}
		v.byObject[key] = known
	}
	for name := range known.changed {
		changed = append(changed, name)
	}
	known.changed, known.taken, known.asked = map[string]bool{}, true, false
	if known.view == nil {
		return &view{}, nil
	}
	return known.view, changed
}

// keep stores what a pass has read, and the clusters that it could not read.
func (v *views) keep(key types.NamespacedName, seen *view, again []string) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.byObject[key]
	if known == nil {
		return
	}
	known.taken, known.view, known.choice, known.names = false, seen, seen.choice, seen.sorted()
	for _, name := range again {
		known.changed[name] = true
	}
}

// forget deletes a hub object that is gone or could not be read.
func (v *views) forget(key types.NamespacedName) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byObject, key)
}

// mark records that the copy of a hub object in a cluster has changed, and reports whether a pass has to be queued.
func (v *views) mark(key types.NamespacedName, clusterName string) bool {
	if v == nil {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.byObject[key]
	return known == nil || known.mark(clusterName)
}

// mark must be called with views.mu held.
func (e *entry) mark(clusterName string) bool {
	e.changed[clusterName] = true
	first := !e.asked
	e.asked = true
	return first
}

// markAll records that a cluster has changed. It returns the hub objects for which a pass has to be queued, sorted:
// they have the cluster, or choose it. An object with a pass in progress is included, because the pass may add the
// cluster.
func (v *views) markAll(clusterName string, member fleet.Member, registered bool) []types.NamespacedName {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var concerned []types.NamespacedName
	for key, known := range v.byObject {
		if known.taken || contains(known.names, clusterName) || registered && known.choice.Takes(member, false) {
			if known.mark(clusterName) {
				concerned = append(concerned, key)
			}
		}
	}
	slices.SortFunc(concerned, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return concerned
}
