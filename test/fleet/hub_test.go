// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
)

// hubOutageLasting is how long the hub may be away without the manager ending.
const hubOutageLasting = 40 * time.Second

// hubGoesAway cuts the hub off for as long as may be.
func hubGoesAway(t *testing.T, f *fleet) { hubAway(t, f, cutOff, hubOutageLasting) }

// hubAway has the hub's API server go away while the members are busy, and come back.
func hubAway(t *testing.T, f *fleet, o outage, lasting time.Duration) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world, manager, asked := f.world(t, registered...), f.manager, map[string]audit{}
	for _, name := range registered {
		asked[name] = f.audit(t, name)
	}

	load := f.startMemberLoad(t, registered...)
	end := o.start(t, f, "hub")
	began := time.Now()
	for _, name := range registered {
		healService(t, f, name)
	}
	g.Consistently(manager.running, lasting-time.Since(began), 200*time.Millisecond).Should(BeTrue(), "the manager runs through an outage of %v", lasting)
	end()
	f.awaitReady(t, "hub")
	f.expectConverged(t, registered...)
	load.stop(t)
	for _, name := range registered {
		expectBack(t, f, name)
		g.Expect(asked[name].requests(t, request.relist)).To(BeEmpty(), "nothing of %s is listed again", name)
	}
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "everything is as before the outage")
	f.expectSameManager(t, manager)
}
