// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"sync"
)

// Slots limits how many hub objects change in a cluster at a time, over all kinds, so that an edit of hundreds of objects
// does not restart everything in one cluster at once. An object that finds a cluster full waits in line for it.
// A nil *Slots has no limit.
type Slots struct {
	perCluster int

	mu sync.Mutex
	// taken are the objects that change, and waiting those that wait in line, by cluster.
	taken   map[string]map[ObjectKey]bool
	waiting map[string][]ObjectKey
	// clusters are the clusters in which an object has a slot (true) or waits for one (false).
	clusters    map[ObjectKey]map[string]bool
	subscribers []func(ObjectKey)
	seeded      bool
}

// NewSlots returns Slots that let perCluster objects change in each cluster; 0 means no limit.
func NewSlots(perCluster int) *Slots {
	if perCluster == 0 {
		return nil
	}
	return &Slots{
		perCluster: perCluster,
		taken:      map[string]map[ObjectKey]bool{}, waiting: map[string][]ObjectKey{}, clusters: map[ObjectKey]map[string]bool{},
	}
}

// Subscribe calls fn with each object that has waited and now has a slot. fn must not block.
func (s *Slots) Subscribe(fn func(ObjectKey)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers = append(s.subscribers, fn)
}

// Seed calls fill once, before any slot is taken. After a start it keeps the slots of all objects that have clusters on
// trial. If fill fails, the next call repeats it.
func (s *Slots) Seed(fill func(keep func(ObjectKey, []string)) error) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seeded {
		return nil
	}
	err := fill(func(key ObjectKey, names []string) {
		for _, name := range names {
			s.set(key, name)
		}
	})
	s.seeded = err == nil
	return err
}

// Take reports whether an object has a slot in a cluster. If there is none, the object waits in line for the next one.
func (s *Slots) Take(key ObjectKey, clusterName string) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	has, known := s.clusters[key][clusterName]
	switch {
	case has:
		return true
	case len(s.taken[clusterName]) < s.perCluster:
		s.set(key, clusterName)
		return true
	case !known:
		s.note(key, clusterName, false)
		s.waiting[clusterName] = append(s.waiting[clusterName], key)
	}
	return false
}

// Free reports whether Take would succeed now.
func (s *Slots) Free(key ObjectKey, clusterName string) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[key][clusterName] || len(s.taken[clusterName]) < s.perCluster
}

// Keep sets the clusters in which an object changes, sorted, whether or not there is room, and gives the slots that it had
// in others to those who wait for them.
func (s *Slots) Keep(key ObjectKey, clusterNames []string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	for _, name := range clusterNames {
		s.set(key, name)
	}
	var next []ObjectKey
	for name, has := range s.clusters[key] {
		if _, kept := slices.BinarySearch(clusterNames, name); has && !kept {
			next = append(next, s.release(key, name)...)
		}
	}
	subscribers := s.subscribers
	s.mu.Unlock()

	for _, key := range next {
		for _, fn := range subscribers {
			fn(key)
		}
	}
}

// Forget gives up whatever an object that is gone has or waits for.
func (s *Slots) Forget(key ObjectKey) {
	if s == nil {
		return
	}
	s.mu.Lock()
	for name, has := range s.clusters[key] {
		if !has {
			s.leave(key, name)
		}
	}
	s.mu.Unlock()
	s.Keep(key, nil)
}

// set gives an object a slot. The caller holds s.mu.
func (s *Slots) set(key ObjectKey, name string) {
	if has, known := s.clusters[key][name]; known && !has {
		s.leave(key, name)
	}
	if s.taken[name] == nil {
		s.taken[name] = map[ObjectKey]bool{}
	}
	s.taken[name][key] = true
	s.note(key, name, true)
}

// release takes the slot of an object and gives it to the next ones in line, which it returns. The caller holds s.mu.
func (s *Slots) release(key ObjectKey, name string) []ObjectKey {
	delete(s.taken[name], key)
	s.unnote(key, name)
	var next []ObjectKey
	for len(s.waiting[name]) > 0 && len(s.taken[name]) < s.perCluster {
		first := s.waiting[name][0]
		s.set(first, name)
		next = append(next, first)
	}
	if len(s.taken[name]) == 0 {
		delete(s.taken, name)
	}
	return next
}

// leave takes an object out of the line. The caller holds s.mu.
func (s *Slots) leave(key ObjectKey, name string) {
	s.waiting[name] = slices.DeleteFunc(s.waiting[name], func(other ObjectKey) bool { return other == key })
	if len(s.waiting[name]) == 0 {
		delete(s.waiting, name)
	}
	s.unnote(key, name)
}

func (s *Slots) note(key ObjectKey, name string, has bool) {
	if s.clusters[key] == nil {
		s.clusters[key] = map[string]bool{}
	}
	s.clusters[key][name] = has
}

func (s *Slots) unnote(key ObjectKey, name string) {
	delete(s.clusters[key], name)
	if len(s.clusters[key]) == 0 {
		delete(s.clusters, key)
	}
}
