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

// tally is the result of measuring a response so far.
type tally struct {
	// cost is an upper bound of the memory that decoding what was read needs.
	cost int64
	// items counts the items of a list, and events the complete events of a watch.
	items, events int64
	// eventBytes and eventCost belong to the largest event read so far, which may be incomplete.
	eventBytes, eventCost int64
	// pending is the cost of the incomplete event.
	pending int64
}

// census measures a response while it is read, before it is decoded. Decoding may need a thousand times the size of the
// response: an empty item is 2 bytes long, and a decoded Pod takes 1.3 KiB.
type census interface {
	// scan measures the next part of the response and adds the result to total.
	scan(p []byte, total *tally) error
}

// newCensus returns the census for a response. If the content type cannot be measured, it ensures that client-go does not
// decode the response at all. Clients would also decode YAML.
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

// uncounted is the census of text, which is not decoded. Each line counts as an event.
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
