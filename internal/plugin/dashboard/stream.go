// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// beatEvery is how often a stream tells that it is alive, and since when the page is up to date.
	beatEvery = 5 * time.Second
	// writePatience is how long a browser may take to receive something.
	writePatience = 10 * time.Second
)

// stream sends a page what has changed since it was made, until the browser leaves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	defer s.use(1)()
	address, err := at(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := newSender(w, r, s.Clock.Now)
	shown := s.shownTo(r)
	m, fresh := s.present()
	var before []*piece
	if shown != nil {
		before = s.render.pieces(shown, address)
	}
	beats := s.Clock.NewTimer(beatEvery)
	defer beats.Stop()
	for {
		after := s.render.pieces(m, address)
		if update := changes(nil, before, after); len(update) > 0 {
			out.send("", m.number, update)
		}
		before = after
		out.send("beat", m.number, beat(m, s.Clock.Now()))
		for waiting := true; waiting && out.err == nil; {
			select {
			case <-r.Context().Done():
				return
			case <-beats.C():
				beats.Reset(beatEvery)
				out.send("beat", m.number, beat(m, s.Clock.Now()))
			case <-fresh:
				waiting = false
			}
		}
		if out.err != nil {
			return
		}
		m, fresh = s.present()
	}
}

// beat returns the time at which the page was up to date.
func beat(m *model, now time.Time) []byte {
	if !m.link.live {
		now = m.link.asOf
	}
	return []byte(now.UTC().Format(time.RFC3339))
}

// shownTo returns the model that the page of a stream was made of: the last one that it was sent, or that it was loaded with.
func (s *Server) shownTo(r *http.Request) *model {
	number := r.Header.Get("Last-Event-ID")
	if number == "" {
		number = r.URL.Query().Get("since")
	}
	known, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return nil
	}
	return s.numbered(known)
}

// sender sends events to a browser.
type sender struct {
	to      io.Writer
	packed  *gzip.Writer
	through *http.ResponseController
	now     func() time.Time
	err     error
}

// newSender returns a sender. What it sends is compressed if the browser can read that: updates repeat themselves.
func newSender(w http.ResponseWriter, r *http.Request, now func() time.Time) *sender {
	s := &sender{to: w, through: http.NewResponseController(w), now: now}
	w.Header().Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		s.packed = gzip.NewWriter(w)
		s.to = s.packed
	}
	return s
}

// send sends an event; one without a name is content.
func (s *sender) send(name string, id uint64, data []byte) {
	if s.err != nil {
		return
	}
	var message bytes.Buffer
	if name != "" {
		fmt.Fprintf(&message, "event: %s\n", name)
	}
	fmt.Fprintf(&message, "id: %d\n", id)
	// Each of these ends a line of an event, also within a text of a member.
	data = bytes.Map(func(r rune) rune {
		if r == '\r' {
			return ' '
		}
		return r
	}, data)
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		message.WriteString("data: ")
		message.Write(line)
		message.WriteByte('\n')
	}
	message.WriteByte('\n')
	if s.err = s.through.SetWriteDeadline(s.now().Add(writePatience)); s.err != nil {
		return
	}
	if _, s.err = s.to.Write(message.Bytes()); s.err == nil && s.packed != nil {
		s.err = s.packed.Flush()
	}
	if s.err == nil {
		s.err = s.through.Flush()
	}
}
