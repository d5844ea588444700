// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// startUp changes things while the system is down, and measures when they are as they should be after its start: one object
// is new, a tenth of the others have another spec, and in one copy there is a node more.
func (t *turn) startUp(ctx context.Context) error {
	const added = "while-down"
	names := t.names()
	changed, counted := names[:max(1, len(names)/10)], names[len(names)-1]
	t.weight++
	member := t.fleet.members[0]
	joining := node("joining-while-down")
	err := each(ctx, len(t.fleet.members), func(ctx context.Context, i int) error {
		return patchPoolStatus(ctx, t.fleet.members[i], counted, map[string]any{"nodeCount": 0})
	})
	if err != nil {
		return fmt.Errorf("making %q empty: %w", counted, err)
	}
	t.settle(ctx)
	if err := t.system.stop(); err != nil {
		return err
	}
	err = errors.Join(
		t.fleet.hub.client.Create(ctx, t.object(t.fleet.hub, added)),
		each(ctx, len(changed), func(ctx context.Context, i int) error {
			return patchPool(ctx, t.fleet.hub, changed[i], weight(t.weight))
		}),
		// The number is true, whether the system counts nodes or only adds up.
		makeNode(ctx, member, joining),
		join(ctx, member, joining.Name, counted),
		patchPoolStatus(ctx, member, counted, map[string]any{"nodeCount": 1}),
	)
	if err != nil {
		return fmt.Errorf("changing what there is while %s is down: %w", t.system.name, err)
	}
	t.settle(ctx)
	err = t.measure(ctx, phaseStartUp, units{}, func(ctx context.Context) (values, error) {
		specs := t.observer.expect(keys(t.fleet.members, append([]string{added}, changed...)), func(c change) []string {
			if c.cluster == t.fleet.hub.name || c.pool == nil || c.pool.Spec.Weight != t.weight {
				return nil
			}
			return []string{c.cluster + "/" + c.name}
		})
		var reported []string
		if t.counts() {
			reported = append([]string{added}, changed...)
		}
		known := t.observer.expect(reported, t.known)
		status := t.observer.expect([]string{counted}, func(c change) []string {
			if c.cluster != t.fleet.hub.name || c.name != counted || c.pool == nil || c.pool.Status.NodeCount != 1 {
				return nil
			}
			return []string{counted}
		})
		began := time.Now()
		if err := t.system.start(); err != nil {
			return nil, err
		}
		copiesAt, copiesErr := specs.wait(ctx, patience)
		knownAt, knownErr := known.wait(ctx, patience)
		statusAt, statusErr := status.wait(ctx, patience)
		figures := values{
			"copies s": lastOf(copiesAt).Sub(began).Seconds(), "status s": lastOf(statusAt).Sub(began).Seconds(),
		}
		if t.counts() {
			figures["hub knows s"] = lastOf(knownAt).Sub(began).Seconds()
		}
		figures["everything s"] = max(figures["copies s"], figures["hub knows s"], figures["status s"])
		t.settle(ctx)
		return figures, errors.Join(copiesErr, knownErr, statusErr)
	})
	if err != nil {
		return err
	}
	gone := t.observer.expect(t.places([]string{added}), goneFrom)
	err = errors.Join(
		member.client.Delete(ctx, joining),
		t.fleet.hub.client.Delete(ctx, &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: added}}),
		patchPoolStatus(ctx, member, counted, map[string]any{"nodeCount": 0}),
	)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("undoing what was changed: %w", err)
	}
	_, err = gone.wait(ctx, patience)
	return err
}
