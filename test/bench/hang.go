// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// hangs is how long the API server of a member is stopped. Each measurement makes changes for the duration of window.
	hangs  = time.Minute
	window = 10 * time.Second
	// specInterval is the time between two changes of specs.
	specInterval = 500 * time.Millisecond
	// hangPatience is how long a change may take to be observed.
	hangPatience = 30 * time.Second
)

// windows are before the stop, immediately after it, and at the end of the minute.
var windows = []string{"before", "at once", "later"}

// hang stops the API server of one member for a minute, and measures the latency of changes in the other members: before
// the stop, immediately after it, and at the end of the minute, when the system has had time to detect it.
func (t *turn) hang(ctx context.Context) error {
	last := len(t.fleet.members) - 1
	victim, others := t.fleet.members[last], t.fleet.members[:last]
	pid := victim.pids()["kube-apiserver"]
	if pid == 0 || len(others) == 0 {
		return fmt.Errorf("no API server to stop in %q, or no other member", victim.name)
	}
	err := t.measure(ctx, phaseHang, units{}, func(ctx context.Context) (values, error) {
		figures := values{}
		err := t.disturb(ctx, others, "before", figures)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return figures, fmt.Errorf("stopping the API server of %q: %w", victim.name, err)
		}
		stopped := time.Now()
		defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
		told := make(chan float64, 1)
		go func() { told <- t.awaitReachable(ctx, victim, false, hangs) }()
		err = errors.Join(err, t.disturb(ctx, others, "at once", figures))
		pause(ctx, time.Until(stopped.Add(hangs-window)))
		err = errors.Join(err, t.disturb(ctx, others, "later", figures))
		figures["told s"] = <-told
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return figures, fmt.Errorf("continuing the API server of %q: %w", victim.name, err)
		}
		caughtUp := make(chan float64, 1)
		go func() { caughtUp <- t.awaitCaughtUp(ctx, victim) }()
		figures["back s"] = t.awaitReachable(ctx, victim, true, patience)
		figures["caught up s"] = <-caughtUp
		for _, kind := range []string{"status", "spec"} {
			figures[kind+" slowdown"] = max(figures[kind+" p50 ms at once"], figures[kind+" p50 ms later"]) / figures[kind+" p50 ms before"]
		}
		return figures, err
	})
	// Open the watch of the member again, because its backoff may have become long.
	return errors.Join(err, t.watch(ctx))
}

// disturb changes numbers in the status of copies and, at the same time, the spec of other objects, and records the latencies
// in figures. Each time they are objects that did not change while the member was away: a rollout waits for a member that may have
// the change before.
func (t *turn) disturb(ctx context.Context, members []*Cluster, when string, figures values) error {
	names := t.names()
	share := len(names) / (len(windows) + 1)
	numbered, changed := names[:share], names[share*(1+slices.Index(windows, when)):][:share]
	t.weight++
	numbers := t.numberTrips(int(window/statusInterval), numbered, members)
	var specs []trip
	for i := range min(int(window/specInterval), len(changed)) {
		specs = append(specs, t.specTrip(changed[i], members))
	}
	var specLatencies []float64
	problem := make(chan error, 1)
	go func() {
		var err error
		specLatencies, err = t.travel(ctx, specs, specInterval, hangPatience)
		problem <- err
	}()
	latencies, err := t.travel(ctx, numbers, statusInterval, hangPatience)
	err = errors.Join(err, <-problem)
	for kind, measured := range map[string][]float64{"status": latencies, "spec": specLatencies} {
		figures[kind+" p50 ms "+when] = quantile(measured, 0.5)
		figures[kind+" p99 ms "+when] = quantile(measured, 0.99)
		figures[kind+" max ms "+when] = slices.Max(measured)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}

// specTrip changes the spec of a hub object, and ends when the copies in all members have changed.
func (t *turn) specTrip(name string, members []*Cluster) trip {
	to, missing := t.weight, map[string]bool{}
	for _, member := range members {
		missing[member.name] = true
	}
	return trip{
		object: name,
		start:  func(ctx context.Context) error { return patchPool(ctx, t.fleet.hub, name, weight(to)) },
		shown: func(c change) bool {
			if c.pool != nil && c.pool.Spec.Weight == to {
				delete(missing, c.cluster)
			}
			return len(missing) == 0
		},
	}
}

// awaitReachable returns after how many seconds the condition Reachable of a member is as wanted. It returns NaN if that takes
// too long, or if the system has no such condition.
func (t *turn) awaitReachable(ctx context.Context, member *Cluster, want bool, within time.Duration) float64 {
	if t.system.name != flotilla {
		return math.NaN()
	}
	for began := time.Now(); time.Since(began) < within; {
		said := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: member.name}}
		err := t.fleet.hub.client.Get(ctx, client.ObjectKeyFromObject(said), said)
		if err == nil && apimeta.IsStatusConditionTrue(said.Status.Conditions, flotillav1.ConditionReachable) == want {
			return time.Since(began).Seconds()
		}
		if !pause(ctx, 50*time.Millisecond) {
			break
		}
	}
	return math.NaN()
}

// awaitCaughtUp returns after how many seconds all copies in a member have the spec of their hub objects, or NaN.
func (t *turn) awaitCaughtUp(ctx context.Context, member *Cluster) float64 {
	for began := time.Now(); time.Since(began) < patience; {
		copies := &flotillav1.NodePoolList{}
		if err := member.client.List(ctx, copies); err == nil && t.caughtUp(copies.Items) {
			return time.Since(began).Seconds()
		}
		if !pause(ctx, 50*time.Millisecond) {
			break
		}
	}
	return math.NaN()
}

func (t *turn) caughtUp(copies []flotillav1.NodePool) bool {
	return len(copies) == t.objects && !slices.ContainsFunc(copies, func(pool flotillav1.NodePool) bool {
		want := t.observer.get(t.fleet.hub.name, pool.Name)
		return want == nil || want.Spec.Weight != pool.Spec.Weight
	})
}
