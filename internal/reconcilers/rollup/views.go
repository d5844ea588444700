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

// views remember for each hub object what its last pass has read about its clusters. Whatever tells of a change marks the
// cluster concerned before it queues the object, and the next pass reads that one anew: what a change in one member costs
// does not grow with the number of members. A hub object that has no view yet is read as a whole by its first pass.
//
// Nothing is read under the lock; a change that comes while a pass reads is marked for the next one.
type views struct {
	mu       sync.Mutex
	byObject map[types.NamespacedName]*entry
}

// entry is what views.mu guards of a view.
type entry struct {
	// changed are the clusters that the next pass reads.
	changed map[string]bool
	// view is taken by one pass at a time; nil before the first one has ended.
	view *view
	// taken says that a pass is under way.
	taken bool
	// asked says that a pass has been asked for since one has begun. Until the next one begins, it is for all that changes.
	asked bool
	// choice is what the last pass has decided by, and names are the clusters that it had, sorted.
	choice fleet.Choice
	names  []string
}

// view is what passes for a hub object have read. It belongs to the pass that has taken it.
type view struct {
	basis    basis
	placedIn []string
	// departing is the record of clusters in placedIn that are not chosen any more.
	departing []flotillav1.Departure
	choice    fleet.Choice
	invalid   error
	// specs are nil when they cannot be computed, which specsError says.
	specs      *fleet.Specs
	specsError error
	template   string
	// clusters are those chosen and those that may have a copy, by name.
	clusters map[string]*cluster
	// past are the clusters of the view before the hub object changed, until they have been read again. What was published
	// about those that the list leaves out is known from there.
	past map[string]*cluster
	// names are those of the clusters, sorted; nil when some have come or gone.
	names []string
	// stale are the names of those that no row has been made of since they were read, and unsaid of those that no events have
	// been about since a row was made.
	stale, unsaid map[string]bool
	// listed are the names in the list by which the last rows were made, and held those that waited for their turn then.
	listed, held []string
	// chosen counts the clusters that are chosen. open are the turns that a change has to look at, done and undecided count
	// the others that are so.
	chosen          int
	open            map[string]fleet.Turn
	done, undecided int
	ledger          ledger
}

// basis is what of a hub object is about all of its clusters.
type basis struct {
	uid          types.UID
	generation   int64
	deleting     bool
	confirmLeave string
}

func basisOf(hubObject fleet.Object) basis {
	return basis{
		uid: hubObject.GetUID(), generation: hubObject.GetGeneration(), deleting: hubObject.GetDeletionTimestamp() != nil,
		confirmLeave: hubObject.GetAnnotations()[flotillav1.AnnotationConfirmLeave],
	}
}

// put and drop change which clusters a view has.
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

// leave takes back what put has counted.
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

// outdated returns the clusters of which rows are to be made, sorted: those that have been read since, those that the list
// has, and those that it had when the last rows were made.
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
		found.Previous = cmp.Or(published[name], found.told())
		outdated = append(outdated, found)
	}
	return outdated
}

// sorted returns the names of the clusters. Nobody may change it.
func (v *view) sorted() []string {
	if v.names == nil {
		v.names = slices.Sorted(maps.Keys(v.clusters))
	}
	return v.names
}

// begin empties a view for a hub object that is not what it was.
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

// invalidOverride returns what is wrong with an override, whether or not it is for a cluster of the view.
func (v *view) invalidOverride() error {
	if v.specs == nil {
		return v.specsError
	}
	return v.specs.Invalid()
}

func newViews() *views { return &views{byObject: map[types.NamespacedName]*entry{}} }

// take returns the view of a hub object, an empty one if there is none, and the clusters that have changed since.
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

// keep remembers what a pass has read, and which clusters it could not read.
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

// forget drops a hub object that is gone, or that could not be read.
func (v *views) forget(key types.NamespacedName) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byObject, key)
}

// mark notes that one hub object's copy in a cluster has changed, and reports whether a pass has to be asked for.
func (v *views) mark(key types.NamespacedName, clusterName string) bool {
	if v == nil {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.byObject[key]
	return known == nil || known.mark(clusterName)
}

// mark needs views.mu.
func (e *entry) mark(clusterName string) bool {
	e.changed[clusterName] = true
	first := !e.asked
	e.asked = true
	return first
}

// markAll notes that a cluster has changed, and returns those of the hub objects that this is about for which a pass has to
// be asked, sorted: they have the cluster, or they choose it. One that a pass is reading right now may come to do so.
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
