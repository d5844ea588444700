// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// history is how many changes are kept for watches that resume.
const history = 1000

// change is one in the store.
type change struct {
	kind          *kind
	revision      int64
	before, after client.Object
}

// key names an object.
type key struct {
	kind *kind
	types.NamespacedName
}

// store keeps objects. None is changed once it is in, so that they may be read without the lock.
type store struct {
	mu       sync.Mutex // Guards the fields below.
	revision int64
	objects  map[key]client.Object
	changes  []change
	// since is the revision before the oldest change that is kept.
	since int64
	// changed is closed, and replaced, at each change.
	changed chan struct{}
}

func newStore() *store {
	return &store{revision: 1, objects: map[key]client.Object{}, changed: make(chan struct{})}
}

// Put creates or replaces an object as if someone in the member did.
func (s *Server) Put(object client.Object) {
	k := kindOf(object)
	object = copyOf(object)
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.keepLocked(k, object)
}

// Remove removes an object.
func (s *Server) Remove(object client.Object) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	k := kindOf(object)
	if before := s.store.objects[key{k, client.ObjectKeyFromObject(object)}]; before != nil {
		s.store.dropLocked(k, before)
	}
}

// Restore sets the server back by some revisions, as if from an old snapshot, and ends its watches.
func (s *Server) Restore(revisions int64) {
	s.store.mu.Lock()
	s.store.revision = max(1, s.store.revision-revisions)
	s.store.since, s.store.changes = s.store.revision, nil
	s.store.mu.Unlock()
	s.Cut()
}

// Snapshot returns what restores the server as it is now. Nothing tells its clients, and the revisions go on from there, as
// in an etcd that is restored from a backup. Watches cannot be resumed from before.
func (s *Server) Snapshot() (restore func()) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	revision, objects := s.store.revision, maps.Clone(s.store.objects)
	return func() {
		s.store.mu.Lock()
		s.store.revision, s.store.objects = revision, maps.Clone(objects)
		s.store.since, s.store.changes = revision, nil
		s.store.mu.Unlock()
		s.Cut()
	}
}

// Find reads an object by its name, and reports whether there is one.
func (s *Server) Find(object client.Object) bool {
	found, err := s.store.get(key{kindOf(object), client.ObjectKeyFromObject(object)})
	if err == nil {
		reflect.ValueOf(object).Elem().Set(reflect.ValueOf(copyOf(found)).Elem())
	}
	return err == nil
}

// Forget drops what watches could be resumed from. Those that are open go on.
func (s *Server) Forget() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.revision++
	s.store.since, s.store.changes = s.store.revision, nil
}

// keepLocked puts an object in; mu is held.
func (s *store) keepLocked(k *kind, object client.Object) {
	name := key{k, client.ObjectKeyFromObject(object)}
	before := s.objects[name]
	if before != nil && object.GetUID() == "" {
		object.SetUID(before.GetUID())
	}
	if object.GetUID() == "" {
		object.SetUID(uuid.NewUUID())
	}
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.NewTime(clock.RealClock{}.Now()).Rfc3339Copy())
	}
	s.revision++
	object.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	object.GetObjectKind().SetGroupVersionKind(k.gvk)
	s.objects[name] = object
	s.noteLocked(change{kind: k, revision: s.revision, before: before, after: object})
}

// dropLocked takes an object out; mu is held.
func (s *store) dropLocked(k *kind, before client.Object) {
	s.revision++
	delete(s.objects, key{k, client.ObjectKeyFromObject(before)})
	s.noteLocked(change{kind: k, revision: s.revision, before: before})
}

// noteLocked sends a change to the watches; mu is held.
func (s *store) noteLocked(c change) {
	s.changes = append(s.changes, c)
	if extra := len(s.changes) - history; extra > history {
		s.since = s.changes[extra-1].revision
		s.changes = slices.Clone(s.changes[extra:])
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// list returns the objects of a kind that are asked for, sorted by name, as they were at a revision or, for 0, are.
func (s *store) list(k *kind, wanted func(client.Object) bool, revision int64) ([]client.Object, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == 0 {
		revision = s.revision
	}
	switch {
	case revision < s.since:
		return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("%d has been compacted", revision))
	case revision > s.revision:
		return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("%d is a future revision", revision))
	}
	then := map[key]client.Object{}
	for name, object := range s.objects {
		if name.kind == k {
			then[name] = object
		}
	}
	for _, c := range slices.Backward(s.changes) {
		if c.kind == k && c.revision > revision {
			c.undo(then)
		}
	}
	var objects []client.Object
	for _, object := range then {
		if wanted(object) {
			objects = append(objects, object)
		}
	}
	slices.SortFunc(objects, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, revision, nil
}

// undo takes a change back.
func (c change) undo(objects map[key]client.Object) {
	if c.before != nil {
		objects[key{c.kind, client.ObjectKeyFromObject(c.before)}] = c.before
	} else {
		delete(objects, key{c.kind, client.ObjectKeyFromObject(c.after)})
	}
}

// after returns the changes of a kind after a revision, how far that is, and what is closed when there are more.
func (s *store) after(k *kind, revision int64) ([]change, int64, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision < s.since {
		return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, s.since))
	}
	var found []change
	for _, c := range s.changes {
		if c.kind == k && c.revision > revision {
			found = append(found, c)
		}
	}
	return found, max(revision, s.revision), s.changed, nil
}

// get returns an object.
func (s *store) get(name key) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(name)
}

// getLocked does so while mu is held.
func (s *store) getLocked(name key) (client.Object, error) {
	if object := s.objects[name]; object != nil {
		return object, nil
	}
	return nil, apierrors.NewNotFound(name.kind.groupResource(), name.Name)
}

// create puts a new object in.
func (s *store) create(name key, object client.Object) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.getLocked(key{kindNamed("namespaces"), types.NamespacedName{Name: name.Namespace}}); name.Namespace != "" && err != nil {
		return nil, err
	}
	if s.objects[name] != nil {
		return nil, apierrors.NewAlreadyExists(name.kind.groupResource(), name.Name)
	}
	object = copyOf(object)
	object.SetUID("")
	s.keepLocked(name.kind, object)
	return s.objects[name], nil
}

// update replaces an object by what change makes of a copy of it.
func (s *store) update(name key, change func(current client.Object) (client.Object, error)) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.getLocked(name)
	if err != nil {
		return nil, err
	}
	after, err := change(copyOf(before))
	if err != nil {
		return nil, err
	}
	if version := after.GetResourceVersion(); version != "" && version != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(name.kind.groupResource(), name.Name, fmt.Errorf("it is at %s", before.GetResourceVersion()))
	}
	if before.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 {
		s.dropLocked(name.kind, before)
		return after, nil
	}
	s.keepLocked(name.kind, after)
	return after, nil
}

// remove takes an object out, or marks it when it has finalizers.
func (s *store) remove(name key, options *metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.getLocked(name)
	if err != nil {
		return err
	}
	if p := options.Preconditions; p != nil {
		uid, version := before.GetUID(), before.GetResourceVersion()
		if (p.UID != nil && *p.UID != uid) || (p.ResourceVersion != nil && *p.ResourceVersion != version) {
			return apierrors.NewConflict(name.kind.groupResource(), name.Name, fmt.Errorf("it is %s at %s", uid, version))
		}
	}
	if len(before.GetFinalizers()) == 0 {
		s.dropLocked(name.kind, before)
		return nil
	}
	marked := copyOf(before)
	now := metav1.NewTime(clock.RealClock{}.Now()).Rfc3339Copy()
	marked.SetDeletionTimestamp(&now)
	s.keepLocked(name.kind, marked)
	return nil
}

// seen is what a change is to someone who sees only some objects; false when it is nothing.
func (c change) seen(wanted func(client.Object) bool) (watch.EventType, client.Object, bool) {
	was, is := c.before != nil && wanted(c.before), c.after != nil && wanted(c.after)
	switch {
	case was && is:
		return watch.Modified, c.after, true
	case is:
		return watch.Added, c.after, true
	case was:
		gone := copyOf(c.before)
		gone.SetResourceVersion(strconv.FormatInt(c.revision, 10))
		return watch.Deleted, gone, true
	}
	return "", nil, false
}

// copyOf copies an object.
func copyOf(object client.Object) client.Object {
	copied, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		panic(fmt.Sprintf("a copy of %T is no object", object))
	}
	return copied
}

// statusOf is an error as an API server says it.
func statusOf(err error) *metav1.Status {
	known, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &status
}
