// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// connections is how many clients write at once, each the next key only after the last was acknowledged.
	connections = 4
	// pace keeps the data set of two hours below the limit of memory, above which writes are refused.
	pace = 8 * time.Millisecond
	// noticeable is the shortest time without an acknowledged write that counts as an outage; a busy machine has pauses.
	noticeable = 500 * time.Millisecond
	// unnoticed is how long writes may pause when nothing that they need was touched: a busy machine, no more.
	unnoticed = 3 * time.Second
)

// ledger is what was acknowledged: of each connection the keys from 0 to below its number.
type ledger struct {
	prefix string
	counts [connections]int
}

func (l ledger) total() int {
	sum := 0
	for _, n := range l.counts {
		sum += n
	}
	return sum
}

func (l ledger) key(connection, n int) string {
	return l.prefix + ":" + strconv.Itoa(connection) + ":" + strconv.Itoa(n)
}

// writer writes until it is stopped, and notes every acknowledged write and every pause.
type writer struct {
	ledger
	cancel context.CancelFunc
	done   sync.WaitGroup

	// acks counts acknowledged writes while the writer runs.
	acks atomic.Int64
	mu   sync.Mutex
	last time.Time
	// resumed is when writes were acknowledged again after the last outage.
	resumed time.Time
	outages []time.Duration
	longest time.Duration
}

// startWriter begins to write through the Service of the primary.
func (r *instance) startWriter(t *testing.T) *writer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r.writers++
	w := &writer{ledger: ledger{prefix: fmt.Sprintf("w%d", r.writers)}, cancel: cancel, last: time.Now()}
	for i := range connections {
		w.done.Go(func() {
			c := r.dialPrimary()
			defer func() { _ = c.Close() }()
			w.write(ctx, c, i)
		})
	}
	t.Cleanup(cancel)
	return w
}

// write sets one key after the other. A write without an answer may have happened; it is repeated until it has one.
func (w *writer) write(ctx context.Context, c *redis.Client, connection int) {
	for ctx.Err() == nil {
		n := w.counts[connection]
		if err := c.Set(ctx, w.key(connection, n), n, 0).Err(); err == nil {
			w.counts[connection]++
			w.acknowledged()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
}

func (w *writer) acknowledged() {
	w.acks.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	pause := now.Sub(w.last)
	if pause > noticeable {
		w.outages = append(w.outages, pause)
		w.resumed = now
	}
	w.longest, w.last = max(w.longest, pause), now
}

// takeLongest returns the longest time without an acknowledged write since it was asked last.
func (w *writer) takeLongest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.longest
	w.longest = 0
	return longest
}

// awaitWrites waits until some more writes were acknowledged.
func (w *writer) awaitWrites(t *testing.T) {
	t.Helper()
	const some = 500
	began := w.acks.Load()
	eventually(t, settleTime, "writes are acknowledged", func(context.Context) error {
		if acks := w.acks.Load() - began; acks < some {
			return fmt.Errorf("%d since then", acks)
		}
		return nil
	})
}

// stopWriter ends the writing and adds what was acknowledged to what the instance must have.
func (r *instance) stopWriter(w *writer) {
	w.cancel()
	w.done.Wait()
	r.ledgers = append(r.ledgers, w.ledger)
}

// mustFlow fails the test when writes were interrupted although nothing was touched that they need.
func (w *writer) mustFlow(t *testing.T, although string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, outage := range w.outages {
		if outage > unnoticed {
			t.Errorf("writes paused for %s although %s", outage, although)
		}
	}
}

// figures say what was written and how long nothing could be.
func (w *writer) figures() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf("%d writes acknowledged", w.total())
	if len(w.outages) == 0 {
		return text + ", no outage"
	}
	slices.Sort(w.outages)
	return fmt.Sprintf("%s, %d outages p50 %.1fs p95 %.1fs max %.1fs", text, len(w.outages),
		quantile(w.outages, 50).Seconds(), quantile(w.outages, 95).Seconds(), w.outages[len(w.outages)-1].Seconds())
}

// quantile returns a percentile of a sorted list: the smallest that so many percent do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// missing counts the acknowledged writes that a server does not have as they were written.
func (l ledger) missing(ctx context.Context, c *redis.Client) (int, error) {
	const batch = 2000
	lost := 0
	for connection, count := range l.counts {
		for from := 0; from < count; from += batch {
			var keys []string
			for n := from; n < min(from+batch, count); n++ {
				keys = append(keys, l.key(connection, n))
			}
			values, err := c.MGet(ctx, keys...).Result()
			if err != nil {
				return 0, fmt.Errorf("reading %d keys from %q: %w", len(keys), keys[0], err)
			}
			for i, value := range values {
				if value != strconv.Itoa(from+i) {
					lost++
				}
			}
		}
	}
	return lost, nil
}
