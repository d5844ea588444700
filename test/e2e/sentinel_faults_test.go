// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// crashLoss is how many writes a crash of the primary may cost: what no replica had received, some milliseconds of
// connections that write one key after the other.
const crashLoss = 50

const sentinelPort = 26379

// mayLoseLittle is underLoad for what ends the primary without a word.
func (s *story) mayLoseLittle(t *testing.T, happen func(w *writer)) {
	t.Helper()
	if _, lost := s.underLoad(t, happen); lost > crashLoss {
		t.Errorf("%d acknowledged writes were lost, more than the last milliseconds have", lost)
	} else if lost > 0 {
		s.forget()
	}
}

func killSentinelProcess(t *testing.T, s *story) {
	s.mayLoseLittle(t, func(w *writer) {
		for i := range 3 {
			_, failovers := s.leader(t)
			pod := s.primaryPod(t)
			// The sentinel of the Pod is the same program, and is killed with it.
			s.machine(t, "kill", s.member.name, string(pod.UID), serverProgram)
			if i == 0 {
				s.whenBroken(t)
			}
			s.awaitFailovers(t, failovers+1)
			s.settle(t)
			w.awaitWrites(t)
		}
	})
}

func forceSentinelPrimary(t *testing.T, s *story) {
	s.mayLoseLittle(t, func(*writer) {
		_, failovers := s.leader(t)
		pod := s.primaryPod(t)
		s.dropByForce(t, pod)
		s.whenBroken(t)
		s.awaitReplaced(t, pod.Name, pod.UID)
		s.awaitFailovers(t, failovers+1)
	})
}

// isolateSentinelPrimary takes the Pod of the primary off the network for 20 s: another one takes over, and when it is back
// there is one primary.
func isolateSentinelPrimary(t *testing.T, s *story) {
	s.mayLoseLittle(t, func(w *writer) {
		for i := range s.often(3) {
			_, failovers := s.leader(t)
			pod := s.primaryPod(t)
			s.machine(t, "isolate", s.member.name, string(pod.UID))
			if i == 0 {
				s.whenBroken(t)
			}
			time.Sleep(20 * time.Second)
			w.awaitWrites(t)
			s.machine(t, "rejoin", s.member.name, string(pod.UID))
			s.awaitFailovers(t, failovers+1)
			s.settle(t)
		}
	})
}

// stopSentinelProcess has the primary do nothing for longer than it takes the others to replace it, and go on as if nothing
// had happened. Its sentinel is the same program, and is stopped with it.
func stopSentinelProcess(t *testing.T, s *story) {
	s.mayLoseLittle(t, func(w *writer) {
		for i := range s.often(3) {
			s.awaitVoters(t)
			_, failovers := s.leader(t)
			pod := s.primaryPod(t)
			s.machine(t, "kill", s.member.name, string(pod.UID), serverProgram, "STOP")
			if i == 0 {
				s.whenBroken(t)
			}
			time.Sleep(12 * time.Second)
			s.machine(t, "kill", s.member.name, string(pod.UID), serverProgram, "CONT")
			s.awaitFailovers(t, failovers+1)
			s.settle(t)
			w.awaitWrites(t)
		}
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
	s.mayLoseLittle(t, func(w *writer) {
		for i := range s.often(3) {
			_, failovers := s.leader(t)
			pod := s.primaryPod(t)
			s.machine(t, "api", s.member.name, "STOP")
			s.machine(t, "kill", s.member.name, string(pod.UID), serverProgram)
			if i == 0 {
				s.whenBroken(t)
			}
			w.awaitWrites(t)
			s.machine(t, "api", s.member.name, "CONT")
			s.awaitFailovers(t, failovers+1)
			s.settle(t)
		}
	})
}

// often is how many times something is repeated, once if it was seen before.
func (s *story) often(times int) int {
	if s.full {
		return times
	}
	return 1
}

// loseSentinelVolume loses the volume of the primary together with its Pod: another Pod takes over, and fills it again.
func loseSentinelVolume(t *testing.T, s *story) {
	s.mustKeepAll(t, func(*writer) {
		primary, failovers := s.leader(t)
		ordinal, err := strconv.Atoi(strings.TrimPrefix(primary, redisName+"-"))
		if err != nil {
			t.Fatal(err)
		}
		s.loseVolume(t, ordinal)
		s.awaitFailovers(t, failovers+1)
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
