// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// described returns the labels of each metric of ours by its name, as the registry has them.
func described() map[string]string {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		for _, collector := range collectors {
			collector.Describe(descs)
		}
	}()
	pattern := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	labels := map[string]string{}
	for desc := range descs {
		if found := pattern.FindStringSubmatch(desc.String()); found != nil {
			labels[found[1]] = strings.ReplaceAll(found[2], ",", ", ")
		}
	}
	return labels
}

// named returns the names of the metrics that have series of a member.
func named(t *testing.T, clusterName string) []string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if (label.GetName() == "cluster" || label.GetName() == "host") && label.GetValue() == clusterName {
					names[family.GetName()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// valueOf reads one series of the registry, by its name and labels; false when there is none.
func valueOf(t *testing.T, series string) (string, bool) {
	t.Helper()
	for _, collector := range collectors {
		for _, line := range gathered(t, collector) {
			if value, found := strings.CutPrefix(line, series+" "); found {
				return value, true
			}
		}
	}
	return "", false
}

func TestPool_tells_everything_about_a_member_and_forgets_it(t *testing.T) {
	const name = "measured"
	l := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	f := startPool(t, hubCluster.Namespace(t))
	value := func(metric, more string) func() string {
		return func() string {
			v, _ := valueOf(t, fmt.Sprintf(`flotilla_%s{cluster=%q%s}`, metric, name, more))
			return v
		}
	}
	secret := f.register(name, memberOne.Kubeconfig())
	f.Eventually(f.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count(name) }).Should(Equal(1))
	f.Expect(value("cluster_state", `,state="Ready"`)()).To(Equal("1"))
	f.Expect(value("cluster_state", `,state="Unreachable"`)()).To(Equal("0"))
	f.Eventually(value("probe_seconds", "")).ShouldNot(BeEmpty())
	for metric, labels := range map[string]string{
		"credential_rotations_total": `,result="Failed"`, "events_dropped_total": `,reason="Suppressed"`, "relists_total": "", "watches_reopened_total": "",
	} {
		f.Expect(value(metric, labels)()).To(Equal("0"), "%s: who adds up increases needs the beginning", metric)
	}

	before := value("cached_objects", "")()
	memberOne.Node(t, "measured", nil)
	f.Eventually(value("cached_objects", "")).ShouldNot(Equal(before))

	f.patch(secret, func() { secret.Data[flotillav1.KeyKubeconfig] = memberTwo.Kubeconfig() })
	f.Eventually(value("credential_rotations_total", `,result="Failed"`)).Should(Equal("1"))
	f.patch(secret, func() { secret.Data[flotillav1.KeyKubeconfig] = l.Through(t, memberOne.Kubeconfig()) })
	f.Eventually(value("credential_rotations_total", `,result="Succeeded"`)).Should(Equal("1"))
	f.Expect(value("relists_total", "")()).To(Equal("0"), "neither the start nor a rotation is a re-list")

	l.Hush(t)
	f.Eventually(value("cluster_state", `,state="Unreachable"`)).Should(Equal("1"))
	f.Expect(value("cluster_state", `,state="Ready"`)()).To(Equal("0"))
	l.Restore(t)
	f.Eventually(f.state(name)).Should(Equal(StateReady))

	// The rest takes long to happen, or controllers that this test does not have.
	observeReconcile(f.pool, "redis", name, 1)
	countDroppedEvent(f.pool, name, dropSuppressed)
	countReopened(f.pool, name, 1)
	countRelist(f.pool, name)
	waiting := newLanes(4)
	queues.add("metrics-of-a-member", waiting, f.pool)
	t.Cleanup(func() {
		queues.mu.Lock()
		defer queues.mu.Unlock()
		delete(queues.queues, "metrics-of-a-member")
	})
	theirs := func(metric string) bool { return !strings.HasPrefix(metric, "flotilla_") }
	f.Expect(slices.DeleteFunc(named(t, name), theirs)).To(Equal(slices.Sorted(maps.Keys(described()))), "every metric that has the label")

	f.unregister(secret)
	f.Eventually(func() []string { return named(t, name) }).Should(BeEmpty())
	countRelist(f.pool, name)
	observeProbe(f.pool, name, 1)
	countRotation(f.pool, name, rotationFailed)
	f.Expect(named(t, name)).To(BeEmpty(), "what comes late brings nothing back")
}

func TestCacheWay_counts_lists_of_filled_caches(t *testing.T) {
	const list, page = "/api/v1/nodes?limit=500&resourceVersion=0", "/api/v1/nodes?limit=500&continue=x"
	const resume, watchList = "/api/v1/events?watch=true&resourceVersion=1", "/api/v1/nodes?watch=true&sendInitialEvents=true"
	for name, tc := range map[string]struct {
		path                 string
		filling, noWatchList bool
		want                 int
	}{
		"a list":                          {path: list, want: 1},
		"a further page":                  {path: page},
		"a resumed watch":                 {path: resume},
		"a watch that begins with a list": {path: watchList, want: 1},
		"one that is not sent":            {path: watchList, noWatchList: true},
		"the list after it":               {path: list, noWatchList: true, want: 1},
		"the first list":                  {path: list, filling: true},
		"the first watch, with its list":  {path: watchList, filling: true},
		"one object, which is no list":    {path: "/api/v1/nodes/a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTransportFixture(t)
			counted := 0
			f.transport.relisted = func() { counted++ }
			f.transport.noWatchList.Store(tc.noWatchList)
			f.transport.guarded = !tc.filling
			f.api.status.Store(http.StatusNotFound)
			f.client = httpClient(cacheWay{f.transport})
			if _, _, err := f.get(t.Context(), tc.path); err != nil {
				t.Fatal(err)
			}
			if counted != tc.want {
				t.Errorf("counted %d lists, want %d", counted, tc.want)
			}
		})
	}
}
