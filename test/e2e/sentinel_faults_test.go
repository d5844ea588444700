// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// crashLoss is how many writes a crash of the primary may cost: what no replica had received, some milliseconds of
// connections that write one key after the other.
const crashLoss = 50

const sentinelPort = 26379

// mayLoseLittle is underLoad for what ends the primary without a word.
func (s *story) mayLoseLittle(t *testing.T, happen func(w *writer)) {
	t.Helper()
	_, lost := s.underLoad(t, happen)
	s.mustLoseAtMost(t, lost, crashLoss)
}

// failOvers has something befall the primary some times under load. Each time another one has to take over, and all has to
// be well again. befall calls broken when the damage is done.
func (s *story) failOvers(t *testing.T, times int, befall func(w *writer, primary corev1.Pod, broken func())) {
	t.Helper()
	s.tell("%d times", times)
	s.mayLoseLittle(t, func(w *writer) {
		for i := range times {
			_, failovers := s.leader(t)
			befall(w, s.primaryPod(t), func() {
				if i == 0 {
					s.whenBroken(t)
				}
			})
			s.awaitFailovers(t, failovers+1)
			s.settle(t)
			w.awaitWrites(t)
		}
	})
}

// often is how many times something is repeated: as usual, or as often as the run asks for, up to most.
func (s *story) often(usual, most int) int { return max(usual, min(s.times, most)) }

func killSentinelProcess(t *testing.T, s *story) {
	var killed corev1.Pod
	s.failOvers(t, s.often(3, 20), func(_ *writer, primary corev1.Pod, broken func()) {
		// A container that was killed before waits longer and longer to be started again. That of another Pod does not.
		if killed.Name != "" && killed.Name != primary.Name {
			s.drop(t, &corev1.Pod{}, killed.Name)
			s.awaitReplaced(t, killed.Name, killed.UID)
		}
		killed = primary
		// The sentinel of the Pod is the same program, and is killed with it.
		s.machine(t, "kill", machineOf(primary), string(primary.UID), serverProgram)
		broken()
	})
}

func forceSentinelPrimary(t *testing.T, s *story) {
	s.failOvers(t, s.often(1, 10), func(_ *writer, primary corev1.Pod, broken func()) {
		s.dropByForce(t, primary)
		broken()
		s.awaitReplaced(t, primary.Name, primary.UID)
	})
}

// isolateSentinelPrimary takes the Pod of the primary off the network for 20 s: another one takes over, and when it is back
// there is one primary.
func isolateSentinelPrimary(t *testing.T, s *story) {
	s.failOvers(t, s.often(3, 5), func(w *writer, primary corev1.Pod, broken func()) {
		s.machine(t, "isolate", machineOf(primary), string(primary.UID))
		broken()
		time.Sleep(20 * time.Second)
		w.awaitWrites(t)
		s.machine(t, "rejoin", machineOf(primary), string(primary.UID))
	})
}

// stopSentinelProcess has the primary do nothing for longer than it takes the others to replace it, and go on as if nothing
// had happened. Its sentinel is the same program, and is stopped with it.
func stopSentinelProcess(t *testing.T, s *story) {
	s.failOvers(t, 3, func(_ *writer, primary corev1.Pod, broken func()) {
		s.awaitVoters(t)
		s.machine(t, "kill", machineOf(primary), string(primary.UID), serverProgram, "STOP")
		broken()
		time.Sleep(12 * time.Second)
		s.machine(t, "kill", machineOf(primary), string(primary.UID), serverProgram, "CONT")
	})
}

// awaitVoters waits until no sentinel mistrusts its clock. One that was stopped does so for 30 s (TILT), and does not vote:
// without the next one, too few would.
func (s *story) awaitVoters(t *testing.T) {
	t.Helper()
	eventually(t, settleTime, "all sentinels vote", func(ctx context.Context) error {
		pods, err := s.pods(ctx, s.member)
		if err != nil {
			return err
		}
		for name, pod := range pods {
			c := s.dialPort(pod, sentinelPort)
			info, err := c.Info(ctx, "sentinel").Result()
			_ = c.Close()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if !strings.Contains(info, "sentinel_tilt:0") {
				return fmt.Errorf("%s says of itself:\n%s", name, info)
			}
		}
		return nil
	})
}

// killSentinelWithoutAPI kills the primary while the API server of the member does not answer: clients of the Service find
// the next one all the same.
func killSentinelWithoutAPI(t *testing.T, s *story) {
	var err error
	if s.address, err = s.serviceAddress(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.address = ""
		s.machine(t, "api", s.member.name, "CONT")
	}()
	s.failOvers(t, 3, func(w *writer, primary corev1.Pod, broken func()) {
		s.machine(t, "api", s.member.name, "STOP")
		s.machine(t, "kill", machineOf(primary), string(primary.UID), serverProgram)
		broken()
		w.awaitWrites(t)
		s.machine(t, "api", s.member.name, "CONT")
	})
}

// loseSentinelVolume loses the volume of the primary together with its Pod: another Pod takes over, and fills it again.
func loseSentinelVolume(t *testing.T, s *story) {
	s.mustKeepAll(t, func(w *writer) {
		for range s.often(1, 3) {
			primary, failovers := s.leader(t)
			s.loseVolumes(t, ordinalOf(t, primary))
			s.awaitFailovers(t, failovers+1)
			s.settle(t)
			w.awaitWrites(t)
		}
	})
}

func ordinalOf(t *testing.T, pod string) int {
	t.Helper()
	ordinal, err := strconv.Atoi(strings.TrimPrefix(pod, redisName+"-"))
	if err != nil {
		t.Fatal(err)
	}
	return ordinal
}

// killDuringFirstCopies kills the primary while both replicas have lost their volumes and copy everything again: neither can
// take its place, so it comes back, with all keys.
func killDuringFirstCopies(t *testing.T, s *story) {
	primary := s.primaryPod(t)
	var replicas []int
	for ordinal := range 3 {
		if ordinal != ordinalOf(t, primary.Name) {
			replicas = append(replicas, ordinal)
		}
	}
	var links map[string]string
	s.mayLoseLittle(t, func(*writer) {
		before := s.identities(t, s.member)
		s.slowCopies(t, primary)
		s.loseVolumes(t, replicas...)
		within(t, settleTime, 50*time.Millisecond, "a replica copies", func(ctx context.Context) error {
			links = map[string]string{}
			for _, ordinal := range replicas {
				var pod corev1.Pod
				if err := s.member.Get(ctx, s.key(podName(ordinal)), &pod); err == nil {
					links[pod.Name] = s.linkOf(ctx, pod)
				}
			}
			for _, link := range links {
				if link != "" {
					return nil
				}
			}
			return errors.New("none answers")
		})
		for name, link := range links {
			if link == "up" {
				t.Errorf("%s has copied everything already", name)
			}
		}
		s.machine(t, "kill", machineOf(primary), string(primary.UID), serverProgram)
		s.awaitTouched(t, map[string]string{primary.Name: before[primary.Name]})
	})
	if now, _ := s.leader(t); now != primary.Name {
		t.Errorf("%s took over from %s before it had all keys", now, primary.Name)
	}
}

func podName(ordinal int) string { return fmt.Sprintf("%s-%d", redisName, ordinal) }

// slowCopies has a server take a millisecond for each key that it copies, until it is started again.
func (r *instance) slowCopies(t *testing.T, pod corev1.Pod) {
	t.Helper()
	c := r.dialPod(pod)
	defer func() { _ = c.Close() }()
	if err := c.ConfigSet(t.Context(), "rdb-key-save-delay", "1000").Err(); err != nil {
		t.Fatalf("slowing the copies of %s: %v", pod.Name, err)
	}
}

// linkOf is what the server of a Pod says of its link to the primary, or "" if it says nothing.
func (r *instance) linkOf(ctx context.Context, pod corev1.Pod) string {
	c := r.dialPod(pod)
	defer func() { _ = c.Close() }()
	info, err := c.Info(ctx, "replication").Result()
	if err != nil {
		return ""
	}
	_, link, _ := strings.Cut(info, "master_link_status:")
	link, _, _ = strings.Cut(link, "\r")
	return link
}

// killAllSentinels kills every server and every sentinel at once.
func killAllSentinels(t *testing.T, s *story) {
	s.mayLoseLittle(t, func(w *writer) {
		for i := range s.often(1, 3) {
			before := s.identities(t, s.member)
			s.allPods(t, "kill", serverProgram)
			if i == 0 {
				s.whenBroken(t)
			}
			s.awaitTouched(t, before)
			s.settle(t)
			w.awaitWrites(t)
			s.mustHaveResumed(t, w)
		}
	})
}

// allPods has a command of hack/e2e.sh befall all Pods at the same time.
func (s *story) allPods(t *testing.T, command string, args ...string) {
	t.Helper()
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, len(pods))
	for _, pod := range pods {
		go func() { errs <- s.tryMachine(append([]string{command, machineOf(pod), string(pod.UID)}, args...)...) }()
	}
	for range pods {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// What a sentinel knows is in these files of its Pod.
const (
	voterMemory = "/run/flotilla/shared/sentinel.conf"
	voterRecord = "/data/.flotilla-sentinel"
	lastPrimary = "/data/.flotilla-primary"
)

// forgetVoters has all sentinels lose what they know while the servers run: these say who the primary is.
func forgetVoters(t *testing.T, s *story) {
	s.forgetAll(t, "[sentinel]", voterMemory, voterRecord, lastPrimary)
}

// forgetEverything kills the servers as well. Of the records only the line that is kept twice is left.
func forgetEverything(t *testing.T, s *story) {
	s.forgetAll(t, "-server ", voterMemory, voterRecord)
}

// forgetAll kills what has certain words in its command line in all Pods, and removes files. That is no reason to replace the
// primary.
func (s *story) forgetAll(t *testing.T, words string, files ...string) {
	t.Helper()
	primary, _ := s.leader(t)
	s.mustKeepAll(t, func(*writer) {
		before := s.identities(t, s.member)
		s.allPods(t, "forget", append([]string{words}, files...)...)
		s.whenBroken(t)
		s.awaitTouched(t, before)
		s.awaitVoters(t)
	})
	if now, _ := s.leader(t); now != primary {
		t.Errorf("the primary was %s and is %s", primary, now)
	}
}

// scaleSentinelsToZero stops everything and starts it again. What the sentinels knew is on the volumes.
func scaleSentinelsToZero(t *testing.T, s *story) {
	s.mustKeepAll(t, func(w *writer) {
		for i := range s.often(1, 3) {
			s.scaleTo(t, 0)
			if i == 0 {
				s.whenBroken(t)
			}
			eventually(t, settleTime, "no Pod is left", func(ctx context.Context) error { return s.allReady(ctx, s.member, 0) })
			s.scaleTo(t, 3)
			s.settle(t)
			w.awaitWrites(t)
			s.mustHaveResumed(t, w)
		}
	})
}

// evictSentinels has every Pod evicted, as kubectl drain does: the primary changes when it is its turn, and only then.
func evictSentinels(t *testing.T, s *story) {
	s.mustKeepAll(t, func(w *writer) {
		_, before := s.leader(t)
		want := before
		for ordinal := range 3 {
			if primary, _ := s.leader(t); primary == podName(ordinal) {
				want++
			}
			var pod corev1.Pod
			s.get(t, podName(ordinal), &pod)
			s.evict(t, pod)
			if ordinal == 0 {
				s.whenBroken(t)
			}
			s.awaitReplaced(t, pod.Name, pod.UID)
			s.awaitFailovers(t, want)
			s.settle(t)
			w.awaitWrites(t)
		}
		if _, after := s.leader(t); after != want {
			t.Errorf("the primary changed %d times, want %d", after-before, want-before)
		}
	})
}

// rebootSentinels kills everything on the node at once, and starts it again. The machine below keeps running.
func rebootSentinels(t *testing.T, s *story) {
	s.mayLoseLittle(t, func(*writer) {
		s.machine(t, "stop", s.member.name)
		s.whenBroken(t)
		time.Sleep(time.Second)
		s.machine(t, "start", s.member.name)
	})
}
