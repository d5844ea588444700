// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// maxRecord is the size in bytes that the record may have on a node; all annotations of an object share 256 KiB.
const maxRecord = 64 << 10

// foreign is what others wrote under a key; doc.go says what that means.
type foreign struct {
	// value is nil when there is nothing of theirs.
	value *string
	// over is the name of the pool whose value they replaced; empty when none of a pool was there.
	over string
}

func (f foreign) equal(other foreign) bool {
	return f.over == other.over && equalValues(f.value, other.value)
}

// restorable returns what may come back: a value that no spec could have is dropped, because a kubelet can write the record.
func (f foreign) restorable(k key) foreign {
	if f.value == nil || !mayHold(k, *f.value) {
		return foreign{}
	}
	return f
}

// equalValues compares values of a key, nil being none.
func equalValues(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// item is one key that a pool holds on a node: the value that stands there for the pool, and what others wrote. They are
// the same where the pool found the value that it wants.
type item struct {
	written string
	theirs  foreign
}

func (i item) equal(other item) bool {
	return i.written == other.written && i.theirs.equal(other.theirs)
}

// entry is what one pool holds on a node. An entry without items says that the node has joined the pool.
type entry struct {
	uid   types.UID
	items map[key]item
	// owed are the OnInitialization taints that the node has to get since it joined. What is not here has had its turn.
	owed map[key]bool
}

func newEntry(uid types.UID) entry {
	return entry{uid: uid, items: map[key]item{}, owed: map[key]bool{}}
}

func (e entry) equal(other entry) bool {
	return e.uid == other.uid && maps.EqualFunc(e.items, other.items, item.equal) && maps.Equal(e.owed, other.owed)
}

// record is what all pools hold on a node, by name of the pool: a pool that is created again takes its entry up.
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
		// Adopted is in place of Previous when that is the same as Written.
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

// recordOf reads the record of a node. What cannot be read is no record: it is a hint, and its loss costs only the
// values to go back to.
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
			e.items[key{kind: kindLabel, name: k}] = v.item()
		}
		for k, v := range pool.Annotations {
			e.items[key{kind: kindAnnotation, name: k}] = v.item()
		}
		for k, v := range pool.Taints {
			if taint, ok := taintOf(k); ok {
				e.items[taint] = v.item()
			}
		}
		for _, k := range pool.Owed {
			if taint, ok := taintOf(k); ok {
				e.owed[taint] = true
			}
		}
		rec[name] = e
	}
	return rec
}

// taintOf reads the form <key>:<effect>.
func taintOf(text string) (key, bool) {
	i := strings.LastIndex(text, ":")
	if i <= 0 {
		return key{}, false
	}
	return key{kind: kindTaint, name: text[:i], effect: corev1.TaintEffect(text[i+1:])}, true
}

// encode writes the record; an empty one is the empty string.
func (r record) encode() string {
	if len(r) == 0 {
		return ""
	}
	out := recordJSON{Pools: make(map[string]entryJSON, len(r))}
	for name, e := range r {
		pool := entryJSON{UID: e.uid, Labels: map[string]itemJSON{}, Annotations: map[string]itemJSON{}, Taints: map[string]itemJSON{}}
		for k, i := range e.items {
			value := i.json()
			switch k.kind {
			case kindLabel:
				pool.Labels[k.name] = value
			case kindAnnotation:
				pool.Annotations[k.name] = value
			case kindTaint:
				pool.Taints[k.name+":"+string(k.effect)] = value
			}
		}
		for k := range e.owed {
			pool.Owed = append(pool.Owed, k.name+":"+string(k.effect))
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
