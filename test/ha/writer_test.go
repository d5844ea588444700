// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// writer is some clients that write one key after the other, each the next only after the last was acknowledged.
type writer struct {
	lab    *lab
	prefix string
	// port is the one to write to, of a Pod or, if that is nil, of any Pod that is ready. With fresh each write has a
	// connection of its own. Clients are in the namespace of the Pod inside, if any.
	port       int
	to, inside *pod
	fresh      bool
	value      string
	pace       time.Duration

	stopping chan struct{}
	done     sync.WaitGroup

	mu     sync.Mutex
	counts []int
	acks   []time.Time
	errors map[string]int
}

// write starts clients that write through the proxies.
func (l *lab) write4(options ...func(*writer)) *writer {
	l.writers++
	w := &writer{
		lab: l, prefix: fmt.Sprintf("w%d", l.writers), port: proxyPort, pace: 4 * time.Millisecond,
		stopping: make(chan struct{}), errors: map[string]int{}, counts: make([]int, 4),
	}
	for _, option := range options {
		option(w)
	}
	for i := range w.counts {
		w.done.Go(func() { w.client(i) })
	}
	l.Cleanup(w.stop)
	return w
}

// straight has clients on the node of a Pod write to its server, without the proxy.
func straight(p *pod) func(*writer) {
	return func(w *writer) { w.to, w.inside, w.port, w.counts = p, p, redisPort, make([]int, 2) }
}

// through has clients on the node of a Pod write through its proxy, each time with a new connection.
func through(p *pod) func(*writer) {
	return func(w *writer) {
		w.to, w.inside, w.fresh, w.counts, w.pace = p, p, true, make([]int, 2), 20*time.Millisecond
	}
}

func (w *writer) client(i int) {
	if w.inside == nil {
		_ = w.loop(i)
		return
	}
	runtime.LockOSThread()
	if err := enter(w.inside.namespace, func() error { return w.loop(i) }); err != nil {
		w.lab.Errorf("a client of %s: %v", w.inside.name, err)
	}
}

func (w *writer) loop(i int) error {
	var c *conn
	for !w.stopped() {
		var err error
		if c == nil {
			c, err = w.connect()
		}
		if err == nil {
			_, err = c.do("SET", w.key(i, w.counts[i]), strconv.Itoa(w.counts[i])+w.value)
		}
		w.note(i, err)
		if c != nil && (w.fresh || err != nil && !repeatable(err)) {
			_ = c.Close()
			c = nil
		}
		pause := w.pace
		if err != nil {
			pause = 20 * time.Millisecond
		}
		select {
		case <-w.stopping:
		case <-time.After(pause):
		}
	}
	if c != nil {
		_ = c.Close()
	}
	return nil
}

// repeatable reports whether a write may be tried again on the same connection.
func repeatable(err error) bool {
	var said serverError
	return errors.As(err, &said) && (strings.HasPrefix(string(said), "NOREPLICAS") || strings.HasPrefix(string(said), "LOADING"))
}

func (w *writer) stopped() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// connect picks a Pod as a Service does.
func (w *writer) connect() (*conn, error) {
	to, port := w.to, w.port
	if to == nil {
		ready := slices.DeleteFunc(slices.Clone(w.lab.pods), func(p *pod) bool { return !p.endpoint() })
		switch {
		case len(ready) > 0:
			to = ready[rand.IntN(len(ready))]
		case !w.lab.pods[0].proxied:
			to, port = w.lab.pods[0], redisPort
		default:
			return nil, errors.New("no endpoint")
		}
	}
	return dial(to.address, port, w.lab.password(), 3*time.Second)
}

func (w *writer) key(client, n int) string { return fmt.Sprintf("%s:%d:%d", w.prefix, client, n) }

func (w *writer) note(client int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		text := err.Error()
		if at := strings.LastIndex(text, ": "); at >= 0 {
			text = text[at+2:]
		}
		w.errors[strings.Fields(text + " ?")[0]]++
		return
	}
	w.counts[client]++
	w.acks = append(w.acks, time.Now())
}

func (w *writer) stop() {
	if !w.stopped() {
		close(w.stopping)
	}
	w.done.Wait()
}

func (w *writer) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acks)
}

// await waits for some more acknowledged writes.
func (w *writer) await(n int) {
	w.lab.Helper()
	from := w.total()
	for end := time.Now().Add(settleTime); w.total() < from+n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.lab.Fatalf("no %d writes were acknowledged in %s; errors %v", n, settleTime, w.errors)
		}
	}
}

// outage is the longest time without an acknowledged write that ended after since.
func (w *writer) outage(since time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	for i := 1; i < len(w.acks); i++ {
		if w.acks[i].After(since) {
			longest = max(longest, w.acks[i].Sub(w.acks[i-1]))
		}
	}
	return longest
}

// last is when the last write up to some time was acknowledged, counted from another.
func (w *writer) last(from, until time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := from
	for _, at := range w.acks {
		if at.Before(until) {
			last = at
		}
	}
	return last.Sub(from)
}

func (w *writer) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(w.errors)) {
		parts = append(parts, fmt.Sprintf("%s×%d", key, w.errors[key]))
	}
	return strings.Join(parts, " ")
}

// lost counts the acknowledged writes that a Pod does not have.
func (w *writer) lost(p *pod) int {
	const batch = 1000
	w.lab.Helper()
	missing := 0
	err := p.with(redisPort, func(c *conn) error {
		c.timeout = 30 * time.Second
		for client, count := range w.counts {
			for from := 0; from < count; from += batch {
				keys := []string{"MGET"}
				for n := from; n < min(from+batch, count); n++ {
					keys = append(keys, w.key(client, n))
				}
				values, err := c.strings(keys...)
				if err != nil {
					return err
				}
				for i, value := range values {
					if !strings.HasPrefix(value, strconv.Itoa(from+i)) {
						missing++
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		w.lab.Fatalf("reading what was written from %s: %v", p.name, err)
	}
	return missing
}

// lostAnywhere counts the acknowledged writes that some Pod does not have, after replication has caught up.
func (w *writer) lostAnywhere() int {
	w.lab.Helper()
	worst := 0
	for _, p := range w.lab.pods[:w.lab.replicas] {
		missing := w.lost(p)
		for range 20 {
			if missing == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
			missing = w.lost(p)
		}
		worst = max(worst, missing)
	}
	return worst
}
