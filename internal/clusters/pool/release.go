// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

const (
	// releaseLimit ends the release of a member that always has more objects.
	releaseLimit = 30 * time.Minute
	// releasePatience is how long the release goes on without removing a finalizer.
	releasePatience = 30 * time.Second
	// releasePause is the delay before objects that could not be changed are tried again.
	releasePause = time.Second
	// releaseObjectTimeout is the deadline for one object or one page of a list.
	releaseObjectTimeout = 10 * time.Second
	// releaseWorkers is the number of objects that are changed at the same time.
	releaseWorkers = 8
	// releasePage is the number of objects per page of a list.
	releasePage = 500
)

// release removes the finalizers and the claim from a member. The claim is held first and goes last, so that no other
// hub works there in the meantime; nothing is removed from a member that another hub has claimed. The calls bypass the
// breaker, because the member is not probed any more.
func (m *member) release(ctx context.Context, a access, claimed bool) leftovers {
	ctx = transport.AsProbe(ctx)
	if err := m.holdToRelease(ctx, a); err != nil {
		m.log.Info("Nothing is removed from a member whose claim cannot be held", "error", err.Error())
		found := lastSeen(ctx, a, claimed)
		if _, refused := errors.AsType[*verdict.Refusal](err); refused {
			found.claim = false
		}
		return found
	}
	limited, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	r := &releaser{
		member: a.api.Client, clock: m.pool.cfg.Clock, hold: func(ctx context.Context) error { return m.holdToRelease(ctx, a) },
		renewal: m.pool.cfg.ClaimRenewal, patience: releasePatience, pause: releasePause, timeout: releaseObjectTimeout,
	}
	found, err := r.run(limited)
	if err != nil {
		m.log.Info("Removing the finalizers from a member failed", "error", err.Error())
	}
	ctx, cancelClaim := context.WithTimeout(ctx, verifyTimeout)
	defer cancelClaim()
	if err := m.claim.Release(ctx, a.api.Client); err != nil {
		m.log.Info("Releasing the claim on a member failed", "error", err.Error())
		found.claim = true
	}
	return found
}

// holdToRelease renews the claim, after verifying the identity of the member.
func (m *member) holdToRelease(ctx context.Context, a access) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	uid, err := a.api.Identity(ctx)
	if err != nil {
		return fmt.Errorf("reading the identity: %w", err)
	}
	if uid != a.uid {
		return errAnotherCluster
	}
	_, err = m.claim.Hold(ctx, a.api.Client, preflight.HoldOptions{Member: a.uid})
	return err
}

// releaser removes Flotilla's finalizers from the objects of a member.
type releaser struct {
	member client.Client
	clock  clock.WithTicker
	// hold renews the claim. It is called when renewal has passed.
	hold    func(context.Context) error
	renewal time.Duration
	// patience is how long to go on without progress, pause the delay before another pass, timeout the deadline for one
	// object or one page.
	patience, pause, timeout time.Duration

	mu sync.Mutex // Guards the fields below; never held while blocking.
	// released counts the objects that were changed. progress is called for each.
	released int
	progress func()
	found    leftovers
	errs     []error
}

// errNoProgress means that no finalizer could be removed for a while.
var errNoProgress = errors.New("no finalizer could be removed for a while")

// run removes the finalizers in passes, until a pass leaves none or there is no progress.
func (r *releaser) run(ctx context.Context) (leftovers, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	timer := time.AfterFunc(r.patience, func() { stop(errNoProgress) })
	defer timer.Stop()
	r.progress = func() { timer.Reset(r.patience) }
	held := r.clock.Now()
	for {
		r.found, r.errs = leftovers{}, nil
		for _, list := range finalizedKinds() {
			r.releaseAll(ctx, list, &held)
		}
		found := r.found
		found.released = r.released
		if len(found.left) == 0 && !found.unknown {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, errors.Join(append(r.errs, context.Cause(ctx))...)
		case <-r.clock.After(r.pause):
		}
	}
}

// releaseAll removes the finalizers from all objects of a kind. It continues after an object that cannot be changed.
func (r *releaser) releaseAll(ctx context.Context, list client.ObjectList, held *time.Time) {
	for {
		if r.clock.Since(*held) >= r.renewal {
			if err := r.hold(ctx); err != nil {
				r.fail("", fmt.Errorf("renewing the claim: %w", err))
				return
			}
			*held = r.clock.Now()
		}
		if err := r.page(ctx, list); err != nil {
			r.fail("", fmt.Errorf("listing %T: %w", list, err))
			return
		}
		var workers errgroup.Group
		workers.SetLimit(releaseWorkers)
		for _, object := range finalized(list) {
			workers.Go(func() error {
				r.release(ctx, object)
				return nil
			})
		}
		_ = workers.Wait()
		if list.GetContinue() == "" {
			return
		}
	}
}

// page reads the next page of a list.
func (r *releaser) page(ctx context.Context, list client.ObjectList) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.member.List(ctx, list, client.Limit(releasePage), client.Continue(list.GetContinue()))
}

// release removes the finalizers from one object and records the outcome.
func (r *releaser) release(ctx context.Context, object client.Object) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	name := describeObject(object)
	released, err := releaseObject(ctx, r.member, object)
	if err != nil {
		r.fail(name, err)
		return
	}
	r.progress()
	if released {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.released++
	}
}

// fail records an object that keeps a finalizer, or that objects could not be read.
func (r *releaser) fail(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" {
		r.found.unknown = true
	} else {
		r.found.left = append(r.found.left, name)
	}
	// The first few errors represent the others.
	if len(r.errs) < namedLeft {
		r.errs = append(r.errs, err)
	}
}

// releaseObject removes Flotilla's finalizers from one object and reports whether it did.
func releaseObject(ctx context.Context, member client.Client, object client.Object) (bool, error) {
	released, fresh := false, true
	err := clusters.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !fresh {
			if err := member.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
		}
		fresh = false
		var err error
		released, err = removeFinalizers(ctx, member, object)
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("removing the finalizers of %s: %w", describeObject(object), err)
	}
	return released, nil
}

// removeFinalizers removes Flotilla's finalizers from an object as it was read, and reports whether it did. The
// finalizers have other writers, so the patch carries the resourceVersion.
func removeFinalizers(ctx context.Context, member client.Client, object client.Object) (bool, error) {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("%T is not an object", object)
	}
	changed := false
	for _, finalizer := range finalizers {
		changed = controllerutil.RemoveFinalizer(object, finalizer) || changed
	}
	if !changed {
		return false, nil
	}
	err := member.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return err == nil, err
}
