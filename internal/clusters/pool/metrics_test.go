// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// described returns the names of the metrics of ours that have a label for the cluster, but for those of the queues, which
// are only there while their controllers are.
func described(t *testing.T) []string {
	t.Helper()
	registry, ok := ctrlmetrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("the registry does not describe itself")
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		registry.Describe(descs)
	}()
	pattern := regexp.MustCompile(`fqName: "(flotilla_[^"]+)".*variableLabels: \{[^}]*cluster[^}]*\}`)
	var names []string
	for desc := range descs {
		if found := pattern.FindStringSubmatch(desc.String()); found != nil && !strings.HasPrefix(found[1], "flotilla_queue_") {
			names = append(names, found[1])
		}
	}
	return slices.Sorted(slices.Values(names))
}

// named returns the names of the metrics that have series of a member.
func named(t *testing.T, clusterName string) []string {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
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
	for _, line := range clusterstest.Series(t, ctrlmetrics.Registry) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return value, true
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
	f.Eventually(f.state(name)).Should(Equal(clusters.StateReady))

	// The rest takes long to happen, or controllers that this test does not have.
	metrics.ObserveReconcile(f.pool, "redis", name, 1)
	metrics.CountDroppedEvent(f.pool, name, metrics.DropSuppressed)
	metrics.CountReopened(f.pool, name, 1)
	metrics.CountRelist(f.pool, name)
	theirs := func(metric string) bool {
		return !strings.HasPrefix(metric, "flotilla_") || strings.HasPrefix(metric, "flotilla_queue_")
	}
	f.Expect(slices.DeleteFunc(named(t, name), theirs)).To(Equal(described(t)), "every metric that has the label")

	f.unregister(secret)
	f.Eventually(func() []string { return named(t, name) }).Should(BeEmpty())
	metrics.CountRelist(f.pool, name)
	metrics.ObserveProbe(f.pool, name, 1)
	metrics.CountRotation(f.pool, name, metrics.RotationFailed)
	f.Expect(named(t, name)).To(BeEmpty(), "what comes late brings nothing back")
}
