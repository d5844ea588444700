// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import "bytes"

// maxNameBytes is more than any field of a type has.
const maxNameBytes = 64

// jsonCensus measures JSON. It does not validate it: decoders refuse what is invalid before it costs anything.
type jsonCensus struct {
	watch bool
	known *layouts

	stack []jsonFrame
	// quoted is true within a string, and escaped after a backslash in it.
	quoted, escaped bool
	// named is true within the name of a member. name collects it; it is longer than maxNameBytes if it has no cost.
	named bool
	name  []byte
	// unclear is true if the name contains escaped characters.
	unclear bool
	// amount is true while a value is read that is a quantity, and quantity checks it.
	amount   bool
	quantity quantityText

	// bytes and cost are those of the current event, and done is true at its end.
	bytes, cost int64
	done        bool
}

// jsonFrame is an object or array that is not complete.
type jsonFrame struct {
	array bool
	// wants is true in an object if a name follows.
	wants bool
	// items is true for the items of a list.
	items bool
	// managed is true in managedFields, and raw in what is kept as it is there.
	managed, raw bool
	// amounts are the members that are quantities, and above those of the object around. Nil if there are none.
	amounts, above *amounts
	// texts is true for an array of quantities.
	texts bool
	// each is the cost of each element or member.
	each int64
}

// scan implements census.
func (c *jsonCensus) scan(p []byte, total *tally) error {
	for len(p) > 0 {
		rest := p
		if c.quoted {
			var err error
			if p, err = c.text(p); err != nil {
				return err
			}
		} else if err := c.structure(&p, total); err != nil {
			return err
		}
		read := int64(len(rest) - len(p))
		c.bytes, c.cost, total.cost = c.bytes+read, c.cost+read, total.cost+read
		total.eventBytes, total.eventCost = max(total.eventBytes, c.bytes), max(total.eventCost, c.cost)
		if c.done {
			c.bytes, c.cost, c.done = 0, 0, false
		}
		total.pending = c.cost
	}
	return nil
}

// text reads on in a string and returns the rest.
func (c *jsonCensus) text(p []byte) ([]byte, error) {
	if c.escaped {
		c.escaped = false
		if p[0] != 'u' {
			return p[1:], nil
		}
		c.unclear = true
		return p[1:], c.check([]byte{'\\'})
	}
	end := bytes.IndexByte(p, '"')
	if end < 0 {
		end = len(p)
	}
	if slash := bytes.IndexByte(p[:end], '\\'); slash >= 0 {
		c.escaped = true
		return p[slash+1:], c.check(p[:slash])
	}
	if err := c.check(p[:end]); err != nil {
		return nil, err
	}
	if c.named && len(c.name) <= maxNameBytes {
		c.name = append(c.name, p[:min(end, maxNameBytes+1)]...)
	}
	if end == len(p) {
		return nil, nil
	}
	top := c.top()
	c.amount = c.named && top.has(string(c.name), c.unclear)
	c.quoted, c.named, c.quantity = false, false, quantityText{}
	return p[end+1:], nil
}

// check reads on in a value that may be a quantity.
func (c *jsonCensus) check(p []byte) error {
	if !c.amount || c.named {
		return nil
	}
	return c.quantity.scan(p)
}

// structure reads on outside of strings until something has to be counted.
func (c *jsonCensus) structure(p *[]byte, total *tally) error {
	for i, b := range *p {
		var err error
		switch b {
		case '"':
			c.quoted = true
			c.begin(total)
		case '{', '[':
			err = c.open(b == '[', total)
		case ',':
			c.next(total)
		case '}', ']':
			err = c.close(total)
		case '\n':
			c.done = len(c.stack) == 0
		case ' ', '\t', '\r', ':':
		default:
			err = c.check((*p)[i : i+1])
		}
		if err != nil {
			return err
		}
		if c.quoted || c.done {
			*p = (*p)[i+1:]
			return nil
		}
	}
	*p = nil
	return nil
}

// begin begins a string, which may be the name of a member.
func (c *jsonCensus) begin(total *tally) {
	if top := c.top(); top != nil && top.wants {
		top.wants, c.amount, c.named, c.unclear, c.name = false, false, true, false, c.name[:0]
		c.count(top, total)
	}
}

// next begins an element or a member.
func (c *jsonCensus) next(total *tally) {
	c.amount = false
	if top := c.top(); top != nil && top.array {
		c.amount, c.quantity = top.texts, quantityText{}
		c.count(top, total)
	} else if top != nil {
		top.wants = true
	}
}

// close ends an object or an array.
func (c *jsonCensus) close(total *tally) error {
	c.amount = false
	if len(c.stack) == 0 {
		return errMalformed
	}
	c.stack = c.stack[:len(c.stack)-1]
	if len(c.stack) == 0 {
		total.events++
		c.done = true
	}
	return nil
}

// open begins an object or an array.
func (c *jsonCensus) open(array bool, total *tally) error {
	if len(c.stack) >= maxDepth {
		return errTooDeep
	}
	frame := jsonFrame{array: array, wants: !array, each: minElementCost}
	top := c.top()
	switch {
	case top == nil:
		frame.amounts = c.known.amounts[""]
	case top.raw || (top.managed && !top.array && string(c.name) == "fieldsV1"):
		frame.raw, frame.each = true, 0
	case top.array:
		frame.managed, frame.amounts, frame.above = top.managed, top.amounts, top.above
	default:
		cost := c.costs()
		if frame.amounts = c.known.amounts[string(c.name)]; c.unclear {
			frame.amounts = anyAmounts
		}
		// The name may be a key of a map.
		frame.above = top.amounts
		if array {
			frame.items = len(c.stack) == 1 && !c.watch && (c.unclear || string(c.name) == "items")
			frame.managed, frame.texts = string(c.name) == "managedFields", top.has(string(c.name), c.unclear)
			frame.each = max(frame.each, cost.element)
		} else {
			frame.each = max(frame.each, cost.entry)
			c.cost, total.cost = c.cost+cost.pointer, total.cost+cost.pointer
		}
	}
	if frame.amounts != nil && !array {
		frame.each += quantityCost
	}
	c.stack = append(c.stack, frame)
	c.amount, c.quantity = frame.texts, quantityText{}
	if array {
		c.count(&frame, total)
	}
	return nil
}

// count adds an element or a member.
func (c *jsonCensus) count(in *jsonFrame, total *tally) {
	if in.items {
		total.items++
	}
	c.cost, total.cost = c.cost+in.each, total.cost+in.each
}

// costs returns the cost of the values of the last name. One that was written with escapes may be any.
func (c *jsonCensus) costs() nameCost {
	if c.unclear {
		return nameCost{element: c.known.item, entry: c.known.item, pointer: c.known.item}
	}
	return c.known.names[string(c.name)]
}

// top returns the innermost frame, or nil.
func (c *jsonCensus) top() *jsonFrame {
	if len(c.stack) == 0 {
		return nil
	}
	return &c.stack[len(c.stack)-1]
}
