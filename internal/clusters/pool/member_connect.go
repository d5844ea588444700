// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// attemptInput is the input of an attempt to connect. It is not modified while the attempt runs.
type attemptInput struct {
	registration registration.Registration
	credential   *registration.Credential
	// recordedUID is the cluster recorded under the name so far; empty when there is none.
	recordedUID types.UID
	noWatchList bool
	claim       *preflight.Claim
	// permit is called before each request to the member.
	permit func(*http.Request) (time.Duration, error)
	// relisted is called for each list by a cache that was already filled.
	relisted func()
}

// access is the part of a session that never changes. Jobs get a copy of it.
type access struct {
	incarnation uint64
	uid         types.UID
	credential  *registration.Credential
	transport   *transport.Transport
	api         *preflight.API
	cluster     *memberCluster
	// uncached are the kinds that were off when the caches were created, and so have none.
	uncached kinds.Denials
	// engaged is the lifetime passed to Engage.
	engaged context.Context //nolint:containedctx // It ends before the caches do.
}

// session is one incarnation of a member: its connection and its caches. It survives rotations and outages. Only the
// member's goroutine reads and changes it.
type session struct {
	access

	// claimed is true while this hub holds the claim, since a hold that began at heldAt. It is false while the member is
	// paused, in a member that was frozen when it was connected, and after the claim could not be renewed in time.
	claimed bool
	heldAt  time.Time
	// served is what the member serves of Flotilla's API group.
	served preflight.Served
	// recheckAt is when the next check of what the member serves and allows may start.
	recheckAt time.Time
	// noticed is true when a definition has changed and is not read yet.
	noticed bool
	// unread lists the resources that cannot be watched although the member answers.
	unread []string
	// back is the state in which the member was away, until its caches have caught up; empty otherwise.
	back clusters.State
	// disengage ends the engagement of the controllers; stop ends the caches after that.
	disengage context.CancelFunc
	stop      context.CancelFunc
}

// close ends the session. It does not wait for the informers to stop.
func (s *session) close() {
	s.disengage()
	s.stop()
	s.transport.Close()
}

// memberCluster is the cluster that is engaged. Sources call its method OnRecovered.
type memberCluster struct {
	cluster.Cluster
	cached *footprint

	mu    sync.Mutex // Guards the fields below; not held while calling funcs.
	next  int
	funcs map[int]func()
}

// OnRecovered registers fn until ctx ends. It is called whenever work for the member becomes possible again after it
// was dropped: for example after an outage, once the member's Snapshot is Ready, and after a pause. fn must not block.
func (c *memberCluster) OnRecovered(ctx context.Context, fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.next
	c.next++
	c.funcs[id] = fn
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.funcs, id)
	})
}

// recovered calls the functions registered by OnRecovered.
func (c *memberCluster) recovered() {
	c.mu.Lock()
	funcs := make([]func(), 0, len(c.funcs))
	for _, fn := range c.funcs {
		funcs = append(funcs, fn)
	}
	c.mu.Unlock()
	for _, fn := range funcs {
		fn()
	}
}

// connect dials a member, checks it, claims it and fills its caches. progress is called at each step with the findings
// so far, which are not modified afterwards.
func (p *Pool) connect(ctx context.Context, in *attemptInput, kick func(), progress func(clusters.State, *preflight.Findings)) (_ *session, _ *preflight.Findings, err error) {
	name := string(in.registration.ClusterName)
	found := &preflight.Findings{}
	progress(clusters.StateConnecting, nil)
	l, err := transport.NewLink(in.credential, p.cfg.Clock, p.cfg.Limits)
	if err != nil {
		return nil, found, err
	}
	way := transport.New(l, p.cfg.Clock, transport.Options{Kick: kick, Permit: in.permit, Relisted: in.relisted, NoWatchList: in.noWatchList})
	api, err := p.newMemberAPI(name, way)
	if err != nil {
		return nil, found, err
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	defer context.AfterFunc(way.Broken(), func() { abort(way.Cause()) })()
	done := false
	defer func() {
		if done {
			return
		}
		if cause := way.Cause(); cause != nil {
			err = cause
		}
		way.Close()
	}()
	// Wait for the first answer without a slot, so that members that never answer do not occupy one.
	readyCtx, cancel := context.WithTimeout(ctx, p.cfg.Health.Timeout)
	defer cancel()
	if err := api.Ready(readyCtx); err != nil {
		return nil, found, fmt.Errorf("asking whether %q is ready: %w", name, err)
	}
	release, err := p.slot(ctx, way.LastTraffic)
	if err != nil {
		return nil, found, err
	}
	defer release()
	found, err = p.checker(in).Check(ctx, api, &in.registration, in.recordedUID)
	if err != nil {
		return nil, found, err
	}
	heldAt, err := p.claimUnlessHeld(ctx, api, in, found)
	if err != nil {
		return nil, found, err
	}
	claimed := !heldAt.IsZero()
	if err := p.checker(in).Settle(asOwn(ctx), api, found, claimed); err != nil {
		return nil, found, err
	}
	progress(clusters.StateSyncing, found)
	s, err := p.sync(ctx, name, way, api, found.Served.Denied)
	if err != nil {
		return nil, found, err
	}
	s.uid, s.credential, s.claimed, s.heldAt, s.served = found.UID, in.credential, claimed, heldAt, found.Served
	done = true
	return s, found, nil
}

// slotSilence is how long a member that hangs keeps its slot.
const slotSilence = 5 * time.Second

// errSyncTimeout means that the caches did not fill in time.
var errSyncTimeout = errors.New("the caches did not fill in time")

// sync starts the caches of a member, except those of kinds that are off, and waits until all are filled.
func (p *Pool) sync(ctx context.Context, name string, way *transport.Transport, api *preflight.API, off kinds.Denials) (*session, error) {
	// The caches live as long as the incarnation, not the attempt, so their context descends from the pool's.
	lifetime, stop := context.WithCancel(p.lifetime())
	cached := &footprint{limits: p.cfg.Limits, clock: p.cfg.Clock, lifetime: lifetime, exceeded: way.Break, listing: way.Listing, ledger: p.ledger}
	p.ledger.join(cached)
	context.AfterFunc(lifetime, func() { p.ledger.leave(cached) })
	inner, err := p.newCluster(name, way, cached, off)
	if err != nil {
		stop()
		return nil, err
	}
	for _, index := range p.fieldIndexes() {
		if err := inner.GetFieldIndexer().IndexField(ctx, index.object, index.field, index.extract); err != nil {
			stop()
			return nil, fmt.Errorf("indexing %q in %q: %w", index.field, name, err)
		}
	}
	engaged, disengage := context.WithCancel(lifetime)
	s := &session{
		access: access{
			incarnation: p.incarnations.Add(1), transport: way, api: api, uncached: off, engaged: engaged,
			cluster: &memberCluster{Cluster: inner, cached: cached, funcs: map[int]func(){}},
		},
		disengage: disengage, stop: stop,
	}
	go func() {
		defer recoverTo(p.log.WithValues("cluster", name), "Cache of a member panicked")
		if err := inner.Start(lifetime); err != nil {
			p.log.Error(err, "Running the cache of a member", "cluster", name)
		}
	}()
	stores, err := p.waitForCaches(ctx, inner.GetCache(), cached, off)
	if err == nil {
		err = cached.fill(stores)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("syncing %q: %w", name, err)
	}
	return s, nil
}

// waitForCaches returns the stores once all watched kinds have synced, or an error after SyncTimeout.
func (p *Pool) waitForCaches(ctx context.Context, informers cache.Cache, cached *footprint, off kinds.Denials) ([]toolscache.Store, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.SyncTimeout, errSyncTimeout)
	defer cancel()
	unsynced := map[string]cache.Informer{}
	var stores []toolscache.Store
	for _, kind := range kinds.Watched() {
		if _, isOff := off[kind.Of]; isOff {
			continue
		}
		informer, err := informers.GetInformer(ctx, kind.Object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind.Resource, err)
		}
		unsynced[kind.Resource] = informer
		if stored, ok := informer.(interface{ GetStore() toolscache.Store }); ok {
			stores = append(stores, stored.GetStore())
		}
	}
	cached.follow(stores)
	if informers.WaitForCacheSync(ctx) {
		return stores, nil
	}
	maps.DeleteFunc(unsynced, func(_ string, informer cache.Informer) bool { return informer.HasSynced() })
	return nil, fmt.Errorf("reading %s: %w", text.List(slices.Sorted(maps.Keys(unsynced)), 5), context.Cause(ctx))
}

// newCluster creates the cache and the clients of a member without starting anything.
func (p *Pool) newCluster(name string, way *transport.Transport, cached *footprint, off kinds.Denials) (cluster.Cluster, error) {
	c, err := cluster.New(preflight.Config(name), func(o *cluster.Options) {
		o.Scheme = kinds.Scheme()
		o.Logger = p.log.WithValues("cluster", name)
		o.HTTPClient = transport.Client(way)
		o.NewCache = func(config *rest.Config, options cache.Options) (cache.Cache, error) {
			options.HTTPClient = transport.Client(way.ForCache())
			all, err := cache.New(config, options)
			return kinds.Without(all, options.Scheme, off), err
		}
		o.MapperProvider = func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) { return p.mapper, nil }
		o.Cache = cache.Options{NewInformer: kinds.NewInformer(logr.NewContext(cached.lifetime, o.Logger), cached.counted), ReaderFailOnMissingInformer: true}
		o.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	})
	if err != nil {
		return nil, fmt.Errorf("making a cluster for %q: %w", name, err)
	}
	return c, nil
}

// slot waits for one of the few slots for checking and syncing members. The returned function releases it. It is released
// after SlotTime at the latest, and once the member has not answered for slotSilence, so that members that are slow or hang
// do not block the others.
func (p *Pool) slot(ctx context.Context, lastTraffic func() time.Time) (func(), error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := p.cfg.Clock.Now()
	held, stop := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.SlotTime)
	context.AfterFunc(held, func() { <-p.slots })
	go wait.UntilWithContext(held, func(context.Context) {
		if min(p.cfg.Clock.Since(lastTraffic()), p.cfg.Clock.Since(began)) >= slotSilence {
			stop()
		}
	}, slotSilence/5)
	return stop, nil
}

// heldClaim is the verdict of a member that this hub has claimed.
var heldClaim = verdict.Good(flotillav1.ReasonHeld, "This hub holds the claim")

// unclaimed is the verdict of a member that is not claimed because it must not be written.
func unclaimed(reason string) verdict.Verdict {
	message := "The member is paused, so nothing is written there"
	if reason == flotillav1.ReasonFrozen {
		message = "The member is frozen, so nothing is written there"
	}
	return verdict.Verdict{Status: "Unknown", Reason: reason, Message: message}
}

// claimUnlessHeld claims a member for this hub and returns when it began to. A paused or frozen member is not written,
// and is claimed later; the time is zero then.
func (p *Pool) claimUnlessHeld(ctx context.Context, api *preflight.API, in *attemptInput, found *preflight.Findings) (time.Time, error) {
	held := &clusters.HeldError{Reason: flotillav1.ReasonPaused}
	if !in.registration.Paused {
		claim, err := takeClaim(ctx, api, in.claim, preflight.HoldOptions{Member: found.UID, TakeOver: in.registration.TakeOver})
		if err == nil {
			found.Verdicts[flotillav1.ConditionClaimed] = heldClaim
			return claim.Began, nil
		}
		if !errors.As(err, &held) {
			return time.Time{}, err
		}
	}
	found.Verdicts[flotillav1.ConditionClaimed] = unclaimed(held.Reason)
	return time.Time{}, nil
}

// takeClaim acquires the claim on a member for this hub.
func takeClaim(ctx context.Context, api *preflight.API, claim *preflight.Claim, options preflight.HoldOptions) (preflight.Held, error) {
	held, err := claim.Hold(asOwn(ctx), api.Client, options)
	if verdict.IsForbidden(err) {
		return held, preflight.RefuseForbidden([]string{"get, create and update leases.coordination.k8s.io " + preflight.ClaimNamespace + "/" + preflight.ClaimName})
	}
	return held, err
}
