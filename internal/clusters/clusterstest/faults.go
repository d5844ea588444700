// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// Hang accepts requests and never answers.
func Hang() Fault {
	return Fault{Answer: func(_ http.ResponseWriter, req *http.Request, _ http.Handler) { <-req.Context().Done() }}
}

// HangBeforeHandshake accepts connections and says nothing.
func HangBeforeHandshake() Fault {
	return Fault{Accept: func(inner net.Conn) net.Conn { return &muteConn{Conn: inner, closed: make(chan struct{})} }}
}

// muteConn delivers nothing.
type muteConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Read implements net.Conn.
func (c *muteConn) Read([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

// Close implements net.Conn.
func (c *muteConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Refuse refuses connections.
func Refuse() Fault { return Fault{Refuse: true} }

// WrongCertificate shows a certificate that the kubeconfig does not trust.
func WrongCertificate() Fault { return Fault{Certificate: &wrong().Certificate} }

// Slow answers byte by byte with a pause after each.
func Slow(pause time.Duration) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		well.ServeHTTP(&slowWriter{ResponseWriter: w, req: req, pause: pause}, req)
	}}
}

// slowWriter writes byte by byte.
type slowWriter struct {
	http.ResponseWriter
	req   *http.Request
	pause time.Duration
}

// Write implements io.Writer.
func (w *slowWriter) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := w.ResponseWriter.Write(p[i : i+1]); err != nil {
			return i, err
		}
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		select {
		case <-w.req.Context().Done():
			return i, w.req.Context().Err()
		case <-clock.RealClock{}.After(w.pause):
		}
	}
	return len(p), nil
}

// Status answers everything but some paths with a status.
func Status(code int, but ...string) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if slices.Contains(but, req.URL.Path) {
			well.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, http.StatusText(code), code)
	}}
}

// Redirect sends everyone elsewhere.
func Redirect(to string) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		http.Redirect(w, req, to+req.URL.Path, http.StatusTemporaryRedirect)
	}}
}

// onCollections has lists and watches answered by someone, and everything else well.
func onCollections(answer http.HandlerFunc) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if c, err := parse(req); err != nil || c.name != "" || req.Method != http.MethodGet {
			well.ServeHTTP(w, req)
			return
		}
		answer(w, req)
	}}
}

// Endless has lists and watches that never end: of objects, all of them different, or of one string in a zip.
func Endless(zipped bool) Fault {
	return onCollections(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		c, err := parse(req)
		if err != nil {
			return
		}
		if zipped {
			w.Header().Set("Content-Encoding", "gzip")
			_, err := w.Write(zip(`{"type":"ADDED","object":{"kind":"`))
			for err == nil && req.Context().Err() == nil {
				_, err = w.Write(bomb())
			}
			return
		}
		version, kindName := c.kind.gvk.GroupVersion(), c.kind.gvk.Kind
		format := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"n%%d","namespace":"default","uid":"u","resourceVersion":"5","annotations":{"a":%q}}}`,
			version, kindName, strings.Repeat("x", 1<<10))
		if isWatch(req) {
			format = `{"type":"ADDED","object":` + format + "}\n"
		} else {
			_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"5"},"items":[`, version, kindName+"List")
			format += ","
		}
		for i := 0; err == nil && req.Context().Err() == nil; i++ {
			_, err = fmt.Fprintf(w, format, i)
		}
	})
}

// EmptyItems has lists of empty objects, and refuses watches that begin with a list.
func EmptyItems() Fault {
	return onCollections(func(w http.ResponseWriter, req *http.Request) {
		c, err := parse(req)
		if err != nil || isWatch(req) {
			http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, err = fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"5"},"items":[{}`, c.kind.gvk.GroupVersion(), c.kind.gvk.Kind+"List")
		for i := 0; i < 2_000 && err == nil; i++ {
			_, err = io.WriteString(w, strings.Repeat(",{}", 1000))
		}
		_, _ = io.WriteString(w, "]}")
	})
}

// SmallObjects has lists and watches of objects that have a name and nothing else, without end.
func SmallObjects() Fault {
	return onCollections(func(w http.ResponseWriter, req *http.Request) {
		c, err := parse(req)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		format := `{"apiVersion":%q,"kind":%q,"metadata":{"name":"%d","namespace":"default","resourceVersion":"5"}}`
		separator := ","
		if isWatch(req) {
			format, separator = `{"type":"ADDED","object":`+format+"}", "\n"
		} else {
			_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","items":[`)
		}
		for i := 0; err == nil && req.Context().Err() == nil; i++ {
			_, err = fmt.Fprintf(w, format+separator, c.kind.gvk.GroupVersion(), c.kind.gvk.Kind, i)
		}
	})
}

// Hoard has watches that begin with a list of so many objects of a size each, which is complete.
func Hoard(objects, size int) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		c, err := parse(req)
		if err != nil || !isWatch(req) || c.kind.resource != "configmaps" || req.URL.Query().Get("sendInitialEvents") != "true" {
			well.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		data := strings.Repeat("x", size)
		for i := 0; i < objects && err == nil; i++ {
			_, err = fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%d","namespace":"default","resourceVersion":"5"},"data":{"a":%q}}}`+"\n", i, data)
		}
		_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}}
}

// HugeEvents has watches that deliver objects of empty containers, as often as they are read.
func HugeEvents(containers int) Fault {
	return nested(func(w io.Writer) error {
		chunk := strings.Repeat("{},", 1000)
		for range containers / 1000 {
			if _, err := io.WriteString(w, chunk); err != nil {
				return err
			}
		}
		_, err := io.WriteString(w, "{}")
		return err
	})
}

// DeepEvents has watches that deliver objects of many levels.
func DeepEvents() Fault {
	return nested(func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("[", 100_000))
		return err
	})
}

// nested has watches of objects with the containers that write writes. Lists are refused.
func nested(write func(io.Writer) error) Fault {
	return onCollections(func(w http.ResponseWriter, req *http.Request) {
		c, err := parse(req)
		if err != nil || !isWatch(req) {
			http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		spec := `"spec":{"containers":[`
		end := "]}}}\n"
		if c.kind.resource == "statefulsets" {
			spec, end = `"spec":{"template":{"spec":{"containers":[`, "]}}}}}\n"
		}
		for i := 0; err == nil && req.Context().Err() == nil; i++ {
			_, err = fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":%q,"kind":%q,"metadata":{"name":"%d","namespace":"default","resourceVersion":"5"},%s`,
				c.kind.gvk.GroupVersion(), c.kind.gvk.Kind, i, spec)
			if err == nil {
				err = write(w)
			}
			if err == nil {
				_, err = io.WriteString(w, end)
			}
		}
	})
}

// ChangingCapacity has a Node with other resources at each of some hundred events of its watch.
func ChangingCapacity() Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		c, err := parse(req)
		if err != nil || !isWatch(req) || c.kind.resource != "nodes" || req.URL.Query().Get("sendInitialEvents") == "true" {
			well.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < 100 && err == nil; i++ {
			var capacity strings.Builder
			for device := range 500 {
				fmt.Fprintf(&capacity, `"example.com/device-%d":"%d",`, device, i)
			}
			_, err = fmt.Fprintf(w, `{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Node","metadata":{"name":"changing","resourceVersion":"5"},`+
				`"status":{"capacity":{%s"cpu":"1"}}}}`+"\n", capacity.String())
		}
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}}
}

// bomb is 1 MiB in a zip, made once: to pack it takes more than to unpack it.
var bomb = sync.OnceValue(func() []byte { return zip(strings.Repeat("x", 1<<20)) })

// zip packs a text. Packed texts may follow each other in a stream.
func zip(text string) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = io.WriteString(writer, text)
	_ = writer.Close()
	return packed.Bytes()
}

// Restless has watches that begin well and then deliver changes of one object as fast as they are read, for ever.
func Restless() Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		c, err := parse(req)
		if err != nil || !isWatch(req) || req.URL.Query().Get("sendInitialEvents") == "true" {
			well.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		event := fmt.Sprintf(`{"type":"MODIFIED","object":{"apiVersion":%q,"kind":%q,"metadata":{"name":"restless","namespace":"default","resourceVersion":"1"}}}`,
			c.kind.gvk.GroupVersion(), c.kind.gvk.Kind) + "\n"
		for req.Context().Err() == nil {
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
	}}
}

// Garbage has lists and watches of something that is no answer, though it says it is of a content type.
func Garbage(contentType, body string) Fault {
	return onCollections(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	})
}

// Forbid refuses lists and watches of a resource, and says so to whoever asks for any right on it.
func Forbid(resource string) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews") {
			sent, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if bytes.Contains(sent, []byte(resource)) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`)
				return
			}
			req.Body = io.NopCloser(bytes.NewReader(sent))
		}
		if c, err := parse(req); err == nil && c.kind.resource == resource && c.name == "" && req.Method == http.MethodGet {
			reply(w, req, http.StatusForbidden, statusOf(apierrors.NewForbidden(c.kind.groupResource(), "", nil)))
			return
		}
		well.ServeHTTP(w, req)
	}}
}

// WithoutInitialEnd has watches that begin with a list whose end is never sent.
func WithoutInitialEnd() Fault {
	return dropping(func(*http.Request) func([]byte) bool { return marksInitialEnd })
}

// Silent has watches that deliver nothing but the list that they begin with.
func Silent() Fault {
	return dropping(func(req *http.Request) func([]byte) bool {
		listing := req.URL.Query().Get("sendInitialEvents") == "true"
		return func(event []byte) bool {
			drop := !listing
			listing = listing && !marksInitialEnd(event)
			return drop
		}
	})
}

// marksInitialEnd reports whether an event completes the list that a watch begins with.
func marksInitialEnd(event []byte) bool {
	return bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey))
}

// dropping drops events of watches; drop is made for each of them.
func dropping(drop func(*http.Request) func(event []byte) bool) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if isWatch(req) {
			w = &droppingWriter{ResponseWriter: w, drop: drop(req)}
		}
		well.ServeHTTP(w, req)
	}}
}

// droppingWriter sees one event at each Write.
type droppingWriter struct {
	http.ResponseWriter
	drop func(event []byte) bool
}

// Write implements io.Writer.
func (w *droppingWriter) Write(p []byte) (int, error) {
	if w.drop(p) {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *droppingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
