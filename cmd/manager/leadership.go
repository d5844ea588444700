// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// leadership is a resourcelock.Interface that also reports how long this process may act as the leader. The elector notices
// the loss of the Lease too late if the process was stopped, or its machine suspended, while another process took over.
type leadership struct {
	resourcelock.Interface

	clock clock.PassiveClock

	mu    sync.Mutex // Guards the fields below; never held while blocking.
	began time.Time  // When the last successful renewal began. Zero while this process does not hold the Lease.
	ended string     // The process that released the Lease before this one acquired it. Empty if none did.
}

// releasedSeconds is the duration that client-go writes to a Lease when it releases it.
const releasedSeconds = 1

// newLeadership returns a lock on the Lease. It records no events, because a restart does not deserve any.
func newLeadership(hubConfig *rest.Config, namespace string) (*leadership, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	// Requests time out after half of the last argument, which leaves time for another attempt.
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, flotillav1.ManagerLease, identity, hubConfig, 2*leaseTimeout)
	if err != nil {
		return nil, err
	}
	return &leadership{Interface: lock, clock: clock.RealClock{}}, nil
}

// Get implements resourcelock.Interface. It hides the holder of a Lease that was released.
func (l *leadership) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil || record.HolderIdentity == l.Identity() {
		return record, raw, err
	}
	ended := ""
	if record.LeaseDurationSeconds == releasedSeconds {
		ended, record.HolderIdentity = record.HolderIdentity, ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = ended
	return record, raw, nil
}

// hasEnded reports whether a process is known to have ended, because it was the previous leader and released the Lease.
func (l *leadership) hasEnded(process string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended != "" && l.ended == process
}

// Create implements resourcelock.Interface.
func (l *leadership) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *leadership) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Update)
}

// renew writes a record. After a failure the previous renewal remains valid until it expires. A Lease that is released
// keeps the name of its holder, so that the next leader knows which process has ended.
func (l *leadership) renew(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := l.clock.Now()
	if record.HolderIdentity != l.Identity() {
		// End the leadership before any other process can observe the release.
		began, record.HolderIdentity = time.Time{}, l.Identity()
		l.set(began)
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	l.set(began)
	return nil
}

func (l *leadership) set(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = began
}

// left returns how long this process may act as the leader. It reaches zero no later than the elector gives up, which is
// before another process can acquire the Lease.
func (l *leadership) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return clusters.Permission{Began: l.began, Length: retryPeriod + renewDeadline}.Left(l.clock.Now())
}
