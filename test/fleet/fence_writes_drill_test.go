// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// noted is a position in the audit log of each member.
type noted map[string]audit

// note remembers where the audit logs of the members end now.
func (f *fence) note(t *testing.T) noted {
	t.Helper()
	n := noted{}
	for _, name := range f.registered() {
		n[name] = f.audit(t, name)
	}
	return n
}

// process is the one that has sent a request. Each has an address of its own behind the lines: nothing else in an audit
// log tells processes of one hub apart, which share their credential and their user agent.
func (r request) process() int {
	if len(r.SourceIPs) != 1 {
		return 0
	}
	return testenv.ProcessAt(r.SourceIPs[0])
}

// attempt says whether a request was to change something, successful or not. The claim is apart: a manager may try to
// take it. A question about rights changes nothing.
func (r request) attempt() bool {
	if !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) {
		return false
	}
	claim := r.ObjectRef.Resource == "leases" && r.ObjectRef.Namespace == "flotilla-system"
	return !claim && !strings.HasSuffix(r.ObjectRef.Resource, "reviews")
}

// bodiless reports whether the API server could not read the body of a request, because its sender was stopped after the
// headers, or was not permitted to write any more. Such a request changes nothing: it is no write.
func (r request) bodiless() bool {
	message := r.ResponseStatus.Message
	return r.ResponseStatus.Code >= 400 &&
		(strings.HasPrefix(message, "stream error: ") || message == "client disconnected" || message == "unexpected EOF")
}

// turn is a number of writes of one process to a member, between which no other process wrote.
type turn struct {
	pid         int
	first, last request
	// until is when the last of its writes ended.
	until time.Time
	count int
}

// turns returns the turns in a member, in order.
func (n noted) turns(t *testing.T, name string) []turn {
	t.Helper()
	return turnsOf(slices.DeleteFunc(n[name].read(t), func(r request) bool { return !r.attempt() || r.bodiless() }))
}

// turnsOf returns the turns of which writes consist.
func turnsOf(writes []request) []turn {
	slices.SortStableFunc(writes, func(a, b request) int { return a.Received.Compare(b.Received) })
	var turns []turn
	for _, w := range writes {
		if len(turns) == 0 || turns[len(turns)-1].pid != w.process() {
			turns = append(turns, turn{pid: w.process(), first: w})
		}
		now := &turns[len(turns)-1]
		now.last = w
		now.count++
		if w.Answered.After(now.until) {
			now.until = w.Answered
		}
	}
	return turns
}

// shown is what the audit logs of all members show of a round.
type shown struct {
	problems []string
	// gap is the shortest time between the last write of a process and the first one of the next. It is negative if both
	// wrote during that time.
	gap time.Duration
	// last is who wrote last, by member.
	last map[string]int
}

// show checks that in each member every process wrote only before the others had begun to, or after they had ended.
func (f *fence) show(t *testing.T, n noted) shown {
	t.Helper()
	s := shown{last: map[string]int{}}
	for _, name := range f.registered() {
		turns := n.turns(t, name)
		for _, now := range turns {
			s.last[name] = now.pid
		}
		gap, problems := f.overlaps(turns)
		if gap != 0 && (s.gap == 0 || gap < s.gap) {
			s.gap = gap
		}
		if len(problems) > 0 {
			s.problems = append(s.problems, fmt.Sprintf("%s: %s\n%s", name, strings.Join(problems, "; "), f.evidence(turns)))
		}
	}
	return s
}

// overlaps returns the shortest time between the last write of a process and the first one of the next, and what is wrong.
func (f *fence) overlaps(turns []turn) (shortest time.Duration, problems []string) {
	spans := spansOf(turns)
	for i, now := range spans {
		if f.contenders[now.pid] == nil {
			problems = append(problems, f.name(now.pid)+" wrote")
		}
		if i == 0 {
			continue
		}
		before := slices.MaxFunc(spans[:i], func(a, b turn) int { return a.until.Compare(b.until) })
		gap := now.first.Received.Sub(before.until)
		if i == 1 || gap < shortest {
			shortest = gap
		}
		if gap < 0 {
			problems = append(problems, fmt.Sprintf("%s wrote from %s, and %s until %s, in %d turns",
				f.name(now.pid), stamp(now.first.Received), f.name(before.pid), stamp(before.until), len(turns)))
		}
	}
	return shortest, problems
}

// spansOf returns one turn for each process, from its first write to its last one, in the order of the first ones.
func spansOf(turns []turn) []turn {
	var spans []turn
	for _, now := range turns {
		i := slices.IndexFunc(spans, func(s turn) bool { return s.pid == now.pid })
		if i < 0 {
			spans = append(spans, now)
			continue
		}
		spans[i].last, spans[i].count = now.last, spans[i].count+now.count
		if now.until.After(spans[i].until) {
			spans[i].until = now.until
		}
	}
	slices.SortStableFunc(spans, func(a, b turn) int { return a.first.Received.Compare(b.first.Received) })
	return spans
}

// evidence lists the first turns with their first and last writes.
func (f *fence) evidence(turns []turn) string {
	const most = 6
	out := &strings.Builder{}
	for _, now := range turns[:min(most, len(turns))] {
		fmt.Fprintf(out, "    %s: %d writes from %s to %s, the first %s, the last %s\n", f.name(now.pid), now.count,
			stamp(now.first.Received), stamp(now.until), now.first.brief(), now.last.brief())
	}
	return out.String()
}

func stamp(at time.Time) string { return at.UTC().Format("15:04:05.000000") }

// brief names a request with its answer.
func (r request) brief() string {
	if r.ResponseStatus.Code >= 500 {
		return fmt.Sprintf("%s = %d %q", r, r.ResponseStatus.Code, r.ResponseStatus.Message)
	}
	return fmt.Sprintf("%s = %d", r, r.ResponseStatus.Code)
}

// firstOf returns when a manager wrote first, by member.
func (n noted) firstOf(t *testing.T, c *contender) map[string]time.Time {
	t.Helper()
	first := map[string]time.Time{}
	for name := range n {
		for _, now := range n.turns(t, name) {
			if now.pid == c.pid() {
				first[name] = now.first.Received
				break
			}
		}
	}
	return first
}

// awaitFirst waits until a manager has written somewhere.
func (f *fence) awaitFirst(t *testing.T, n noted, c *contender) {
	t.Helper()
	NewWithT(t).Eventually(func() map[string]time.Time { return n.firstOf(t, c) }, takeOver, 100*time.Millisecond).ShouldNot(BeEmpty(), "%s writes", c.name)
}

// awaitWrites waits until a manager has written to each member, and returns when it had begun to everywhere.
func (f *fence) awaitWrites(t *testing.T, n noted, c *contender, within time.Duration) (everywhere time.Time) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		first := n.firstOf(t, c)
		g.Expect(first).To(HaveLen(len(n)))
		for _, at := range first {
			if at.After(everywhere) {
				everywhere = at
			}
		}
	}, within, 250*time.Millisecond).Should(Succeed(), "%s writes to every member", c.name)
	return everywhere
}
