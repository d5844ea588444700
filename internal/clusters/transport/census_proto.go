// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"math"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxTypeBytes is more than any apiVersion or kind has.
	maxTypeBytes = 256
	// protobufMagic precedes each object.
	protobufMagic = 0x6b387300
)

// protoCensus measures protobuf. It follows the messages that are decoded into structs; everything else costs its size.
type protoCensus struct {
	watch bool
	// at is how many bytes were read, and stack the messages that are not complete.
	at    int64
	stack []protoFrame
	reads protoState
	// value collects a varint, the length of a frame or a mark; shift is how much of it was read.
	value uint64
	shift uint
	field uint64
	// until is where the current scalar ends. capture collects it if it names the type of the object.
	until   int64
	capture *[]byte
	// quantity checks the current scalar. Nil if it is none.
	quantity *quantityText
	// apiVersion and kind name the type of the object.
	apiVersion, kind []byte
	// named is true once the type of the object, or the object, has begun.
	named bool

	// began is where the current event began, and cost is what it costs besides its size.
	began, cost int64
}

// protoState is what a protoCensus reads next.
type protoState int

const (
	readsTag protoState = iota
	readsVarint
	readsLength
	readsScalar
	readsMark
	readsFrame
)

// protoFrame is a message that is not complete.
type protoFrame struct {
	layout *layout
	end    int64
}

// The envelopes of events and objects.
var (
	typeMetaLayout  = &layout{}
	objectLayout    = &layout{} // Stands for the type that the envelope names.
	envelopeLayout  = &layout{fields: map[uint64]*fieldLayout{1: {message: typeMetaLayout}, 2: {message: objectLayout}}}
	extensionLayout = &layout{fields: map[uint64]*fieldLayout{1: {message: envelopeLayout}}}
	eventLayout     = &layout{fields: map[uint64]*fieldLayout{2: {message: extensionLayout}}}
)

// newProtoCensus returns the census of an object or list, or of the frames of a watch.
func newProtoCensus(watch bool) *protoCensus {
	c := &protoCensus{watch: watch, reads: readsFrame}
	if !watch {
		c.stack, c.reads = []protoFrame{{layout: envelopeLayout, end: math.MaxInt64}}, readsMark
	}
	return c
}

// scan implements census.
func (c *protoCensus) scan(p []byte, total *tally) error {
	total.cost += int64(len(p))
	before := c.cost
	for len(p) > 0 {
		n := 1
		if c.reads == readsScalar {
			n = int(min(int64(len(p)), c.until-c.at))
		}
		c.at += int64(n)
		if err := c.step(p[:n], total); err != nil {
			return err
		}
		p = p[n:]
		for c.reads == readsTag && len(c.stack) > 0 && c.at >= c.stack[len(c.stack)-1].end {
			if c.at > c.stack[len(c.stack)-1].end {
				return errMalformed
			}
			c.stack = c.stack[:len(c.stack)-1]
		}
		if c.reads == readsTag && len(c.stack) == 0 {
			c.measure(total, &before)
			total.events++
			c.reads, c.began, c.cost, before = readsFrame, c.at, 0, 0
		}
	}
	c.measure(total, &before)
	total.pending = c.at - c.began + c.cost
	return nil
}

// measure adds what was counted since before.
func (c *protoCensus) measure(total *tally, before *int64) {
	total.cost += c.cost - *before
	*before = c.cost
	total.eventBytes = max(total.eventBytes, c.at-c.began)
	total.eventCost = max(total.eventCost, c.at-c.began+c.cost)
}

// step reads one byte, or some of a scalar.
func (c *protoCensus) step(p []byte, total *tally) error {
	switch c.reads {
	case readsScalar:
		if c.capture != nil {
			*c.capture = append(*c.capture, p...)
		}
		if c.quantity != nil {
			if err := c.quantity.scan(p); err != nil {
				return err
			}
		}
		if c.at == c.until {
			c.reads, c.capture, c.quantity = readsTag, nil, nil
		}
		return nil
	case readsFrame, readsMark:
		c.value = c.value<<8 | uint64(p[0])
		if c.shift++; c.shift < 4 {
			return nil
		}
		value := c.value
		c.value, c.shift = 0, 0
		if c.reads == readsMark && value != uint64(protobufMagic) {
			return errMalformed
		}
		if c.reads == readsFrame {
			c.stack = append(c.stack, protoFrame{layout: eventLayout, end: c.at + int64(value)})
		}
		c.reads = readsTag
		return nil
	}
	if c.shift > 63 {
		return errMalformed
	}
	c.value |= uint64(p[0]&0x7f) << c.shift
	if c.shift += 7; p[0] >= 0x80 {
		return nil
	}
	value, reads := c.value, c.reads
	c.value, c.shift, c.reads = 0, 0, readsTag
	switch reads {
	case readsTag:
		return c.tag(value)
	case readsLength:
		return c.enter(value, total)
	default:
		return nil
	}
}

// tag begins a field.
func (c *protoCensus) tag(tag uint64) error {
	c.field = tag >> 3
	switch tag & 7 {
	case 0:
		c.reads = readsVarint
	case 1:
		c.reads, c.until = readsScalar, c.at+8
	case 2:
		c.reads = readsLength
	case 5:
		c.reads, c.until = readsScalar, c.at+4
	default: // Groups are not used.
		return errMalformed
	}
	return nil
}

// enter begins the value of a field with a length.
func (c *protoCensus) enter(length uint64, total *tally) error {
	top := c.stack[len(c.stack)-1]
	if length > uint64(top.end-c.at) {
		return errMalformed
	}
	end := c.at + int64(length)
	field := top.layout.fields[c.field]
	switch {
	case field != nil && field.message != nil:
		c.cost += field.cost
		if top.layout.list && c.field == 2 && len(c.stack) == 2 {
			total.items++
		}
		return c.descend(field.message, end)
	case field != nil:
		c.cost += field.cost
		if field.quantity && length > 0 {
			c.quantity = &quantityText{}
		}
	case top.layout == typeMetaLayout && c.field <= 2:
		c.capture = &c.apiVersion
		if c.field == 2 {
			c.capture = &c.kind
		}
		if length > maxTypeBytes || len(*c.capture) > 0 {
			return errMalformed
		}
	}
	if length > 0 {
		c.reads, c.until = readsScalar, end
	} else {
		c.capture = nil
	}
	return nil
}

// descend begins a message. The type of an object must precede it, or it could be measured as another one.
func (c *protoCensus) descend(message *layout, end int64) error {
	if len(c.stack) >= maxDepth {
		return errTooDeep
	}
	switch message {
	case envelopeLayout:
		c.reads, c.apiVersion, c.kind, c.named = readsMark, c.apiVersion[:0], c.kind[:0], false
	case typeMetaLayout:
		if c.named {
			return errMalformed
		}
		c.named = true
	case objectLayout:
		if message = known().kinds[schema.FromAPIVersionAndKind(string(c.apiVersion), string(c.kind))]; message == nil {
			return errMalformed
		}
	}
	c.stack = append(c.stack, protoFrame{layout: message, end: end})
	return nil
}
