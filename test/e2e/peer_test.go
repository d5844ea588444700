// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// peerImage has what the chart's scripts run: a server under both its names, HAProxy, a shell and its utilities.
	peerImage = "localhost/redis-ha"
	// nodeAway is how long a lost node is gone before its Pod is removed from it.
	nodeAway = 20 * time.Second
)

// contender is a Redis that fails over, whoever made it.
type contender struct {
	*instance
	name string
	// beside selects Pods of which one would share the node of the primary, and is lost with it.
	beside client.MatchingLabels
}

// losses are the ways in which each contender loses its primary.
var losses = []struct {
	name   string
	happen func(c *contender, t *testing.T, primary corev1.Pod)
}{
	{"primary's Pod deleted", func(c *contender, t *testing.T, primary corev1.Pod) { c.drop(t, &corev1.Pod{}, primary.Name) }},
	{"primary's process killed", func(c *contender, t *testing.T, primary corev1.Pod) {
		c.machine(t, "kill", c.member.name, string(primary.UID), serverProgram)
	}},
	{"primary's node gone", (*contender).loseNode},
	{"primary's volume and Pod lost", func(c *contender, t *testing.T, primary corev1.Pod) {
		c.drop(t, &corev1.PersistentVolumeClaim{}, "data-"+primary.Name)
		c.drop(t, &corev1.Pod{}, primary.Name)
	}},
}

// TestPeers breaks Flotilla's mode Sentinel and the chart redis-ha in the same ways, in turns, on the same node, with the
// same writer and server. REDIS_HA is the folder of the chart, E2E_ROUNDS how often each is broken in each way.
func TestPeers(t *testing.T) {
	chart := os.Getenv("REDIS_HA")
	if chart == "" {
		t.Skip("REDIS_HA does not name the folder of the chart redis-ha")
	}
	w := connect(t)
	if w.proxy == "" || !w.ours() {
		notRun(t, "peers", "an image of HAProxy and nodes of our own are needed")
	}
	ours := w.create(t, "e2e-peers", w.members[:1], flotillav1.RedisSpec{
		Image: w.image, Replicas: new(int32(3)), Mode: flotillav1.RedisModeSentinel, Proxy: &flotillav1.RedisProxy{Image: w.proxy},
	})
	contenders := []*contender{
		{instance: ours, name: "Flotilla"},
		w.install(t, chart, "redis-ha, its defaults", "peer-defaults"),
		w.install(t, chart, "redis-ha, down after 3 s", "peer-tuned", "sentinel.config.down-after-milliseconds=3000"),
	}
	say("\n| | | rounds | outage p50 | max | acknowledged | lost |\n|---|---|---|---|---|---|---|")
	for _, loss := range losses {
		for _, c := range contenders {
			c.suffer(t, loss.name, w.rounds, func(primary corev1.Pod) { loss.happen(c, t, primary) })
		}
	}
	ours.remove(t)
}

// install renders the chart as Helm does, and applies it to the first member. Besides the image, which is Debian's, it sets
// what has to be set on one node, and a password, as ours has one.
func (w *world) install(t *testing.T, chart, name, namespace string, more ...string) *contender {
	t.Helper()
	const password = "of-the-peer"
	values := append([]string{
		"image.repository=" + peerImage, "image.tag=e2e", "haproxy.image.repository=" + peerImage, "haproxy.image.tag=e2e",
		"haproxy.enabled=true", "haproxy.IPv6.enabled=false", "auth=true", "redisPassword=" + password,
		"hardAntiAffinity=false", "haproxy.hardAntiAffinity=false", "persistentVolume.size=1Gi",
	}, more...)
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "helm"), "template", "redis-ha", chart,
		"--namespace", namespace, "--skip-tests", "--set", strings.Join(values, ","))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	rendered, err := cmd.Output()
	if err != nil {
		t.Fatalf("rendering %s: %v\n%s", chart, err, &stderr)
	}
	r := &instance{
		world: w, member: w.members[0], other: w.members[1], namespace: namespace, password: password,
		service: "redis-ha-haproxy", labels: client.MatchingLabels{"app": "redis-ha", "release": "redis-ha"},
	}
	if err := r.member.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.member.Delete(context.WithoutCancel(t.Context()), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	})
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := documents.Decode(obj); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading what Helm rendered: %v", err)
		}
		if len(obj.Object) == 0 {
			continue
		}
		obj.SetNamespace(namespace)
		runProxy(t, obj)
		if err := r.member.Create(t.Context(), obj); err != nil {
			t.Fatalf("creating %s %q: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
	c := &contender{instance: r, name: name, beside: client.MatchingLabels{"app": "redis-ha-haproxy", "release": "redis-ha"}}
	c.well(t)
	return c
}

// runProxy says what the official image of HAProxy runs, which ours does not know.
func runProxy(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	if obj.GetKind() != "Deployment" {
		return
	}
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(obj.Object, path...)
	if err != nil || len(containers) == 0 {
		t.Fatalf("the containers of %q: %v", obj.GetName(), err)
	}
	containers[0].(map[string]any)["command"] = []any{"haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"}
	if err := unstructured.SetNestedSlice(obj.Object, containers, path...); err != nil {
		t.Fatal(err)
	}
}

// well returns the Pod that says that it is the primary, once exactly one does, all Pods are Ready, and two replicas
// follow it.
func (c *contender) well(t *testing.T) corev1.Pod {
	t.Helper()
	var primary corev1.Pod
	within(t, 2*settleTime, time.Second, c.name+" is well", func(ctx context.Context) error {
		if err := c.allReady(ctx, c.member, 3); err != nil {
			return err
		}
		pods, err := c.pods(ctx, c.member)
		if err != nil {
			return err
		}
		var primaries []string
		for name, pod := range pods {
			client := c.dialPod(pod)
			info, err := client.Info(ctx, "replication").Result()
			_ = client.Close()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if !strings.Contains(info, "role:master") {
				continue
			}
			if strings.Count(info, "state=online") != 2 {
				return fmt.Errorf("%s is not followed by two:\n%s", name, info)
			}
			primaries, primary = append(primaries, name), pod
		}
		if len(primaries) != 1 {
			return fmt.Errorf("primaries are %v", primaries)
		}
		return nil
	})
	return primary
}

// suffer breaks a contender some times under load, and prints how long nobody could write and what was lost.
func (c *contender) suffer(t *testing.T, what string, rounds int, happen func(primary corev1.Pod)) {
	t.Helper()
	c.well(t)
	w := c.startWriter(t)
	w.awaitWrites(t)
	var outages []time.Duration
	for range rounds {
		primary := c.well(t)
		w.takeLongest()
		began := time.Now()
		happen(primary)
		c.awaitReplaced(t, primary, began)
		c.well(t)
		w.awaitWrites(t)
		outages = append(outages, w.takeLongest())
	}
	c.stopWriter(w)
	lost := c.lost(t, c.well(t), 10*time.Second)
	c.forget()
	slices.Sort(outages)
	say("| %s | %s | %d | %.1f s | %.1f s | %d | %d |", what, c.name, rounds, quantile(outages, 50).Seconds(), outages[len(outages)-1].Seconds(), w.total(), lost)
}

// awaitReplaced waits until a Pod is another one, or a container of it has ended since.
func (c *contender) awaitReplaced(t *testing.T, before corev1.Pod, since time.Time) {
	t.Helper()
	within(t, settleTime, 100*time.Millisecond, before.Name+" is replaced", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := c.member.Get(ctx, c.key(before.Name), pod); err != nil {
			return err
		}
		ended := func(status corev1.ContainerStatus) bool {
			last := status.LastTerminationState.Terminated
			return last != nil && !last.FinishedAt.Time.Before(since.Truncate(time.Second))
		}
		if pod.UID != before.UID || slices.ContainsFunc(pod.Status.ContainerStatuses, ended) {
			return nil
		}
		return errors.New("it is still the old one")
	})
}

// loseNode takes the primary's Pod, and what would be on the same node, off the network, and removes it by force later, as
// a person does who knows that the node is off.
func (c *contender) loseNode(t *testing.T, primary corev1.Pod) {
	t.Helper()
	gone := []corev1.Pod{primary}
	if c.beside != nil {
		var beside corev1.PodList
		if err := c.member.List(t.Context(), &beside, client.InNamespace(c.namespace), c.beside); err != nil || len(beside.Items) == 0 {
			t.Fatalf("listing the proxies: %v", err)
		}
		gone = append(gone, beside.Items[0])
	}
	for _, pod := range gone {
		c.machine(t, "isolate", c.member.name, string(pod.UID))
	}
	time.Sleep(nodeAway)
	for _, pod := range gone {
		c.dropByForce(t, pod)
	}
}
