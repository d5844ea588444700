// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package pool

import (
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

const (
	// podMemory is the memory limit of the Deployment.
	podMemory = 2 << 30
	// hostileTime is how long it may take until they are refused.
	hostileTime = 5 * time.Minute
)

// resident watches the memory that the runtime holds until it is asked for the most that it was.
func resident(t *testing.T) func() uint64 {
	t.Helper()
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	return mostOf(t, func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64() - sample[1].Value.Uint64()
	})
}

// TestFaultsDrill_memory has members that try to exhaust the memory of a manager with its default limits in its Pod: each
// alone, and then thirty at once. The fakes and a hub are in the same process.
func TestFaultsDrill_memory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(podMemory / 10 * 9))
	f := startFaultsWith(t, 4, func(c *Config) { c.SyncTimeout = 2 * time.Minute })
	refused := MatchRegexp("False (LimitExceeded|SyncTimeout)")
	begin := func(t *testing.T, m *faultyMember) { m.begin(t, m.server) }
	rows := append(hungryRows(), faultCase{name: "has many large objects", begin: fault(clusterstest.Hoard(150, 1<<20))})
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			before, most := measure(), resident(t)
			for _, member := range f.registerFaulty(t, fmt.Sprint("one-", i), []faultCase{row}, begin) {
				f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionCachesSynced), hostileTime).Should(Or(refused, Equal("True Synced")))
			}
			t.Logf("%d MiB before, at most %d MiB resident", before.heap>>20, most()>>20)
		})
	}
	t.Run("thirty at once", func(t *testing.T) {
		most := resident(t)
		thirty := make([]faultCase, 0, 30)
		for i := range cap(thirty) {
			thirty = append(thirty, rows[i%len(rows)])
		}
		for _, member := range f.registerFaulty(t, "thirty", thirty, begin) {
			f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionCachesSynced), hostileTime).Should(Or(refused, Equal("True Synced")), member.name)
		}
		reaction := f.react(t, 5)
		needed := most()
		t.Logf("at most %d MiB resident, the healthy member reacts within %v", needed>>20, reaction)
		if needed > podMemory {
			t.Errorf("they need %d MiB", needed>>20)
		}
	})
}
