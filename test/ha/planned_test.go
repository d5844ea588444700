// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"fmt"
	"testing"
	"time"
)

// rounds has a scenario happen so many times under load. Afterwards each voting Pod must have every acknowledged write.
func (l *lab) rounds(name string, n int, limit bound, act func(round int) string) *figures {
	l.Helper()
	f := newFigures(l.T, name)
	for round := range n {
		l.settle()
		w := l.write4()
		w.await(200)
		began := time.Now()
		note := act(round)
		l.settle()
		w.await(200)
		w.stop()
		f.add(w, began, w.lostAnywhere(), note)
	}
	f.report(limit)
	return f
}

// handedOver is what the hook of a Pod said last.
func handedOver(p *pod) string {
	said := p.logged("redis", "preStop: ")
	if len(said) == 0 {
		return "no hook"
	}
	return said[len(said)-1]
}

func TestPrimaryDeleted(t *testing.T) {
	l := startLab(t)
	l.rounds("primary deleted", times(3, 20), bound{p95: 1500 * time.Millisecond, max: 3 * time.Second}, func(int) string {
		p := l.mustPrimary()
		p.delete()
		return handedOver(p)
	})
}

func TestReplicaDeleted(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("replica deleted", times(1, 6), bound{p95: 500 * time.Millisecond, max: time.Second}, func(round int) string {
		p := l.others(l.mustPrimary())[round%2]
		p.delete()
		return handedOver(p)
	})
}

func TestAllDeleted(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("all Pods deleted at once", times(0, 3), bound{max: 20 * time.Second}, func(int) string {
		done := make(chan struct{})
		for _, p := range l.pods[:voters] {
			go func() { p.delete(); done <- struct{}{} }()
		}
		for range voters {
			<-done
		}
		return ""
	})
}

// TestRollingUpdate replaces the replicas first, the highest ordinal first, and the primary last.
func TestRollingUpdate(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("rolling update", times(0, 3), bound{max: 3 * time.Second}, func(int) string {
		before := l.epoch()
		l.roll()
		if after := l.epoch(); after != before+1 {
			t.Errorf("the update took %d switchovers, want exactly 1", after-before)
		}
		return ""
	})
}

func (l *lab) roll() {
	l.Helper()
	primary := l.mustPrimary()
	for i := l.replicas - 1; i >= 0; i-- {
		if p := l.pods[i]; p != primary {
			p.delete()
			l.settle()
		}
	}
	primary.delete()
	l.settle()
}

// TestPasswordRotated has old and new accepted at once, moves the clients, and takes the old one away.
func TestPasswordRotated(t *testing.T) {
	long(t)
	l := startLab(t)
	const next = "n3w-\"\\ yyyyyyyyyyyyyyyyyyyy"
	l.rounds("password rotated", times(0, 1), bound{max: 3 * time.Second}, func(int) string {
		l.write("auth/previous", awkward)
		l.write("auth/password", next)
		l.roll()
		l.mu.Lock()
		l.secret = next
		l.mu.Unlock()
		l.write("auth/previous", "")
		l.roll()
		return ""
	})
	for _, port := range []int{redisPort, voterPort} {
		if c, err := dial(l.pods[0].address, port, awkward, time.Second); err == nil {
			_ = c.Close()
			t.Errorf("port %d accepts the password of before", port)
		}
	}
}

// TestScaled goes from three to five and back. The primary is deleted and lost at five, and must always be one that votes.
func TestScaled(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("scaled 3-5-3", times(0, 2), bound{max: 10 * time.Second}, func(int) string {
		l.replicas = 5
		l.render()
		for _, p := range l.pods[3:5] {
			p.create()
		}
		l.settle()
		l.mustPrimary().delete()
		l.settle()
		l.mustPrimary().lose(10 * time.Second)
		l.settle()
		primary := l.mustPrimary()
		if primary.ordinal >= voters {
			t.Errorf("%s is the primary", primary.name)
		}
		for _, p := range []*pod{l.pods[4], l.pods[3]} {
			p.noHeir = true
			p.delete()
			p.noHeir = false
			p.wipe()
		}
		l.replicas = voters
		l.render()
		return "primary at five " + primary.name
	})
}

// TestScaledToZero stops everything and starts it again. What the voters knew is on the volumes.
func TestScaledToZero(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("scaled 3-0-3", times(0, 2), bound{}, func(int) string {
		l.mustPrimary().delete() // so that it is another ordinal than at first
		l.settle()
		before := l.mustPrimary()
		done := make(chan struct{})
		for _, p := range l.pods[:voters] {
			p.noHeir = true
			go func() { p.delete(); done <- struct{}{} }()
		}
		for range voters {
			<-done
		}
		began := time.Now()
		for _, p := range l.pods[:voters] {
			p.noHeir = false
			p.create()
		}
		l.settle()
		return fmt.Sprintf("primary before %s, after %s, settled after %.1f s", before.name, l.mustPrimary().name, time.Since(began).Seconds())
	})
}

// TestMigrated changes the mode of a Redis under load: replicas first, ordinal 0 last.
func TestMigrated(t *testing.T) {
	long(t)
	n := times(0, 2)
	f := newFigures(t, "Replication to Sentinel")
	for range n {
		l := newLab(t)
		l.replication = true
		l.record["INITIALIZED"] = "true"
		l.record["FORCE_EMPTY_PRIMARY"] = "true" // a first start, in the words of mode Replication
		l.render()
		for _, p := range l.pods[:voters] {
			p.create()
		}
		w := l.write4()
		w.await(500)
		began := time.Now()
		l.replication = false
		l.record["MIGRATING"], l.record["FORCE_EMPTY_PRIMARY"] = "true", "false"
		l.render()
		for _, p := range []*pod{l.pods[2], l.pods[1]} {
			p.delete()
			l.awaitReplica(p)
		}
		time.Sleep(10 * time.Second) // two voters get to know each other
		l.pods[0].delete()
		l.settle()
		l.record["MIGRATING"] = "false"
		l.render()
		w.await(200)
		w.stop()
		f.add(w, began, w.lostAnywhere(), "primary now "+l.mustPrimary().name)
	}
	f.report(bound{max: 8 * time.Second})
}

// awaitReplica waits until a Pod is ready, in sync and promotable.
func (l *lab) awaitReplica(p *pod) {
	l.Helper()
	var info map[string]string
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		info, _ = p.info("replication")
		if info["master_link_status"] == "up" && info["slave_priority"] == "100" && p.endpoint() {
			return
		}
	}
	l.Fatalf("%s is not in sync: %v", p.name, info)
}
