// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// colorPool gives the nodes of a color a shade and a taint of its name.
func colorPool(name string, change func(*flotillav1.NodePoolSpec)) *flotillav1.NodePool {
	pool := &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flotillav1.NodePoolSpec{
			NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{colorKey: flotillav1.LabelValue(name)}},
			Labels:       map[string]flotillav1.LabelValue{shadeKey: flotillav1.LabelValue(name)},
			Taints:       []flotillav1.NodePoolTaint{{Key: onlyKey, Value: name, Effect: corev1.TaintEffectNoSchedule}},
		},
	}
	if change != nil {
		change(&pool.Spec)
	}
	return pool
}

// addPool creates a pool in a cluster, and sees to it that it is gone at the end of the test.
func (f *fleet) addPool(t *testing.T, cluster string, pool *flotillav1.NodePool) {
	t.Helper()
	c := f.clientOf(cluster)
	if err := c.Create(f.ctx, pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Delete(f.ctx, &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}})
		f.expectGone(t, cluster, pool.Name)
	})
}

func (f *fleet) clientOf(cluster string) client.Client {
	if cluster == "hub" {
		return f.hub
	}
	return f.members[cluster]
}

// expectGone waits until there is no pool of the name.
func (f *fleet) expectGone(t *testing.T, cluster, name string) {
	t.Helper()
	pool := &flotillav1.NodePool{}
	NewWithT(t).Eventually(func() bool {
		f.confirmHeld(&flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}})
		return apierrors.IsNotFound(f.clientOf(cluster).Get(f.ctx, client.ObjectKey{Name: name}, pool))
	}, loadPatience(), 100*time.Millisecond).Should(BeTrue(), "NodePool %s goes: %+v", name, pool.Status.Conditions)
}

// expectPool waits until a pool has a number of nodes, all of them updated unless there is a conflict, and that status.
func (f *fleet) expectPool(t *testing.T, cluster, name string, nodes, status int32) {
	t.Helper()
	updated := nodes
	if status == 409 {
		updated = 0
	}
	NewWithT(t).Eventually(func(g Gomega) {
		pool := &flotillav1.NodePool{}
		g.Expect(f.clientOf(cluster).Get(f.ctx, client.ObjectKey{Name: name}, pool)).To(Succeed())
		g.Expect(pool.Status.ObservedGeneration).To(Equal(pool.Generation))
		g.Expect([]int32{pool.Status.NodeCount, pool.Status.UpdatedNodes, pool.Status.Status}).To(Equal([]int32{nodes, updated, status}), "%+v", pool.Status.Conditions)
	}, loadPatience(), 100*time.Millisecond).Should(Succeed())
}

// changePoolIn patches the spec of a pool.
func (f *fleet) changePoolIn(t *testing.T, cluster, name, spec string) {
	t.Helper()
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := f.clientOf(cluster).Patch(f.ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
		t.Fatal(err)
	}
}

// shadeOf is what the pools have made of a node: its shade and the value of the taint, empty for none.
func (f *fleet) shadeOf(cluster, name string) string {
	node, only := f.node(cluster, name), ""
	for _, taint := range node.Spec.Taints {
		if taint.Key == onlyKey {
			only = taint.Value
		}
	}
	return node.Labels[shadeKey] + "/" + only
}

func (f *fleet) expectShade(t *testing.T, cluster, name, want string) {
	t.Helper()
	NewWithT(t).Eventually(func() string { return f.shadeOf(cluster, name) }, loadPatience(), 50*time.Millisecond).Should(Equal(want))
}

// keysOf is all of a node that people and controllers set, apart from the color.
func keysOf(node *corev1.Node) string {
	labels := maps.Clone(node.Labels)
	delete(labels, colorKey)
	return fmt.Sprint(node.UID, labels, node.Annotations, node.Spec.Taints)
}

// expectAsBefore waits until a node is as it was.
func (f *fleet) expectAsBefore(t *testing.T, cluster string, before *corev1.Node) {
	t.Helper()
	NewWithT(t).Eventually(func() string {
		return cmp.Diff(keysOf(before), keysOf(f.node(cluster, before.Name)))
	}, loadPatience(), 100*time.Millisecond).Should(BeEmpty(), "node %s is as before", before.Name)
}

// watchShade follows a node and returns what tells the versions in which it had another shade.
func (f *fleet) watchShade(t *testing.T, member, name, want string) (gaps func() []string) {
	t.Helper()
	c, err := client.NewWithWatch(f.configs[member], client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.Watch(f.ctx, &corev1.NodeList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan []string, 1)
	go func() {
		var others []string
		for event := range stream.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			only := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == onlyKey && strings.HasSuffix(want, "/"+taint.Value) })
			if !strings.HasPrefix(want, node.Labels[shadeKey]+"/") || !only {
				others = append(others, fmt.Sprint(node.ResourceVersion, node.Labels, node.Spec.Taints))
			}
		}
		found <- others
	}()
	t.Cleanup(stream.Stop)
	return func() []string {
		stream.Stop()
		return <-found
	}
}

// extraNode is a node that the simulated kubelets take care of.
func extraNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}, Labels: labels,
	}}
}
