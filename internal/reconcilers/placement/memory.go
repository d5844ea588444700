// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// memory is what passes over a hub object remember of it for the next ones. It may be lost: that costs reads. The zero
// value is empty.
type memory struct {
	mu       sync.Mutex
	byObject map[fleet.ObjectKey]remembered
}

type remembered struct {
	uid types.UID
	// version is that of the last write.
	version string
	// kindStays is when the hub last said that the kind is not being removed; asked since the object is being deleted.
	kindStays time.Time
}

// wrote notes the resourceVersion that a write of the object has led to.
func (m *memory) wrote(key fleet.ObjectKey, object fleet.Object) {
	m.change(key, object.GetUID(), func(known *remembered) { known.version = object.GetResourceVersion() })
}

// predates reports whether the object, as a cache shows it, is older than the last write.
func (m *memory) predates(key fleet.ObjectKey, object fleet.Object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byObject[key]
	if known.uid != object.GetUID() || known.version == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), known.version)
	return err == nil && order < 0
}

// keptKind notes that the kind of an object that is being deleted is not being removed.
func (m *memory) keptKind(key fleet.ObjectKey, uid types.UID, now time.Time) {
	m.change(key, uid, func(known *remembered) { known.kindStays = now })
}

// keepsKind reports whether keptKind was noted of the object less than so long ago.
func (m *memory) keepsKind(key fleet.ObjectKey, uid types.UID, now time.Time, span time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byObject[key]
	return known.uid == uid && !known.kindStays.IsZero() && now.Sub(known.kindStays) < span
}

func (m *memory) change(key fleet.ObjectKey, uid types.UID, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byObject[key]
	if known.uid != uid {
		known = remembered{uid: uid}
	}
	change(&known)
	if m.byObject == nil {
		m.byObject = map[fleet.ObjectKey]remembered{}
	}
	m.byObject[key] = known
}

func (m *memory) forget(key fleet.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byObject, key)
}
