// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// nodesToHold is the number of nodes, and of Pods, over which the measured memory is averaged.
const nodesToHold = 1000

// footprint is the resource usage of a process.
type footprint struct{ heapMiB, rssMiB, goroutines float64 }

// memory starts the system without members and measures the footprint as members, objects, copies, nodes and Pods are added.
func (t *turn) memory(ctx context.Context) error {
	if err := errors.Join(t.system.stop(), t.clean(ctx)); err != nil {
		return err
	}
	restore, err := t.unregister(ctx)
	if err != nil {
		return err
	}
	members := float64(len(t.fleet.members))
	return t.measure(ctx, phaseMemory, units{}, func(ctx context.Context) (values, error) {
		figures := values{}
		if err := t.system.start(); err != nil {
			return nil, err
		}
		alone, err := t.footprint(ctx)
		if err != nil {
			return nil, errors.Join(err, restore(ctx))
		}
		note := func(what string, count float64, before, after footprint) {
			figures["heap MiB "+what] = (after.heapMiB - before.heapMiB) / count
			figures["heap KiB "+what] = 1024 * figures["heap MiB "+what]
			figures["goroutines "+what] = (after.goroutines - before.goroutines) / count
		}
		if err := errors.Join(restore(ctx), t.warmUp(ctx)); err != nil {
			return nil, err
		}
		engaged, err := t.footprint(ctx)
		if err != nil {
			return figures, err
		}
		note("a member", members, alone, engaged)
		created, err := t.create(ctx)
		if err != nil {
			return figures, err
		}
		note("an object", float64(t.objects), engaged, created)
		placed, err := t.place(ctx)
		if err != nil {
			return figures, err
		}
		note("a copy", members*float64(t.objects), created, placed)
		figures["RSS MiB"], figures["heap MiB"], figures["goroutines"] = placed.rssMiB, placed.heapMiB, placed.goroutines
		before := placed
		for _, kind := range []string{"node", "Pod"} {
			after, err := t.crowd(ctx, kind)
			if err != nil {
				return figures, err
			}
			note("a "+kind, nodesToHold, before, after)
			before = after
		}
		return figures, t.disperse(ctx)
	})
}

// unregister removes all registrations. The returned function creates them again.
func (t *turn) unregister(ctx context.Context) (restore func(context.Context) error, err error) {
	namespace := "flotilla-clusters"
	if t.system.name == baseline {
		namespace = baseline
	}
	secrets := &corev1.SecretList{}
	if err := t.fleet.hub.client.List(ctx, secrets, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the registrations: %w", err)
	}
	for i := range secrets.Items {
		if err := t.fleet.hub.client.Delete(ctx, &secrets.Items[i]); err != nil {
			return nil, fmt.Errorf("removing a registration: %w", err)
		}
	}
	return func(ctx context.Context) error {
		return each(context.WithoutCancel(ctx), len(secrets.Items), func(ctx context.Context, i int) error {
			old := secrets.Items[i]
			return t.fleet.hub.client.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, Labels: old.Labels, Annotations: old.Annotations},
				Type:       old.Type, Data: old.Data,
			})
		})
	}, nil
}

// create creates the hub objects without placing them in a member. The baseline has no such state and creates none here.
func (t *turn) create(ctx context.Context) (footprint, error) {
	if t.system.name == baseline {
		return t.footprint(ctx)
	}
	names := t.names()
	err := each(ctx, len(names), func(ctx context.Context, i int) error {
		object := pool(names[i], 0)
		object.Spec.Placement = &flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"none": "such"}}}
		return t.fleet.hub.client.Create(ctx, object)
	})
	if err != nil {
		return footprint{}, fmt.Errorf("creating the objects: %w", err)
	}
	return t.footprint(ctx)
}

// place places the objects in all members and waits for the copies.
func (t *turn) place(ctx context.Context) (footprint, error) {
	names := t.names()
	known := t.observer.expect(names, t.known)
	err := each(ctx, len(names), func(ctx context.Context, i int) error {
		if t.system.name == baseline {
			return t.fleet.hub.client.Create(ctx, pool(names[i], 0))
		}
		everywhere := map[string]any{"clusterSelector": nil, "all": true}
		return patchPool(ctx, t.fleet.hub, names[i], map[string]any{"spec": map[string]any{"placement": everywhere}})
	})
	if err != nil {
		return footprint{}, fmt.Errorf("placing the objects: %w", err)
	}
	if _, err := known.wait(ctx, patience); err != nil {
		return footprint{}, err
	}
	return t.footprint(ctx)
}

// crowd creates nodesToHold objects in the first member: nodes, or Pods with the labels of a Redis that are never scheduled.
func (t *turn) crowd(ctx context.Context, kind string) (footprint, error) {
	member := t.fleet.members[0]
	err := each(ctx, nodesToHold, func(ctx context.Context, i int) error {
		if kind == "node" {
			return makeNode(ctx, member, node(fmt.Sprintf("crowd-%04d", i)))
		}
		return client.IgnoreAlreadyExists(member.client.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("crowd-%04d", i), Labels: map[string]string{flotillav1.LabelRedis: "crowd"}},
			Spec: corev1.PodSpec{
				SchedulingGates: []corev1.PodSchedulingGate{{Name: "bench.example.com/never"}},
				Containers:      []corev1.Container{{Name: "main", Image: "example.com/none"}},
			},
		}))
	})
	if err != nil {
		return footprint{}, fmt.Errorf("creating a %s: %w", kind, err)
	}
	return t.footprint(ctx)
}

func (t *turn) disperse(ctx context.Context) error {
	c := t.fleet.members[0].client
	now := client.GracePeriodSeconds(0)
	return errors.Join(
		c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("default"), now),
		c.DeleteAllOf(ctx, &corev1.Node{}),
	)
}

var (
	heapAlloc  = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)`)
	goroutines = regexp.MustCompile(`^goroutine profile: total (\d+)`)
)

// footprint waits until the system is idle and returns its footprint after a garbage collection.
func (t *turn) footprint(ctx context.Context) (footprint, error) {
	t.settle(ctx)
	pause(ctx, 5*time.Second)
	heap, err := profile(ctx, "heap?gc=1&debug=1", heapAlloc)
	if err != nil {
		return footprint{}, err
	}
	count, err := profile(ctx, "goroutine?debug=1", goroutines)
	return footprint{heapMiB: heap / (1 << 20), rssMiB: t.system.rss(), goroutines: count}, err
}

// profile reads a profile and returns the number that the first group of pattern matches.
func profile(ctx context.Context, name string, pattern *regexp.Regexp) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+profilingAddress+"/debug/pprof/"+name, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("reading a profile: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("reading a profile: %w", err)
	}
	found := pattern.FindSubmatch(content)
	if found == nil {
		return 0, fmt.Errorf("profile %q has no %s", name, pattern)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
