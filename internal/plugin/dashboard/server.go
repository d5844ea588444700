// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

const (
	// modelEvery is the least time between two models, and thus between two updates of a page.
	modelEvery = 500 * time.Millisecond
	// recentModels are the models that are kept, so that a page that has just been loaded is sent only what has changed since.
	recentModels = 8
	// readPatience is how long reading everything from the hub may take at first.
	readPatience = time.Minute
	// idleEnd is how long the server goes on when nobody looks.
	idleEnd = 12 * time.Hour
)

// ErrIdle is the error of a server that has ended because nobody has looked for long.
var ErrIdle = errors.New("nobody has looked at the page for 12 hours")

// Options are what a Server needs.
type Options struct {
	// Hub is what is watched.
	Hub     client.WithWatch
	Sayings Sayings
	Clock   clock.Clock
	// CommandFlags are added to the commands that the page offers, such as --context=prod.
	CommandFlags string
	// Opened is told the address of the page when it can be opened. The address has the token.
	Opened func(address string)
}

// Server is the server of the page.
type Server struct {
	Options
	token string

	watcher *watcher
	routes  http.Handler
	render  *renderer

	mu sync.Mutex
	// recent are the last models; the last one is the present.
	recent []*model
	// fresh is closed when there is another model.
	fresh chan struct{}
	// used is when the server was last asked, and streams how many are open.
	used    time.Time
	streams int
}

// New returns a Server.
func New(options Options) *Server {
	s := &Server{Options: options, token: newToken(), fresh: make(chan struct{}), used: options.Clock.Now()}
	s.watcher = newWatcher(options.Hub, options.Clock, options.Sayings.Hub)
	s.render = newRenderer(options.Sayings, options.CommandFlags)
	s.routes = s.mux()
	return s
}

// Run serves the page until the context ends, or nobody has looked for long.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	running.Go(func() { s.watcher.run(ctx) })
	reading, stop := context.WithTimeout(ctx, readPatience)
	defer stop()
	if !s.watcher.wait(reading) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		known, _ := s.watcher.link()
		return console.Faultf("check your rights on MemberClusters, Redises and NodePools, and the hub", "the fleet could not be read within %s: %s", readPatience, known.trouble)
	}
	s.publish((&modeller{sayings: s.Sayings}).make(s.watcher))
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return console.Faultf("check that programs may listen on 127.0.0.1", "listening: %w", err)
	}
	server := s.serverAt(ctx, listener.Addr().String())
	running.Go(func() { s.makeModels(ctx) })
	running.Go(func() { s.endWhenIdle(ctx, cancel) })
	running.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	s.Opened(fmt.Sprintf("http://%s/open?token=%s", listener.Addr(), s.token))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	return context.Cause(ctx)
}

// serverAt returns the HTTP server for an address.
func (s *Server) serverAt(ctx context.Context, address string) *http.Server {
	_, port, _ := splitHost(address)
	return &http.Server{
		Handler:           &guard{token: s.token, hosts: []string{"127.0.0.1:" + port, "localhost:" + port}, next: s.routes},
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

func splitHost(address string) (host, port string, err error) { return net.SplitHostPort(address) }

// makeModels makes a model whenever something has changed, with a pause after each.
func (s *Server) makeModels(ctx context.Context) {
	maker := &modeller{sayings: s.Sayings, number: s.latest().number}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.watcher.dirty:
		}
		s.publish(maker.make(s.watcher))
		timer := s.Clock.NewTimer(modelEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// publish makes a model the present one.
func (s *Server) publish(m *model) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent = append(s.recent[max(0, len(s.recent)-recentModels+1):len(s.recent):len(s.recent)], m)
	close(s.fresh)
	s.fresh = make(chan struct{})
}

// latest returns the present model.
func (s *Server) latest() *model {
	m, _ := s.present()
	return m
}

// present returns the present model, and what is closed when there is another.
func (s *Server) present() (*model, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent[len(s.recent)-1], s.fresh
}

// numbered returns a model that a page was made of, or nil if it is not kept any more.
func (s *Server) numbered(number uint64) *model {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.recent {
		if m.number == number {
			return m
		}
	}
	return nil
}

// use records that the server is asked, and returns what to call when a stream ends.
func (s *Server) use(streams int) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.streams = s.Clock.Now(), s.streams+streams
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.used, s.streams = s.Clock.Now(), s.streams-streams
	}
}

// endWhenIdle ends the server when nobody has looked for long.
func (s *Server) endWhenIdle(ctx context.Context, end context.CancelCauseFunc) {
	timer := s.Clock.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			timer.Reset(time.Minute)
		}
		s.mu.Lock()
		idle := s.streams == 0 && s.Clock.Since(s.used) >= idleEnd
		s.mu.Unlock()
		if idle {
			end(ErrIdle)
			return
		}
	}
}

// mux returns what answers requests.
func (s *Server) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /assets/{file}", asset)
	mux.HandleFunc("GET /stream", s.stream)
	mux.HandleFunc("GET /answer/{cluster}/{kind}/{path...}", s.answer)
	mux.HandleFunc("GET /", s.page)
	return mux
}

// page answers with a whole page.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	s.use(0)
	m := s.latest()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	content, status, err := s.render.document(m, r.URL)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "The page could not be made: "+err.Error())
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write(content)
}

// at returns the address of the page that a stream is for.
func at(r *http.Request) (*url.URL, error) {
	address, err := url.Parse(r.URL.Query().Get("at"))
	if err != nil || address.Host != "" || address.Scheme != "" {
		return nil, errors.New("not the address of a page")
	}
	return address, nil
}
