// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// maxRecord is the maximum size of the record in bytes; all annotations of an object share 256 KiB.
const maxRecord = 64 << 10

// foreign is what others wrote under a key, as doc.go defines it.
type foreign struct {
	// value is nil if they wrote nothing or removed the key.
	value *string
	// over is the name of the pool whose value they replaced; empty if they replaced none.
	over string
}

func (f foreign) equal(other foreign) bool {
	return f.over == other.over && equalValues(f.value, other.value)
}

// restorable drops values that no spec could have, because a kubelet can write the record.
func (f foreign) restorable(k Key) foreign {
	if f.value == nil || !validValue(k, *f.value) {
		return foreign{}
	}
	return f
}

// equalValues compares values of a key; nil is no value.
func equalValues(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// item is a key that a pool holds on a node: the value written for the pool, and what others wrote. The two are the same
// if the value was there before the pool.
type item struct {
	written string
	theirs  foreign
}

func (i item) equal(other item) bool {
	return i.written == other.written && i.theirs.equal(other.theirs)
}

// entry is what one pool holds on a node. An entry without items records that the node has joined the pool.
type entry struct {
	uid   types.UID
	items map[Key]item
	// owed are the OnInitialization taints that the node has not received since it joined.
	owed map[Key]bool
}

func newEntry(uid types.UID) entry {
	return entry{uid: uid, items: map[Key]item{}, owed: map[Key]bool{}}
}

func (e entry) equal(other entry) bool {
	return e.uid == other.uid && maps.EqualFunc(e.items, other.items, item.equal) && maps.Equal(e.owed, other.owed)
}

// record is what all pools hold on a node, by pool name: a pool that is created again continues with its entry.
type record map[string]entry

func (r record) equal(other record) bool { return maps.EqualFunc(r, other, entry.equal) }

// These are the compact JSON of the annotation.
type (
	recordJSON struct {
		Pools map[string]entryJSON `json:"pools"`
	}
	entryJSON struct {
		UID         types.UID           `json:"uid"`
		Labels      map[string]itemJSON `json:"labels,omitempty"`
		Annotations map[string]itemJSON `json:"annotations,omitempty"`
		Taints      map[string]itemJSON `json:"taints,omitempty"`
		Owed        []string            `json:"owed,omitempty"`
	}
	itemJSON struct {
		Written  string  `json:"v"`
		Previous *string `json:"was,omitempty"`
		// Adopted replaces Previous if that equals Written.
		Adopted bool   `json:"adopted,omitempty"`
		Over    string `json:"over,omitempty"`
	}
)

func (j itemJSON) item() item {
	i := item{written: j.Written, theirs: foreign{value: j.Previous}}
	if j.Adopted {
		i.theirs.value = &j.Written
	}
	if i.theirs.value != nil {
		i.theirs.over = j.Over
	}
	return i
}

func (i item) json() itemJSON {
	if equalValues(i.theirs.value, &i.written) {
		return itemJSON{Written: i.written, Adopted: true, Over: i.theirs.over}
	}
	return itemJSON{Written: i.written, Previous: i.theirs.value, Over: i.theirs.over}
}

// recordOf parses the record of a node. An unreadable record counts as none: only the values to restore are lost.
func recordOf(node *corev1.Node) record {
	text := node.Annotations[flotillav1.AnnotationNodeRecord]
	if text == "" || len(text) > maxRecord {
		return record{}
	}
	var parsed recordJSON
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		return record{}
	}
	rec := make(record, len(parsed.Pools))
	for name, pool := range parsed.Pools {
		e := newEntry(pool.UID)
		for k, v := range pool.Labels {
			e.items[Key{Kind: Label, Name: k}] = v.item()
		}
		for k, v := range pool.Annotations {
			e.items[Key{Kind: Annotation, Name: k}] = v.item()
		}
		for k, v := range pool.Taints {
			if taint, ok := parseTaint(k); ok {
				e.items[taint] = v.item()
			}
		}
		for _, k := range pool.Owed {
			if taint, ok := parseTaint(k); ok {
				e.owed[taint] = true
			}
		}
		rec[name] = e
	}
	return rec
}

// parseTaint reads the form <key>:<effect>.
func parseTaint(text string) (Key, bool) {
	i := strings.LastIndex(text, ":")
	if i <= 0 {
		return Key{}, false
	}
	return Key{Kind: Taint, Name: text[:i], Effect: corev1.TaintEffect(text[i+1:])}, true
}

// encode returns the JSON of the record, or an empty string if it is empty.
func (r record) encode() string {
	if len(r) == 0 {
		return ""
	}
	out := recordJSON{Pools: make(map[string]entryJSON, len(r))}
	for name, e := range r {
		pool := entryJSON{UID: e.uid, Labels: map[string]itemJSON{}, Annotations: map[string]itemJSON{}, Taints: map[string]itemJSON{}}
		for k, i := range e.items {
			value := i.json()
			switch k.Kind {
			case Label:
				pool.Labels[k.Name] = value
			case Annotation:
				pool.Annotations[k.Name] = value
			case Taint:
				pool.Taints[k.Name+":"+string(k.Effect)] = value
			}
		}
		for k := range e.owed {
			pool.Owed = append(pool.Owed, k.Name+":"+string(k.Effect))
		}
		slices.Sort(pool.Owed)
		out.Pools[name] = pool
	}
	// Strings, booleans and maps of them always marshal, with sorted keys.
	text, _ := json.Marshal(out)
	return string(text)
}

// mayRecord reports, without parsing, whether the record of a node can name the pool.
func mayRecord(node *corev1.Node, poolName string) bool {
	return strings.Contains(node.Annotations[flotillav1.AnnotationNodeRecord], `"`+poolName+`":`)
}

// RecordedPools returns the names of the pools that the record of a node lists, sorted.
func RecordedPools(node *corev1.Node) []string {
	return slices.Sorted(maps.Keys(recordOf(node)))
}
