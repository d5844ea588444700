// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"slices"
)

// piece is an element of a page that has an id: what the stream replaces. Its items are pieces too.
type piece struct {
	id string
	// head and tail stand before and after the items.
	head, tail []byte
	items      []*piece
	// still is true for a piece that the stream leaves alone.
	still bool
}

// slot is where the items of a piece stand in its template.
var slot = []byte("<hr data-slot>")

// newPiece returns a piece of what its template has rendered.
func newPiece(id string, rendered []byte, items ...*piece) *piece {
	head, tail, _ := bytes.Cut(bytes.TrimSpace(rendered), slot)
	return &piece{id: id, head: head, tail: tail, items: items}
}

// appendTo appends the element to a page.
func (p *piece) appendTo(page []byte) []byte {
	page = append(page, p.head...)
	for _, item := range p.items {
		page = item.appendTo(page)
	}
	return append(page, p.tail...)
}

// swap tells htmx to put an element into the place of the one with its id. It keeps what has the focus.
const swap = ` hx-swap-oob="outerMorph"`

// changes appends what the browser has to replace when one list of pieces becomes another: as little as possible.
func changes(to []byte, before, after []*piece) []byte {
	for i, next := range after {
		switch {
		case next.still:
		case i < len(before) && before[i].alike(next):
			to = changes(to, before[i].items, next.items)
		default:
			element := next.appendTo(nil)
			name := bytes.IndexAny(element, " >")
			to = append(to, element[:name]...)
			to = append(to, swap...)
			to = append(to, element[name:]...)
		}
	}
	return to
}

// alike reports whether two pieces differ in their items at most, and have the same ones.
func (p *piece) alike(q *piece) bool {
	return p.id == q.id && bytes.Equal(p.head, q.head) && bytes.Equal(p.tail, q.tail) &&
		slices.EqualFunc(p.items, q.items, func(a, b *piece) bool { return a.id == b.id })
}
