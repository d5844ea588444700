// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstest

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// bookmarks is the interval of bookmarks, which is that of real API servers.
const bookmarks = time.Minute

// stream is an open watch.
type stream struct {
	info runtime.SerializerInfo
	to   http.ResponseWriter
	kind *kind
}

// watch serves a watch until the client closes it.
func (s *Server) watch(w http.ResponseWriter, req *http.Request, c *call) {
	sample, err := testenv.Scheme().New(c.kind.gvk)
	if err != nil {
		reply(w, req, http.StatusInternalServerError, statusOf(err))
		return
	}
	info := encoding(req, sample)
	out := &stream{info: info, to: w, kind: c.kind}
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()

	query := req.URL.Query()
	revision, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	if query.Get("sendInitialEvents") == "true" || revision == 0 {
		var objects []client.Object
		objects, revision, _ = s.store.list(c.kind, c.wants, 0)
		for _, object := range objects {
			out.send(watch.Added, object)
		}
		if query.Get("sendInitialEvents") == "true" {
			out.bookmark(revision, true)
		}
	}
	ticker := s.clock.NewTicker(bookmarks)
	defer ticker.Stop()
	for {
		changes, reached, changed, err := s.store.after(c.kind, revision)
		if err != nil {
			out.send(watch.Error, statusOf(err))
			return
		}
		revision = reached
		for _, change := range changes {
			if event, object, ok := change.seen(c.wants); ok {
				out.send(event, object)
			}
		}
		select {
		case <-changed:
		case <-ticker.C():
			out.bookmark(revision, false)
		case <-req.Context().Done():
			return
		}
	}
}

// send writes an event. Errors are ignored, because the context of the request ends when the client is gone.
func (s *stream) send(event watch.EventType, object runtime.Object) {
	var encoded, message, framed bytes.Buffer
	if err := s.info.Serializer.Encode(object, &encoded); err != nil {
		return
	}
	wrapped := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: bytes.TrimSpace(encoded.Bytes())}}
	if err := s.info.StreamSerializer.Encode(wrapped, &message); err != nil {
		return
	}
	// Write each event in one call, so that a fault can drop it.
	_, _ = s.info.StreamSerializer.NewFrameWriter(&framed).Write(message.Bytes())
	_, _ = s.to.Write(framed.Bytes())
	_ = http.NewResponseController(s.to).Flush()
}

// bookmark sends a bookmark at a revision. An initial one completes the list that the watch started with.
func (s *stream) bookmark(revision int64, initial bool) {
	object, err := testenv.Scheme().New(s.kind.gvk)
	if err != nil {
		return
	}
	mark, ok := object.(client.Object)
	if !ok {
		return
	}
	mark.GetObjectKind().SetGroupVersionKind(s.kind.gvk)
	mark.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initial {
		mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	s.send(watch.Bookmark, mark)
}
