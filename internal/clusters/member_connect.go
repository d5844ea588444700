// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// attemptInput is what an attempt to connect works from. It does not change while the attempt runs.
type attemptInput struct {
	registration registration
	credential   *credential
	// recordedUID is the cluster that the name stood for so far; empty when there was none.
	recordedUID types.UID
	noWatchList bool
	// permit is asked before each write to the member.
	permit func(context.Context) error
	// relisted is told of each list that a cache makes although it was filled.
	relisted func()
}

// accepted is the verdict on a registration whose credential is in use.
func (in *attemptInput) accepted() verdict { return in.registration.accepted() }

// accepted is the verdict on a registration whose credential is in use.
func (r *registration) accepted() verdict {
	if len(r.contenders) > 0 {
		return good(flotillav1.ReasonContested, "The credential is in use; the cluster name is also asked for by "+text.List(r.contenders, 3)+", which gets an event and nothing else")
	}
	return good(flotillav1.ReasonAccepted, "The credential of the registration is in use")
}

// session is one incarnation of a member: its connection and its caches. It lasts through rotations and outages.
type session struct {
	incarnation uint64
	uid         types.UID
	credential  *credential
	transport   *transport
	api         *memberAPI
	cluster     *memberCluster
	// claimed says that this hub holds the claim; false in a member that was paused from the start.
	claimed bool
	// served is what the member serves of our group.
	served served
	// uncached are the kinds that were off when the caches were made, so that there are none of theirs.
	uncached denials
	// unread are the resources that cannot be watched although the member answers.
	unread []string
	// disengage ends the controllers' interest; stop ends the caches after that.
	engaged   context.Context //nolint:containedctx // It is the lifetime that Engage is given.
	disengage context.CancelFunc
	stop      context.CancelFunc
}

// close ends the session. It does not wait: informers end in their own time.
func (s *session) close() {
	s.disengage()
	s.stop()
	s.transport.close()
}

// memberCluster is the cluster that is engaged. Sources find OnRecovered on it.
type memberCluster struct {
	cluster.Cluster
	cached *footprint

	mu    sync.Mutex // Guards the fields below; no function is called while holding it.
	next  int
	funcs map[int]func()
}

// OnRecovered has fn called, until ctx ends, whenever work for the member is possible again after a time in which it was
// dropped: after an outage, once the member's Snapshot says Ready, and after a pause. fn must not block.
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

// recovered calls what OnRecovered has registered.
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

// connect dials a member, checks it, claims it and fills its caches. progress is told about each step and what
// was found before, which nobody changes after that.
func (p *Pool) connect(ctx context.Context, in *attemptInput, kick func(), progress func(State, *findings)) (_ *session, _ *findings, err error) {
	name := string(in.registration.clusterName)
	found := &findings{}
	progress(StateConnecting, nil)
	l, err := p.newLink(in.credential)
	if err != nil {
		return nil, found, err
	}
	way := newTransport(l, p.cfg.Clock, kick, in.noWatchList)
	way.permit, way.relisted = in.permit, in.relisted
	api, err := p.newMemberAPI(name, way)
	if err != nil {
		return nil, found, err
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	defer context.AfterFunc(way.broken, func() { abort(way.cause()) })()
	done := false
	defer func() {
		if done {
			return
		}
		if cause := way.cause(); cause != nil {
			err = cause
		}
		way.close()
	}()
	// The first answer is waited for without a slot, so that members that never answer take none from those that do.
	readyCtx, cancel := context.WithTimeout(ctx, p.cfg.Health.Timeout)
	defer cancel()
	if err := api.ready(readyCtx); err != nil {
		return nil, found, fmt.Errorf("asking whether %q is ready: %w", name, err)
	}
	release, err := p.slot(ctx)
	if err != nil {
		return nil, found, err
	}
	defer release()
	found, err = p.preflight(ctx, api, in)
	if err != nil {
		return nil, found, err
	}
	claimed, err := p.claimUnlessHeld(ctx, api, in, found)
	if err != nil {
		return nil, found, err
	}
	if err := p.settle(ctx, api, found, claimed); err != nil {
		return nil, found, err
	}
	progress(StateSyncing, found)
	s, err := p.sync(ctx, name, way, api, found.served.denied)
	if err != nil {
		return nil, found, err
	}
	s.uid, s.credential, s.claimed, s.served = found.uid, in.credential, claimed, found.served
	done = true
	return s, found, nil
}

// errSyncTimeout says that the caches did not fill in time.
var errSyncTimeout = errors.New("the caches did not fill in time")

// sync starts the caches of a member, but for those of kinds that are off, and waits until all have been read.
func (p *Pool) sync(ctx context.Context, name string, way *transport, api *memberAPI, off denials) (*session, error) {
	// The caches live as long as the incarnation, not as the attempt: their context descends from the pool's.
	lifetime, stop := context.WithCancel(p.lifetime())
	cached := &footprint{limits: p.cfg.Limits, clock: p.cfg.Clock, lifetime: lifetime, exceeded: way.breaks}
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
		incarnation: p.incarnations.Add(1), transport: way, api: api,
		cluster: &memberCluster{Cluster: inner, cached: cached, funcs: map[int]func(){}},
		engaged: engaged, disengage: disengage, stop: stop, uncached: off,
	}
	go func() {
		defer recoverTo(p.log.WithValues("cluster", name), "Cache of a member panicked")
		if err := inner.Start(lifetime); err != nil {
			p.log.Error(err, "Running the cache of a member", "cluster", name)
		}
	}()
	stores, err := p.waitForCaches(ctx, inner.GetCache(), off)
	if err == nil {
		err = cached.fill(stores)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("syncing %q: %w", name, err)
	}
	return s, nil
}

// waitForCaches returns the caches when each watched kind has been read, or fails when that takes too long.
func (p *Pool) waitForCaches(ctx context.Context, informers cache.Cache, off denials) ([]toolscache.Store, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.SyncTimeout, errSyncTimeout)
	defer cancel()
	unsynced := map[string]cache.Informer{}
	var stores []toolscache.Store
	for _, kind := range watchedKinds() {
		if _, isOff := off[kind.of]; isOff {
			continue
		}
		informer, err := informers.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind.resource, err)
		}
		unsynced[kind.resource] = informer
		if stored, ok := informer.(interface{ GetStore() toolscache.Store }); ok {
			stores = append(stores, stored.GetStore())
		}
	}
	if informers.WaitForCacheSync(ctx) {
		return stores, nil
	}
	maps.DeleteFunc(unsynced, func(_ string, informer cache.Informer) bool { return informer.HasSynced() })
	return nil, fmt.Errorf("reading %s: %w", text.List(slices.Sorted(maps.Keys(unsynced)), 5), context.Cause(ctx))
}

// newCluster makes the cache and the clients of a member. Nothing runs yet.
func (p *Pool) newCluster(name string, way *transport, cached *footprint, off denials) (cluster.Cluster, error) {
	c, err := cluster.New(memberConfig(name), func(o *cluster.Options) {
		o.Scheme = p.cfg.Scheme
		o.Logger = p.log.WithValues("cluster", name)
		o.HTTPClient = httpClient(way)
		o.NewCache = func(config *rest.Config, options cache.Options) (cache.Cache, error) {
			options.HTTPClient = httpClient(cacheWay{way})
			all, err := cache.New(config, options)
			return &kindCache{Cache: all, scheme: options.Scheme, without: off}, err
		}
		o.MapperProvider = func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) { return p.mapper, nil }
		o.Cache = cache.Options{NewInformer: newInformer(logr.NewContext(cached.lifetime, o.Logger), cached.counted), ReaderFailOnMissingInformer: true}
		o.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	})
	if err != nil {
		return nil, fmt.Errorf("making a cluster for %q: %w", name, err)
	}
	return c, nil
}

// slot waits for one of the few places for members that are being checked and synced. It is given back by the result, or
// by itself after a while, so that members that are slow on purpose do not keep it from the others.
func (p *Pool) slot(ctx context.Context) (func(), error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-p.slots })
	timer := time.AfterFunc(p.cfg.SlotTime, release)
	return func() { timer.Stop(); release() }, nil
}

// claimUnlessHeld claims a member for this hub, unless nothing may be written there: then it is claimed later.
func (p *Pool) claimUnlessHeld(ctx context.Context, api *memberAPI, in *attemptInput, found *findings) (bool, error) {
	held := &HeldError{Reason: flotillav1.ReasonPaused}
	if !in.registration.paused {
		err := p.takeClaim(ctx, api, in)
		if err == nil {
			found.verdicts[flotillav1.ConditionClaimed] = good(flotillav1.ReasonHeld, "This hub holds the claim")
			return true, nil
		}
		if !errors.As(err, &held) {
			return false, err
		}
	}
	message := "The member is paused, so nothing is written there"
	if held.Reason == flotillav1.ReasonFrozen {
		message = "The member is frozen, so nothing is written there"
	}
	found.verdicts[flotillav1.ConditionClaimed] = verdict{status: "Unknown", reason: held.Reason, message: message}
	return false, nil
}

// takeClaim claims a member for this hub.
func (p *Pool) takeClaim(ctx context.Context, api *memberAPI, in *attemptInput) error {
	err := p.claim().hold(asOwn(ctx), api.client, in.registration.takeOver)
	if isForbidden(err) {
		return refuseForbidden([]string{"get, create and update leases.coordination.k8s.io " + claimNamespace + "/" + claimName})
	}
	return err
}
