// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"errors"
	"mime"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// maxDepth is the maximum nesting of an answer.
	maxDepth = 250
	// maxEventBytes is the maximum size of a watch event. API servers refuse requests of more than 3 MiB, and etcd by
	// default those of more than 1.5 MiB; the rest is for what an API server adds.
	maxEventBytes = 4 << 20
	// listCostFactor is how many times its size a list may need once it is decoded. Small objects need the most.
	listCostFactor = 4
)

var (
	errTooDeep   = errors.New("the answer is nested too deeply")
	errMalformed = errors.New("the answer is malformed")
)

// tally is what was read so far.
type tally struct {
	// cost is an upper bound of the memory that is needed to decode what was read.
	cost int64
	// items counts the items of a list, and events the complete events of a watch.
	items, events int64
	// eventBytes and eventCost are those of the largest event read, which may be incomplete.
	eventBytes, eventCost int64
	// pending is the cost of the event that is incomplete.
	pending int64
}

// census measures an answer while it is read, before it is decoded. Decoders need up to a thousand times the size of an
// answer: an empty item has 2 bytes, and a Pod 1.3 KiB.
type census interface {
	// scan reads on and adds to total.
	scan(p []byte, total *tally) error
}

// newCensus returns the census for a response. It makes sure that client-go decodes a response that cannot be measured in
// no way: clients decode YAML, too, if an answer says that it is.
func newCensus(resp *http.Response, watch bool) census {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err == nil && media == runtime.ContentTypeJSON:
		return &jsonCensus{watch: watch, known: known()}
	case err == nil && media == runtime.ContentTypeProtobuf:
		return newProtoCensus(watch)
	default:
		resp.Header.Set("Content-Type", "text/plain")
		return &uncounted{}
	}
}

// uncounted is the census of text, which is not decoded. Its lines are taken for events.
type uncounted struct{ line int64 }

// scan implements census.
func (c *uncounted) scan(p []byte, total *tally) error {
	total.cost += int64(len(p))
	if newline := bytes.LastIndexByte(p, '\n'); newline >= 0 {
		c.line = int64(len(p) - newline - 1)
	} else {
		c.line += int64(len(p))
	}
	total.eventBytes, total.eventCost, total.pending = c.line, c.line, c.line
	return nil
}
