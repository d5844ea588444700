// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// sentinelScenarios are what a Redis in mode Sentinel must survive. All its Pods are on the one node of their cluster.
var sentinelScenarios = []scenario{
	{name: "sentinel: primary Pod deleted under load", run: deleteSentinelPrimary, engine: true},
	{name: "sentinel: replica Pod deleted under load", run: deleteSentinelReplica, engine: true},
	{name: "sentinel: primary process killed", run: killSentinelProcess, machines: true, engine: true},
	{name: "sentinel: primary Pod deleted by force", run: forceSentinelPrimary, engine: true},
	{name: "sentinel: primary Pod cut off", run: isolateSentinelPrimary, machines: true},
	{name: "sentinel: primary process stopped for 12 s", run: stopSentinelProcess, machines: true},
	{name: "sentinel: primary killed, API server away", run: killSentinelWithoutAPI, machines: true},
	{name: "sentinel: image rolled out under load", run: rollSentinelImage},
	{name: "sentinel: configuration rolled out under load", run: rollSentinelConfig},
	{name: "sentinel: password rotated under load", run: rotateSentinelPassword},
	{name: "sentinel: scaled to 5 and back, primary Pod deleted at 5", run: scaleSentinels},
	{name: "sentinel: volume of the primary lost", run: loseSentinelVolume},
	{name: "sentinel: Services deleted", run: deleteServices},
	{name: "sentinel: ConfigMap and PodDisruptionBudget deleted", run: deleteChildren},
	{name: "sentinel: all Pods deleted at once", run: deleteAllPods},
	{name: "sentinel: all servers and sentinels killed at once", run: killAllSentinels, machines: true},
	{name: "sentinel: every Pod evicted", run: evictSentinels},
	{name: "sentinel: primary killed during first copies", run: killDuringFirstCopies, machines: true},
	{name: "sentinel: scaled to 0 and back", run: scaleSentinelsToZero},
	{name: "sentinel: voters forget", run: forgetVoters, machines: true},
	{name: "sentinel: everything killed and forgotten", run: forgetEverything, machines: true},
	{name: "sentinel: node rebooted", run: rebootSentinels, machines: true},
}

// TestSentinel breaks a Redis in mode Sentinel.
func TestSentinel(t *testing.T) {
	sentinels(t, "e2e-sentinel", "", func(*world) func(*testing.T) { return func(*testing.T) {} })
}

// TestSentinelWithoutManager is the same, but the manager is killed in the middle of every scenario: the result is the same.
func TestSentinelWithoutManager(t *testing.T) {
	sentinels(t, "e2e-sentinel-killed", ", manager killed", func(w *world) func(*testing.T) { return w.killManager })
}

// sentinels runs all scenarios on a Redis that begins in mode Replication.
func sentinels(t *testing.T, namespace, how string, whenBroken func(*world) func(*testing.T)) {
	t.Helper()
	w := connect(t)
	w.mustHaveProxy(t, "mode Sentinel"+how, w.proxy)
	r := w.create(t, namespace, w.members, flotillav1.RedisSpec{Image: w.image, Replicas: new(int32(3))})
	about := story{instance: r, whenBroken: whenBroken(w), full: true}
	runAll(t, append([]scenario{{name: "sentinel: mode changed from Replication under load", run: becomeSentinel}}, sentinelScenarios...), about, how)
	if how == "" {
		t.Run("settled", r.costNothing)
	}
	t.Run("no password anywhere", r.noPasswordAnywhere)
	r.remove(t)
}

// TestSentinelEngines shows that other servers, and HAProxy 3, fail over as well.
func TestSentinelEngines(t *testing.T) {
	w := connect(t)
	for _, e := range w.engines()[1:] {
		t.Run(e.name, func(t *testing.T) {
			w.mustHaveProxy(t, "mode Sentinel, "+e.name, w.proxy3)
			e.mustHaveImage(t)
			r := w.create(t, "e2e-sentinel-"+e.id, w.members[:1], flotillav1.RedisSpec{
				Image: e.image, Replicas: new(int32(3)), Mode: flotillav1.RedisModeSentinel, Proxy: &flotillav1.RedisProxy{Image: w.proxy3},
			})
			r.mustBe(t, e.says)
			about := story{instance: r, whenBroken: func(*testing.T) {}}
			runAll(t, slices.DeleteFunc(slices.Clone(sentinelScenarios), func(sc scenario) bool { return !sc.engine }), about, ", "+e.name+", HAProxy 3")
			r.remove(t)
		})
	}
}

// mustHaveProxy skips what needs an image of HAProxy that there is none of, or more time than there is.
func (w *world) mustHaveProxy(t *testing.T, what, image string) {
	t.Helper()
	if testing.Short() {
		notRun(t, what, "only the short selection was asked for")
	}
	if image == "" {
		notRun(t, what, "there is no image of HAProxy: Debian's packages are out of reach, and E2E_IMAGE_HAPROXY or E2E_IMAGE_HAPROXY3 is not set")
	}
}

// becomeSentinel changes the mode of a Redis that has data.
func becomeSentinel(t *testing.T, s *story) {
	s.mustKeepAll(t, func(*writer) {
		s.ask(t, func(spec *flotillav1.RedisSpec) {
			spec.Mode, spec.Proxy = flotillav1.RedisModeSentinel, &flotillav1.RedisProxy{Image: s.proxy}
		})
		s.whenBroken(t)
		s.leader(t)
	})
	primary, failovers := s.leader(t)
	s.tell("the primary is %s, %d failovers", primary, failovers)
}

// leader waits until the member knows the primary, and returns it and the number of failovers.
func (r *instance) leader(t *testing.T) (string, int32) {
	t.Helper()
	var primary string
	var failovers int32
	eventually(t, settleTime, "the primary is known", func(ctx context.Context) error {
		seen, err := r.copyOf(ctx, r.member)
		if err != nil {
			return err
		}
		primary, failovers = seen.Status.Primary, seen.Status.Failovers
		if primary == "" {
			return fmt.Errorf("nobody has told")
		}
		return nil
	})
	return primary, failovers
}

// awaitFailovers waits until the member and the hub have counted so many.
func (r *instance) awaitFailovers(t *testing.T, want int32) {
	t.Helper()
	eventually(t, settleTime, fmt.Sprintf("%d failovers are counted", want), func(ctx context.Context) error {
		seen, err := r.copyOf(ctx, r.member)
		if err != nil {
			return err
		}
		if seen.Status.Failovers < want || seen.Status.Primary == "" {
			return fmt.Errorf("%d, and the primary is %q", seen.Status.Failovers, seen.Status.Primary)
		}
		onHub, err := r.copyOf(ctx, r.hub)
		if err != nil {
			return err
		}
		for _, entry := range onHub.Status.Clusters {
			if entry.Name == r.member.name && (entry.Failovers != seen.Status.Failovers || entry.Primary != seen.Status.Primary) {
				return fmt.Errorf("the hub shows %d and %q", entry.Failovers, entry.Primary)
			}
		}
		return nil
	})
}

func (s *story) primaryPod(t *testing.T) corev1.Pod {
	t.Helper()
	name, _ := s.leader(t)
	var pod corev1.Pod
	s.get(t, name, &pod)
	return pod
}

func deleteSentinelPrimary(t *testing.T, s *story) {
	times := s.often(10, 20)
	s.tell("%d times", times)
	s.mustKeepAll(t, func(w *writer) {
		for i := range times {
			_, failovers := s.leader(t)
			pod := s.primaryPod(t)
			s.drop(t, &corev1.Pod{}, pod.Name)
			if i == 0 {
				s.whenBroken(t)
			}
			s.awaitReplaced(t, pod.Name, pod.UID)
			s.awaitFailovers(t, failovers+1)
			s.settle(t)
			w.awaitWrites(t)
		}
	})
}

func deleteSentinelReplica(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) {
		for range s.often(1, 3) {
			primary, _ := s.leader(t)
			for ordinal := range 3 {
				name := podName(ordinal)
				if name == primary {
					continue
				}
				var pod corev1.Pod
				s.get(t, name, &pod)
				s.drop(t, &corev1.Pod{}, name)
				s.whenBroken(t)
				s.awaitReplaced(t, name, pod.UID)
			}
		}
	})
	w.mustFlow(t, "the primary was not touched")
	s.awaitRest(t)
}

// awaitRest waits until no sentinel uses more of a CPU than one does that has nothing to do. A connection that is made while its
// Pod has no address keeps a sentinel busy, until it connects anew.
func (s *story) awaitRest(t *testing.T) {
	t.Helper()
	began, before := time.Now(), s.sentinelCPU(t)
	within(t, 30*time.Second, 2*time.Second, "the sentinels rest", func(context.Context) error {
		elapsed, now := time.Since(began), s.sentinelCPU(t)
		if elapsed < time.Second {
			return errors.New("nobody has looked for long enough")
		}
		var busy []string
		for name := range now {
			if share := (now[name] - before[name]) / elapsed.Seconds(); share > 0.05 {
				busy = append(busy, fmt.Sprintf("%s uses %.2f of a CPU", name, share))
			}
		}
		began, before = time.Now(), now
		if len(busy) > 0 {
			return errors.New(strings.Join(busy, ", "))
		}
		return nil
	})
}

// sentinelCPU is how many seconds of a CPU the sentinel of each Pod has used.
func (s *story) sentinelCPU(t *testing.T) map[string]float64 {
	t.Helper()
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatalf("listing the Pods: %v", err)
	}
	used := map[string]float64{}
	for name, pod := range pods {
		c := s.dialPort(pod, sentinelPort)
		info, err := c.InfoMap(t.Context(), "cpu").Result()
		_ = c.Close()
		if err != nil {
			t.Fatalf("asking the sentinel of %s: %v", name, err)
		}
		for _, key := range []string{"used_cpu_sys", "used_cpu_user"} {
			seconds, err := strconv.ParseFloat(info["CPU"][key], 64)
			if err != nil {
				t.Fatalf("the sentinel of %s says %q: %v", name, info["CPU"][key], err)
			}
			used[name] += seconds
		}
	}
	return used
}

// rotateSentinelPassword changes the password as docs/redis.md says: clients of the old one go on until it is withdrawn.
func rotateSentinelPassword(t *testing.T, s *story) {
	old, replacement := s.password, rand.Text()
	change := func(data map[string][]byte) {
		secret := &corev1.Secret{}
		s.get(t, redisName+"-auth", secret)
		secret.Data = data
		if err := s.member.Update(t.Context(), secret); err != nil {
			t.Fatalf("changing the password: %v", err)
		}
	}
	rotate := func(data map[string][]byte, reason string) {
		s.mustKeepAll(t, func(*writer) {
			_, failovers := s.leader(t)
			change(data)
			s.whenBroken(t)
			s.awaitCondition(t, flotillav1.ConditionConfigApplied, metav1.ConditionTrue, reason)
			s.awaitFailovers(t, failovers+1)
		})
	}
	rotate(map[string][]byte{flotillav1.RedisSecretKeyPassword: []byte(replacement), "previous": []byte(old)}, flotillav1.ReasonTwoPasswords)
	s.password = replacement
	rotate(map[string][]byte{flotillav1.RedisSecretKeyPassword: []byte(replacement)}, "")
	refused := *s.instance
	refused.password = old
	c := refused.dialPrimary()
	defer func() { _ = c.Close() }()
	if err := c.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("the old password is answered with %v, want WRONGPASS", err)
	}
}

func rollSentinelImage(t *testing.T, s *story) {
	s.rollSentinels(t, func(spec *flotillav1.RedisSpec) { spec.Image = s.next })
}

func rollSentinelConfig(t *testing.T, s *story) {
	s.rollSentinels(t, func(spec *flotillav1.RedisSpec) { spec.Config = map[string]flotillav1.ConfigValue{"hz": "23"} })
}

// rollSentinels changes the spec under load: the Pods go one by one, the primary last, and the primary changes once.
func (s *story) rollSentinels(t *testing.T, change func(spec *flotillav1.RedisSpec)) {
	t.Helper()
	primary, before := s.leader(t)
	var seen deletions
	s.mustKeepAll(t, func(*writer) {
		stop := s.watchDeletions(t)
		s.ask(t, change)
		s.whenBroken(t)
		s.awaitFailovers(t, before+1)
		s.settle(t)
		seen = stop()
	})
	s.tell("order %s, the primary was %s", strings.Join(seen.order, " "), primary)
	if len(seen.order) != 3 || seen.order[2] != primary || seen.overlap != "" {
		t.Errorf("the Pods were replaced in the order %v (away together: %q), want the primary %s last", seen.order, seen.overlap, primary)
	}
	if _, after := s.leader(t); after != before+1 {
		t.Errorf("an update changed the primary %d times, want once", after-before)
	}
}

// scaleSentinels adds Pods that do not vote: they never become the primary.
func scaleSentinels(t *testing.T, s *story) {
	voters := []string{redisName + "-0", redisName + "-1", redisName + "-2"}
	var paused time.Duration
	s.mustKeepAll(t, func(w *writer) {
		s.scaleTo(t, 5)
		s.whenBroken(t)
		s.settle(t)
		paused = w.takeLongest()
		before, failovers := s.leader(t)
		s.drop(t, &corev1.Pod{}, before)
		s.awaitFailovers(t, failovers+1)
		s.settle(t)
		w.awaitWrites(t)
		if now, _ := s.leader(t); !slices.Contains(voters, now) {
			t.Errorf("the primary is %s, which does not vote", now)
		}
		w.takeLongest()
		s.scaleTo(t, 3)
		s.settle(t)
		paused = max(paused, w.takeLongest())
	})
	if paused > unnoticed {
		t.Errorf("writes paused for %s while replicas came and went", paused)
	}
	s.tell("they paused for %.1fs at most while replicas came and went", paused.Seconds())
}
