// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// ClaimNamespace is the namespace of the Lease in a member.
	ClaimNamespace = flotillav1.SystemNamespace
	// ClaimName is the name of the Lease.
	ClaimName = flotillav1.ClaimLease
	// maxHolder is the maximum length of a foreign holder identity in messages.
	maxHolder = 63
)

// ErrClaimOlder means that the member has an earlier state of the claim than this process wrote: the member was restored.
var ErrClaimOlder = errors.New("the claim is older than what was written: the member was restored")

// Claim is the Lease in a member by which a hub claims the member. The hub renews it, so that teams of the member can see
// when the hub was last active. A Claim remembers what this process has observed and written. It is safe for concurrent
// use.
type Claim struct {
	HubID string
	// Instance distinguishes hubs with the same HubID; Process distinguishes the processes of an instance, and those of its
	// copies, which share its identity because they were restored from a backup.
	Instance, Process string
	Duration          time.Duration
	Clock             clock.PassiveClock
	// Ended reports whether a process is known to have ended. May be nil.
	Ended func(process string) bool

	mu     sync.Mutex // Guards the field below; never held while blocking.
	memory claimMemory
}

// claimMemory is what a process remembers of the claim on a member.
type claimMemory struct {
	// member is the UID of the cluster that the memory is about.
	member types.UID
	// held is true once this process has held the claim. renewed is the renewal time that it wrote last.
	held    bool
	renewed metav1.MicroTime
	// seen is the claim of another holder as last read, unchanged since that time. alive is true once its holder has been
	// observed to renew it.
	seen, holder string
	since        time.Time
	alive        bool
}

// ClaimYoungError means that an earlier process of this hub may still be writing to the member, unless it has ended.
type ClaimYoungError struct {
	// Left is the time until the process has either stopped writing or renewed the claim. Hold may be called again then.
	Left time.Duration
}

// Error implements error.
func (e *ClaimYoungError) Error() string {
	return fmt.Sprintf("an earlier process may still write to the member; this is looked at again in %v", e.Left)
}

// clocksApart is how far the clocks of a member's API servers may be apart, including the second to which they are read.
const clocksApart = 5 * time.Second

// HoldOptions limit how a claim may be held.
type HoldOptions struct {
	// Member is the UID of the member.
	Member types.UID
	// TakeOver is the hub whose claim may be taken over.
	TakeOver string
	// RenewOnly renews a claim that this process holds. It never takes over the claim of another holder.
	RenewOnly bool
}

// holder returns the holder identity of the Lease.
func (c *Claim) holder() string { return c.HubID + "/" + c.Instance + "/" + c.Process }

// Held is a claim that has been acquired or renewed.
type Held struct {
	// Began is when the call began, which is no later than the moment from which others count the duration of the claim.
	Began time.Time
	// Revision is the resource version of the Lease afterwards, or 0 if it is not a number.
	Revision uint64
}

// Hold acquires or renews the claim. Held.Began is set even if that fails. Hold writes nothing and returns a
// *verdict.Refusal if another holder has the claim, a *ClaimYoungError if an earlier process of this hub may still use it,
// and ErrClaimOlder if the member was restored.
func (c *Claim) Hold(ctx context.Context, member client.Client, options HoldOptions) (Held, error) {
	began := c.Clock.Now()
	lease := &coordinationv1.Lease{}
	ctx, date := withDate(ctx)
	err := member.Get(ctx, client.ObjectKey{Namespace: ClaimNamespace, Name: ClaimName}, lease)
	now := *date
	if now.IsZero() {
		now = began
	}
	var renewed metav1.MicroTime
	switch {
	case apierrors.IsNotFound(err):
		renewed = renewTime(now)
		lease, err = c.create(ctx, member, renewed)
	case err != nil:
		return Held{Began: began}, fmt.Errorf("reading the claim: %w", err)
	default:
		if err = c.contest(lease, began, now, options); err == nil {
			renewed = c.nextRenewal(lease, now)
			err = c.renew(ctx, member, lease, renewed)
		}
	}
	if err != nil {
		return Held{Began: began}, err
	}
	c.remember(options.Member, func(m *claimMemory) { m.held, m.renewed, m.seen = true, renewed, "" })
	revision, _ := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	return Held{Began: began, Revision: revision}, nil
}

// renewTime returns a time as a Lease stores it.
func renewTime(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.Truncate(time.Microsecond))
}

// nextRenewal returns the renewal time to write. It is later than that of the last renewal, even if the clock of the member
// was set back. A change shows others that the holder is alive, and an earlier time shows the holder that the member was
// restored.
func (c *Claim) nextRenewal(lease *coordinationv1.Lease, now time.Time) metav1.MicroTime {
	next := renewTime(now)
	if last := lease.Spec.RenewTime; last != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == c.holder() && !next.After(last.Time) {
		return renewTime(last.Add(time.Microsecond))
	}
	return next
}

// renew writes the Lease for this holder.
func (c *Claim) renew(ctx context.Context, member client.Client, lease *coordinationv1.Lease, now metav1.MicroTime) error {
	if ptr.Deref(lease.Spec.HolderIdentity, "") != c.holder() {
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = new(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = new(c.holder())
	lease.Spec.LeaseDurationSeconds = new(int32(c.Duration / time.Second))
	lease.Spec.RenewTime = &now
	// The update carries the resourceVersion that was read, so that only one of two processes can acquire the claim.
	if err := member.Update(ctx, lease); err != nil {
		return fmt.Errorf("renewing the claim: %w", err)
	}
	return nil
}

// remember modifies the memory of a member. The memory of a different cluster is discarded first.
func (c *Claim) remember(member types.UID, change func(*claimMemory)) claimMemory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.member != member {
		c.memory = claimMemory{member: member}
	}
	change(&c.memory)
	return c.memory
}

// contest returns an error if the claim must not be written. now is the time of the member.
//
// A process takes over from an earlier one of its instance when that one has ended, or has stopped writing because it has
// not renewed the claim for half of its duration. It takes over from another instance when the claim has been unchanged for
// its whole duration. A process that has been superseded does not take the claim back while another one renews it, so that
// two copies of a hub do not alternate.
func (c *Claim) contest(lease *coordinationv1.Lease, began, now time.Time, options HoldOptions) error {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	hubID, rest, _ := strings.Cut(holder, "/")
	instance, process, _ := strings.Cut(rest, "/")
	if holder == "" {
		return nil
	}
	if hubID == c.HubID && c.isOlder(lease, options.Member) {
		return ErrClaimOlder
	}
	if holder == c.holder() {
		return nil
	}
	memory := c.observe(lease, holder, options.Member)
	left := c.Duration/2 + clocksApart - now.Sub(renewedAt(lease))
	switch {
	case options.RenewOnly && hubID == c.HubID:
		return c.superseded(instance, process)
	case options.TakeOver != "" && hubID == options.TakeOver && !options.RenewOnly:
		return nil
	case hubID != c.HubID:
		return verdict.RefuseMember(flotillav1.ConditionClaimed, flotillav1.ReasonClaimedByAnotherHub, fmt.Sprintf(
			"The member is claimed by hub %q; annotate the registration with %s: %q to take it over",
			text.Cut(hubID, maxHolder), flotillav1.AnnotationTakeOver, text.Cut(hubID, maxHolder)))
	case began.Sub(memory.since) >= c.durationOf(lease):
		// The claim did not change between the end of the call that first read it and the beginning of this one.
		return nil
	case instance != c.Instance:
		return c.superseded(instance, process)
	case left <= 0, c.Ended != nil && c.Ended(process):
		return nil
	case memory.held, memory.alive:
		return c.superseded(instance, process)
	default:
		// A live holder renews the claim before that.
		return &ClaimYoungError{Left: min(left, c.Duration/3+clocksApart)}
	}
}

// isOlder reports whether the claim is older than the last renewal of this process, which means that the member was
// restored. It returns true only once.
func (c *Claim) isOlder(lease *coordinationv1.Lease, member types.UID) bool {
	older := false
	c.remember(member, func(m *claimMemory) {
		older = m.held && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.Before(&m.renewed)
		if older {
			m.renewed = *lease.Spec.RenewTime
		}
	})
	return older
}

// observe records the claim of another holder and since when it is unchanged.
func (c *Claim) observe(lease *coordinationv1.Lease, holder string, member types.UID) claimMemory {
	return c.remember(member, func(m *claimMemory) {
		version := lease.ResourceVersion + "/" + string(lease.UID)
		if m.seen == version {
			return
		}
		m.alive = m.seen != "" && m.holder == holder
		m.seen, m.holder, m.since = version, holder, c.Clock.Now()
	})
}

// superseded refuses a member that another instance or process of this hub has claimed.
func (c *Claim) superseded(instance, process string) *verdict.Refusal {
	other := "instance " + strconv.Quote(text.Cut(instance, maxHolder))
	if instance == c.Instance {
		other = "process " + strconv.Quote(text.Cut(process, maxHolder))
	}
	return verdict.RefuseMember(flotillav1.ConditionClaimed, flotillav1.ReasonSuperseded,
		fmt.Sprintf("The member is claimed by another %s of this hub; stop one of the two, or give them different ids", other))
}

// durationOf returns how long the claim of another holder must be unchanged before it has expired. This is measured by the
// clock of this process, because the clocks of others may be wrong.
func (c *Claim) durationOf(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

// renewedAt returns when a claim was last renewed, according to the clock of the member.
func renewedAt(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// create creates the Lease, and its namespace if it does not exist.
func (c *Claim) create(ctx context.Context, member client.Client, now metav1.MicroTime) (*coordinationv1.Lease, error) {
	wanted := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ClaimNamespace, Name: ClaimName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(c.holder()),
			LeaseDurationSeconds: new(int32(c.Duration / time.Second)),
			AcquireTime:          &now,
			RenewTime:            &now,
			LeaseTransitions:     ptr.To[int32](0),
		},
	}
	lease := wanted.DeepCopy()
	err := member.Create(ctx, lease)
	if apierrors.IsNotFound(err) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ClaimNamespace}}
		if err := member.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating namespace %q: %w", ClaimNamespace, err)
		}
		lease = wanted
		err = member.Create(ctx, lease)
	}
	if err != nil {
		return nil, fmt.Errorf("creating the claim: %w", err)
	}
	return lease, nil
}

// Release deletes the claim if this hub holds it.
func (c *Claim) Release(ctx context.Context, member client.Client) error {
	lease := &coordinationv1.Lease{}
	err := member.Get(ctx, client.ObjectKey{Namespace: ClaimNamespace, Name: ClaimName}, lease)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != c.holder() {
		return nil
	}
	preconditions := client.Preconditions{UID: new(lease.UID), ResourceVersion: new(lease.ResourceVersion)}
	return client.IgnoreNotFound(member.Delete(ctx, lease, preconditions))
}
