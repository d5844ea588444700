// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// story is one scenario as it happens.
type story struct {
	*instance
	// whenBroken is called as soon as a scenario has broken something: nothing, or the manager dies as well.
	whenBroken func(t *testing.T)
	// told are the figures of the scenario.
	told []string
	// full says that a scenario takes the time it needs to show everything; what only repeats it is cut short.
	full bool
}

// tell adds to the line that the scenario ends with.
func (s *story) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

// scenario is something that goes wrong or changes, and what must come of it.
type scenario struct {
	name string
	run  func(t *testing.T, s *story)
	// machines says that the machines below the clusters must be ours to break.
	machines bool
	// engine says that it is about what differs between servers.
	engine bool
	// short says that it belongs to the short selection: it asks for nothing but that no write is lost that must not be, and
	// that all is well again. How long a write may pause depends on what else the machine does.
	short bool
}

var scenarios = []scenario{
	{name: "primary Pod deleted under load", run: deletePrimary, engine: true},
	{name: "replica Pods deleted under load", run: deleteReplicas},
	{name: "all Pods deleted at once", run: deleteAllPods},
	{name: "primary process killed", run: killProcess, machines: true, short: true},
	{name: "node rebooted", run: rebootNode, machines: true, short: true},
	{name: "image rolled out under load", run: rollImage},
	{name: "configuration rolled out under load", run: rollConfig, engine: true, short: true},
	{name: "wrong image", run: wrongImage},
	{name: "scaled to 1, 3, 2 and 3", run: scale},
	{name: "volume of a replica lost", run: loseReplicaVolume},
	{name: "Services deleted", run: deleteServices, short: true},
	{name: "ConfigMap and PodDisruptionBudget deleted", run: deleteChildren},
	{name: "password Secret deleted", run: deleteSecret},
	{name: "storage grown", run: growStorage},
	{name: "volume of the primary lost", run: losePrimaryVolume, short: true},
	{name: "hub cut off", run: cutHub, machines: true},
}

// TestRedis breaks a Redis in every way that it must survive. Its scenarios share one instance and keep checking all data
// that was ever acknowledged.
func TestRedis(t *testing.T) {
	w := connect(t)
	r := w.place(t, "e2e-calm", w.image)
	if testing.Short() {
		runAll(t, only(func(sc scenario) bool { return sc.short }), story{instance: r, whenBroken: func(*testing.T) {}}, "")
	} else {
		runAll(t, scenarios, story{instance: r, whenBroken: func(*testing.T) {}, full: true}, "")
		t.Run("settled", r.costNothing)
	}
	t.Run("no password anywhere", r.noPasswordAnywhere)
	r.remove(t)
}

// TestRedisWithoutManager is the same, but the manager is killed in the middle of every scenario: the result is the same.
func TestRedisWithoutManager(t *testing.T) {
	if testing.Short() {
		notRun(t, "everything again, manager killed", "only the short selection was asked for")
	}
	w := connect(t)
	r := w.place(t, "e2e-killed", w.image)
	runAll(t, scenarios, story{instance: r, whenBroken: w.killManager}, ", manager killed")
	t.Run("no password anywhere", r.noPasswordAnywhere)
	r.remove(t)
}

// TestEngines shows that other servers take the place of Redis 7 with nothing but another image.
func TestEngines(t *testing.T) {
	w := connect(t)
	for _, e := range w.engines()[1:] {
		t.Run(e.name, func(t *testing.T) {
			if testing.Short() {
				notRun(t, e.name, "only the short selection was asked for")
			}
			e.mustHaveImage(t)
			r := w.place(t, "e2e-engine-"+e.id, e.image)
			r.mustBe(t, e.says)
			runAll(t, only(func(sc scenario) bool { return sc.engine }), story{instance: r, whenBroken: func(*testing.T) {}}, ", "+e.name)
			t.Run("no password anywhere", r.noPasswordAnywhere)
			r.remove(t)
		})
	}
}

// engine is a server that a Redis can consist of.
type engine struct {
	id, name, image string
	// says is what the server says of itself.
	says string
}

// engines are the servers that the suite knows, the usual one first.
func (w *world) engines() []engine {
	return []engine{
		{id: "redis", name: "Redis", image: w.image, says: "redis_version:"},
		{id: "redis8", name: "Redis 8", image: w.redis8, says: "redis_version:8."},
		{id: "valkey", name: "Valkey", image: w.valkey, says: "valkey_version:"},
	}
}

func (e engine) mustHaveImage(t *testing.T) {
	t.Helper()
	if e.image == "" {
		notRun(t, e.name, "there is no image of it: Debian's packages are out of reach, and E2E_IMAGE_"+strings.ToUpper(e.id)+" is not set")
	}
}

// only returns the scenarios that are chosen.
func only(chosen func(scenario) bool) []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(sc scenario) bool { return !chosen(sc) })
}

// runAll runs each scenario as a story like the given one, and says in a line how it went.
func runAll(t *testing.T, scenarios []scenario, like story, suffix string) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			if sc.machines && !like.ours() {
				notRun(t, sc.name+suffix, "the machines below the given clusters are not ours to break")
			}
			s := like
			defer func() {
				verdict := "ok  "
				if t.Failed() {
					verdict = "FAIL"
					s.describe(t)
				}
				say("%s %-52s %s", verdict, sc.name+suffix, strings.Join(s.told, ", "))
			}()
			sc.run(t, &s)
		})
	}
}

// notRun says why something is not tried, where everybody sees it.
func notRun(t *testing.T, what, why string) {
	t.Helper()
	say("     %-52s not run: %s", what, why)
	t.Skip(why)
}

// say shows a line at once, whatever the test's output is kept for.
func say(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// describe logs what a person would look at first.
func (r *instance) describe(t *testing.T) {
	for _, c := range []cluster{r.hub, r.member} {
		seen, err := r.copyOf(t.Context(), c)
		if err != nil {
			t.Logf("%s: %v", c.name, err)
			continue
		}
		for _, condition := range seen.Status.Conditions {
			t.Logf("%s: %s is %s (%s): %s", c.name, condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
	pods, err := r.pods(t.Context(), r.member)
	if err != nil {
		t.Logf("%s: %v", r.member.name, err)
	}
	for name, pod := range pods {
		t.Logf("%s: Pod %s is %s since %s, ready %t, with spec %s", r.member.name, name, pod.Status.Phase, pod.CreationTimestamp, podReady(pod),
			pod.Annotations[flotillav1.AnnotationSpecHash])
		for _, status := range pod.Status.ContainerStatuses {
			t.Logf("%s: Pod %s: restarted %d times, now %+v, before %+v", r.member.name, name, status.RestartCount, status.State, status.LastTerminationState)
		}
	}
}

// underLoad writes while something happens, waits until all is well again, and counts what was lost.
func (s *story) underLoad(t *testing.T, happen func(w *writer)) (*writer, int) {
	t.Helper()
	w := s.startWriter(t)
	w.awaitWrites(t)
	happen(w)
	s.settle(t)
	w.awaitWrites(t)
	s.stopWriter(w)
	lost := s.check(t)
	s.tell("%s, %d lost", w.figures(), lost)
	return w, lost
}

// mustKeepAll is underLoad for what may cost no acknowledged write.
func (s *story) mustKeepAll(t *testing.T, happen func(w *writer)) *writer {
	t.Helper()
	w, lost := s.underLoad(t, happen)
	if lost > 0 {
		t.Errorf("%d acknowledged writes were lost", lost)
	}
	return w
}

// mustLoseAtMost fails the test if a crash has cost more acknowledged writes than it may. What was lost is not looked for again.
func (s *story) mustLoseAtMost(t *testing.T, lost, most int) {
	t.Helper()
	if lost > most {
		t.Errorf("%d acknowledged writes were lost, and the crash may cost %d", lost, most)
	}
	if lost > 0 {
		s.forget()
	}
}
