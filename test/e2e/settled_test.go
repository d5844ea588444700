// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// written are the kinds that Flotilla writes, by the names that an API server counts requests under. Leases are not among
// them: who leads the hub says so every few seconds. Neither are events, of which the objects are looked at.
var written = []string{
	"configmaps", "memberclusters", "namespaces", "nodepools", "persistentvolumeclaims", "poddisruptionbudgets",
	"redises", "secrets", "services", "statefulsets",
}

// restingCPU is how many thousandths of a CPU a Pod may use while nothing happens.
const restingCPU = 30

// writes are the verbs of requests to write, as an API server counts them.
var writes = []string{"APPLY", "DELETE", "DELETECOLLECTION", "PATCH", "POST", "PUT"}

var (
	requestCount = regexp.MustCompile(`(?m)^apiserver_request_total\{(.*)\} (\S+)$`)
	metricLabel  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// costNothing leaves everything alone for ten minutes, and counts what is written all the same: not even a request that
// changes nothing.
func (r *instance) costNothing(t *testing.T) {
	const often = 5 * time.Second
	r.settle(t)
	since := time.Now()
	before := r.activity(t, since)
	// The last words about what was broken come within this time of it.
	within(t, settleTime, often, "nothing is written for 30 s", func(context.Context) error {
		if changes := difference(before, r.activity(t, since)); changes != "" {
			since = time.Now()
			before = r.activity(t, since)
			return errors.New(changes)
		}
		if quiet := time.Since(since); quiet < 30*time.Second {
			return fmt.Errorf("only for %s yet", quiet)
		}
		return nil
	})
	began, used := time.Now(), r.podCPU(t)
	lasts(t, r.idle, often, "nobody asked for anything", func(context.Context) error {
		if changes := difference(before, r.activity(t, since)); changes != "" {
			return errors.New(changes)
		}
		return nil
	})
	var most time.Duration
	for name, now := range r.podCPU(t) {
		most = max(most, now-used[name])
	}
	share := 1000 * most.Seconds() / time.Since(began).Seconds()
	if share > restingCPU {
		t.Errorf("a Pod uses %.0f m CPU while nothing happens, want %d at most", share, restingCPU)
	}
	say("ok   %-52s no write in %s, %d objects and counters watched, at most %.0f m CPU a Pod", "settled", r.idle, len(before), share)
}

// podCPU is the CPU time that each Pod in the member has used, from its kubelet.
func (r *instance) podCPU(t *testing.T) map[string]time.Duration {
	t.Helper()
	pods, err := r.pods(t.Context(), r.member)
	if err != nil {
		t.Fatalf("listing the Pods: %v", err)
	}
	nodes := map[string]map[string]int64{}
	used := map[string]time.Duration{}
	for name, pod := range pods {
		node := pod.Spec.NodeName
		if nodes[node] == nil {
			var summary stats
			text := r.member.read(t, "/api/v1/nodes/"+node+"/proxy/stats/summary?only_cpu_and_memory=true")
			if err := json.Unmarshal(text, &summary); err != nil {
				t.Fatalf("reading the statistics of node %q: %v", node, err)
			}
			nodes[node] = map[string]int64{}
			for _, each := range summary.Pods {
				nodes[node][each.Reference.UID] = each.CPU.UsageCoreNanoSeconds
			}
		}
		used[name] = time.Duration(nodes[node][string(pod.UID)])
	}
	return used
}

// stats are parts of what a kubelet reports in /stats/summary.
type stats struct {
	Pods []struct {
		Reference struct {
			UID string `json:"uid"`
		} `json:"podRef"`
		CPU struct {
			UsageCoreNanoSeconds int64 `json:"usageCoreNanoSeconds"`
		} `json:"cpu"`
	} `json:"pods"`
}

// activity is the version of every object of the Redis, the events since a time, and on clusters of this machine how many
// requests to write the API servers have counted, by kind.
func (r *instance) activity(t *testing.T, since time.Time) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for _, c := range []cluster{r.hub, r.member, r.other} {
		r.versions(t, c, found)
		r.eventsSince(t, c, since, found)
		if r.ours() {
			countWrites(t, c, found)
		}
	}
	return found
}

func (r *instance) versions(t *testing.T, c cluster, found map[string]int64) {
	t.Helper()
	lists := []client.ObjectList{
		&flotillav1.RedisList{}, &appsv1.StatefulSetList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &corev1.SecretList{},
		&corev1.PersistentVolumeClaimList{}, &corev1.PodList{}, &policyv1.PodDisruptionBudgetList{},
	}
	if c.name == r.hub.name {
		lists = append(lists, &flotillav1.MemberClusterList{})
	}
	for _, list := range lists {
		// MemberClusters are in no namespace; asking for one does not hide them.
		if err := c.List(t.Context(), list, client.InNamespace(r.namespace)); err != nil {
			t.Fatalf("listing %T in %q: %v", list, c.name, err)
		}
		if err := apimeta.EachListItem(list, func(item runtime.Object) error {
			object, err := apimeta.Accessor(item)
			if err != nil {
				return err
			}
			version, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
			found[fmt.Sprintf("%s: %T %s", c.name, item, object.GetName())] = version
			return err
		}); err != nil {
			t.Fatalf("reading %T of %q: %v", list, c.name, err)
		}
	}
}

// eventsSince adds the events that were seen after a time. How often one came before is written half an hour late by the
// library that folds series.
func (r *instance) eventsSince(t *testing.T, c cluster, since time.Time, found map[string]int64) {
	t.Helper()
	var events eventsv1.EventList
	if err := c.List(t.Context(), &events, client.InNamespace(r.namespace)); err != nil {
		t.Fatalf("listing the events in %q: %v", c.name, err)
	}
	for _, event := range events.Items {
		seen := event.EventTime.Time
		if event.Series != nil {
			seen = event.Series.LastObservedTime.Time
		}
		if seen.After(since) {
			found[fmt.Sprintf("%s: event %s %s of %s", c.name, event.Name, event.Reason, event.Regarding.Name)] = seen.UnixNano()
		}
	}
}

// countWrites adds up the requests to write that an API server has had, whatever came of them.
func countWrites(t *testing.T, c cluster, found map[string]int64) {
	t.Helper()
	for _, line := range requestCount.FindAllStringSubmatch(string(c.read(t, "/metrics")), -1) {
		labels := map[string]string{}
		for _, label := range metricLabel.FindAllStringSubmatch(line[1], -1) {
			labels[label[1]] = label[2]
		}
		if !slices.Contains(written, labels["resource"]) || !slices.Contains(writes, labels["verb"]) {
			continue
		}
		count, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			t.Fatalf("reading %q: %v", line[0], err)
		}
		found[fmt.Sprintf("%s: requests %s %s", c.name, labels["verb"], labels["resource"])] += int64(count)
	}
}

// read returns what the API server has at a path that is not one of an object.
func (c cluster) read(t *testing.T, path string) []byte {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := clientset.Discovery().RESTClient().Get().RequestURI(path).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("reading %s in %q: %v", path, c.name, err)
	}
	return text
}

// difference names what was written between two activities.
func difference(before, after map[string]int64) string {
	var changes []string
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if before[key] != after[key] {
			changes = append(changes, fmt.Sprintf("%s: %d, then %d", key, before[key], after[key]))
		}
	}
	return strings.Join(changes, "; ")
}
