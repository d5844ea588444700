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

// HangBeforeHandshake accepts connections and never sends a byte.
func HangBeforeHandshake() Fault {
	return Fault{Accept: func(inner net.Conn) net.Conn { return &muteConn{Conn: inner, closed: make(chan struct{})} }}
}

// muteConn blocks every Read until it is closed.
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

// Refuse closes the port, so that connections are refused.
func Refuse() Fault { return Fault{Refuse: true} }

// WrongCertificate presents a certificate that the kubeconfig does not trust.
func WrongCertificate() Fault { return Fault{Certificate: &wrong().Certificate} }

// Slow pauses after each byte of a response.
func Slow(pause time.Duration) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		well.ServeHTTP(&slowWriter{ResponseWriter: w, req: req, pause: pause}, req)
	}}
}

// slowWriter flushes each byte and then pauses.
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

// Status answers every request with a status code, except for the paths in but.
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

// Redirect redirects every request to the same path of another server.
func Redirect(to string) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		http.Redirect(w, req, to+req.URL.Path, http.StatusTemporaryRedirect)
	}}
}

// onCollections passes lists and watches to answer. All other requests are answered correctly.
func onCollections(answer http.HandlerFunc) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if c, err := parse(req); err != nil || c.name != "" || req.Method != http.MethodGet {
			well.ServeHTTP(w, req)
			return
		}
		answer(w, req)
	}}
}

// Endless sends lists and watches that never end: distinct objects or, if zipped, one compressed string.
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

// EmptyItems sends lists of two million empty objects, and refuses all watches.
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

// SmallObjects sends endless lists and watches of objects that consist of little more than a name.
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

// Hoard starts watches of ConfigMaps with a complete list of the given number of objects, each with size bytes of data.
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

// HugeEvents sends watch events without end, each an object with the given number of empty containers.
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

// DeepEvents sends watch events without end, each a deeply nested object.
func DeepEvents() Fault {
	return nested(func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("[", 100_000))
		return err
	})
}

// nested sends watch events without end. The list of containers of each object is what write writes. Lists are refused.
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

// ChangingCapacity sends one hundred watch events of a Node, each with 500 extended resources whose values have changed.
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

// bomb returns 1 MiB, compressed. It is cached because compressing is slower than decompressing.
var bomb = sync.OnceValue(func() []byte { return zip(strings.Repeat("x", 1<<20)) })

// zip compresses text. The results may be concatenated.
func zip(text string) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = io.WriteString(writer, text)
	_ = writer.Close()
	return packed.Bytes()
}

// Restless sends changes of one object on every resumed watch, as fast as they are read. Initial lists are correct.
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

// Garbage answers lists and watches with an arbitrary body of the given content type.
func Garbage(contentType, body string) Fault {
	return onCollections(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	})
}

// Forbid refuses lists and watches of a resource. A SelfSubjectAccessReview for the resource is answered accordingly.
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

// WithoutInitialEnd drops the bookmark that completes the initial list of a watch.
func WithoutInitialEnd() Fault {
	return dropping(func(*http.Request) func([]byte) bool { return marksInitialEnd })
}

// Silent drops all watch events after the initial list.
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

// marksInitialEnd reports whether an event completes the initial list of a watch.
func marksInitialEnd(event []byte) bool {
	return bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey))
}

// dropping drops the watch events for which the returned function returns true. drop is called once per watch.
func dropping(drop func(*http.Request) func(event []byte) bool) Fault {
	return Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if isWatch(req) {
			w = &droppingWriter{ResponseWriter: w, drop: drop(req)}
		}
		well.ServeHTTP(w, req)
	}}
}

// droppingWriter filters watch events. Each Write is one event.
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
