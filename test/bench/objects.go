// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// poolLabel says which pool a node belongs to. No node has it before one joins.
const poolLabel = "bench.example.com/pool"

// pool is a hub object: a selector and a weight, placed everywhere.
func pool(name string, weight int32) *flotillav1.NodePool {
	return &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flotillav1.NodePoolSpec{
		Placement:    &flotillav1.Placement{All: true},
		NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{poolLabel: flotillav1.LabelValue(name)}},
		Weight:       weight,
	}}
}

// poolCopy is what raw writes into a member.
func poolCopy(name string, weight int32) *flotillav1.NodePool {
	object := pool(name, weight)
	object.Spec.Placement = nil
	return object
}

// object is what is written into a cluster in this turn. Karmada's policy says where its objects go.
func (t *turn) object(into *Cluster, name string) *flotillav1.NodePool {
	if into != t.fleet.hub || t.system.name == karmada {
		return poolCopy(name, t.weight)
	}
	return pool(name, t.weight)
}

// counts reports whether the system says on the hub in how many members an object is.
func (t *turn) counts() bool { return t.system.name == flotilla || t.system.name == baseline }

// names are those of the objects.
func (b *bench) names() []string {
	var names []string
	for i := range b.objects {
		names = append(names, fmt.Sprintf("pool-%04d", i))
	}
	return names
}

// patchPool merges fields into an object.
func patchPool(ctx context.Context, c *Cluster, name string, fields map[string]any) error {
	return c.client.Patch(ctx, &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}, mergePatch(fields))
}

// patchPoolStatus merges fields into the status of an object.
func patchPoolStatus(ctx context.Context, c *Cluster, name string, status map[string]any) error {
	object := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return c.client.Status().Patch(ctx, object, mergePatch(map[string]any{"status": status}))
}

func mergePatch(fields map[string]any) client.Patch {
	content, err := json.Marshal(fields)
	if err != nil {
		panic(err) // It is made of strings, numbers and conditions.
	}
	return client.RawPatch(types.MergePatchType, content)
}

func weight(to int32) map[string]any { return map[string]any{"spec": map[string]any{"weight": to}} }

// known completes a hub object of which the hub knows that every member has its current generation.
func (b *bench) known(c change) []string {
	if c.cluster != b.fleet.hub.name || c.pool == nil || c.pool.Status.ObservedGeneration != c.pool.Generation {
		return nil
	}
	if counts := c.pool.Status.ClusterCounts; counts == nil || int(counts.Applied) != len(b.fleet.members) {
		return nil
	}
	return []string{c.name}
}

// goneFrom completes an object that is gone from a cluster.
func goneFrom(c change) []string {
	if c.pool != nil {
		return nil
	}
	return []string{c.cluster + "/" + c.name}
}
