// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestPrimaryKilled(t *testing.T) {
	l := startLab(t)
	l.rounds("primary's process killed", times(2, 20), bound{p95: 4 * time.Second, max: 8 * time.Second, lost: crash}, func(int) string {
		l.mustPrimary().container("redis").signal(syscall.SIGKILL)
		time.Sleep(2 * time.Second)
		return ""
	})
}

// TestPrimaryKilledInBackOff has the container back after 20 s only, so that the voters have to notice.
func TestPrimaryKilledInBackOff(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("primary killed, back after 20 s", times(0, 3), bound{p95: 8 * time.Second, lost: crash}, func(int) string {
		c := l.mustPrimary().container("redis")
		c.setDelay(20 * time.Second)
		c.signal(syscall.SIGKILL)
		time.Sleep(10 * time.Second)
		c.setDelay(restartDelay)
		return ""
	})
}

// TestPrimaryForceDeleted has all processes killed at once, and the Pod created again a second later.
func TestPrimaryForceDeleted(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("primary deleted by force", times(0, 5), bound{p95: 8 * time.Second, lost: crash}, func(int) string {
		p := l.mustPrimary()
		p.setReady(false)
		p.crash()
		time.Sleep(time.Second)
		p.create()
		return ""
	})
}

func TestNodeGone(t *testing.T) {
	l := startLab(t)
	l.rounds("node of the primary gone", times(1, 10), bound{p95: 8 * time.Second, lost: crash}, func(int) string {
		l.mustPrimary().lose(12 * time.Second)
		return ""
	})
}

func TestReplicaNodeGone(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("node of a replica gone", times(0, 2), bound{max: 2 * time.Second, lost: crash}, func(round int) string {
		l.others(l.mustPrimary())[round%2].lose(8 * time.Second)
		return ""
	})
}

func cutOffTime() time.Duration {
	if testing.Short() {
		return 12 * time.Second
	}
	return 20 * time.Second
}

// partitions cuts the primary off with clients beside it, and others with it.
func (l *lab) partitions(name string, n int, limit bound, with ...*pod) {
	l.Helper()
	f := newFigures(l.T, name)
	for range n {
		l.settle()
		p := l.mustPrimary()
		outside, direct, proxied := l.write4(), l.write4(straight(p)), l.write4(through(p))
		outside.await(200)
		began := time.Now()
		cutOff := append([]*pod{p}, with...)
		for _, o := range cutOff {
			o.move(island)
		}
		time.Sleep(cutOffTime())
		healed := time.Now()
		last := max(direct.last(began, healed), proxied.last(began, healed))
		for _, o := range cutOff {
			o.move(mainland)
		}
		l.settle()
		outside.await(200)
		for _, w := range []*writer{outside, direct, proxied} {
			w.stop()
		}
		after := l.mustPrimary()
		inside := direct.lost(after) + proxied.lost(after)
		f.add(outside, began, outside.lostAnywhere(),
			fmt.Sprintf("last write inside %.1f s", last.Seconds()),
			fmt.Sprintf("with new connections %.1f s", proxied.last(began, healed).Seconds()),
			fmt.Sprintf("%d of %d written inside lost", inside, direct.total()+proxied.total()),
			fmt.Sprintf("fenced %t", len(p.logged("keeper", "fenced: ")) > 0))
		f.extra = append(f.extra, fmt.Sprintf("inside last write %.1f s", last.Seconds()))
		if last > 7*time.Second && load() < 2 {
			l.Errorf("the isolated primary acknowledged a write after %s, want 7s at most", last)
		}
	}
	f.report(limit)
}

func TestPartition(t *testing.T) {
	l := startLab(t)
	l.partitions("primary cut off", times(1, 5), bound{p95: 9 * time.Second, lost: crash})
}

// TestPartitionWithReplica has a read replica on the side of the primary: min-replicas-to-write alone would let it go on.
func TestPartitionWithReplica(t *testing.T) {
	long(t)
	l := startLab(t)
	l.replicas = 4
	l.render()
	l.pods[3].create()
	l.partitions("primary cut off with a read replica", times(0, 3), bound{p95: 9 * time.Second, lost: crash}, l.pods[3])
}

// TestPrimaryStopped has the process of the primary stand still, and go on when there is another primary.
func TestPrimaryStopped(t *testing.T) {
	long(t)
	l := startLab(t)
	f := newFigures(t, "primary stopped 12 s and continued")
	for range times(0, 3) {
		l.settle()
		p := l.mustPrimary()
		w, direct := l.write4(), l.write4(straight(p))
		w.await(200)
		began := time.Now()
		p.container("redis").signal(syscall.SIGSTOP)
		time.Sleep(12 * time.Second)
		p.container("redis").signal(syscall.SIGCONT)
		continued := time.Now()
		l.settle()
		w.await(200)
		w.stop()
		direct.stop()
		late := direct.last(continued, time.Now().Add(time.Hour))
		f.add(w, began, w.lostAnywhere(), fmt.Sprintf("acknowledged by it afterwards: %t", late > 0))
		if late > 0 {
			t.Errorf("it acknowledged a write %s after it went on", late)
		}
	}
	f.report(bound{p95: 9 * time.Second, lost: crash})
}

// TestVoterLost takes one voter away for good and then the primary: two of three are enough.
func TestVoterLost(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("voter lost, then primary killed", times(0, 2), bound{p95: 10 * time.Second, lost: crash}, func(int) string {
		p := l.mustPrimary()
		voter := l.others(p)[0].container("sentinel")
		voter.setDelay(15 * time.Second)
		voter.signal(syscall.SIGKILL)
		time.Sleep(time.Second)
		p.container("redis").signal(syscall.SIGKILL)
		time.Sleep(3 * time.Second)
		voter.setDelay(restartDelay)
		return ""
	})
}

// TestVolumeLost brings the primary back empty, sooner than the voters notice.
func TestVolumeLost(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("volume of the primary lost", times(0, 5), bound{max: 10 * time.Second, lost: crash}, func(int) string {
		p := l.mustPrimary()
		p.setReady(false)
		p.crash()
		p.wipe()
		p.create()
		time.Sleep(time.Second)
		return ""
	})
}

func (l *lab) crashAll() {
	var all sync.WaitGroup
	for _, p := range l.pods[:l.replicas] {
		p.setReady(false)
		all.Go(p.crash)
	}
	all.Wait()
}

func TestAllKilled(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("all Pods killed at once", times(0, 3), bound{max: 20 * time.Second, lost: crash}, func(int) string {
		l.crashAll()
		time.Sleep(2 * time.Second)
		for _, p := range l.pods[:l.replicas] {
			p.create()
		}
		return ""
	})
}

// forget removes what a voter knows.
func (p *pod) forget() {
	for _, path := range []string{p.path("run", "sentinel.conf"), p.path("data", ".flotilla-sentinel"), p.path("data", ".flotilla-primary")} {
		_ = os.Remove(path)
	}
}

func TestVotersForget(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("all voters forget, servers run", times(0, 2), bound{max: 2 * time.Second}, func(int) string {
		before := l.mustPrimary()
		var all sync.WaitGroup
		for _, p := range l.pods[:voters] {
			all.Go(func() {
				c := p.container("sentinel")
				c.mu.Lock()
				exited := c.exited
				c.mu.Unlock()
				c.signal(syscall.SIGKILL)
				<-exited
				p.forget()
			})
		}
		all.Wait()
		time.Sleep(3 * time.Second)
		l.settle()
		if after := l.mustPrimary(); after != before {
			t.Errorf("the primary was %s and is %s", before.name, after.name)
		}
		return ""
	})
}

// TestEverythingForgotten kills everything and removes the records of the voters but for the one line that is kept twice.
func TestEverythingForgotten(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("all killed, records gone", times(0, 3), bound{max: 20 * time.Second, lost: crash}, func(int) string {
		before := l.mustPrimary()
		l.crashAll()
		for _, p := range l.pods[:voters] {
			_ = os.Remove(p.path("data", ".flotilla-sentinel"))
			p.create()
		}
		l.settle()
		return fmt.Sprintf("primary %s, then %s", before.name, l.mustPrimary().name)
	})
}

// TestForcedPrimary has the primary gone for good while no replica is promotable, until a person chooses.
func TestForcedPrimary(t *testing.T) {
	long(t)
	l := startLab(t)
	w := l.write4()
	w.await(500)
	time.Sleep(1500 * time.Millisecond)
	w.stop()
	gone := l.mustPrimary()
	chosen := l.others(gone)[0]
	l.crashAll()
	for _, p := range l.others(gone) {
		p.create()
	}
	time.Sleep(15 * time.Second)
	if p := l.primary(); p != nil && p != gone {
		t.Logf("%s took over by itself", p.name)
	}
	l.record["FORCE_PRIMARY"] = fmt.Sprint(chosen.ordinal)
	l.render()
	began := time.Now()
	for l.primary() != chosen {
		if time.Since(began) > settleTime {
			t.Fatalf("%s is not the primary", chosen.name)
		}
		time.Sleep(200 * time.Millisecond)
	}
	took := time.Since(began)
	l.record["FORCE_PRIMARY"] = ""
	l.render()
	lost := w.lost(chosen)
	gone.create()
	l.settle()
	t.Logf("RESULT primary gone for good, a person's word: %s is the primary %.1f s after it, %d acknowledged, %d lost", chosen.name, took.Seconds(), w.total(), lost)
	if lost > crash {
		t.Errorf("%d acknowledged writes were lost, want %d at most", lost, crash)
	}
}

// TestStorm kills one process after the other, whatever it is, for a while.
func TestStorm(t *testing.T) {
	long(t)
	l := startLab(t)
	l.rounds("restart storm", times(0, 2), bound{lost: 16 * crash}, func(round int) string {
		names := []string{"redis", "sentinel", "keeper", "proxy"}
		for i := range 16 {
			p := l.pods[(i+round)%voters]
			p.container(names[(i/2+round)%len(names)]).signal(syscall.SIGKILL)
			time.Sleep(time.Second)
		}
		return ""
	})
}
