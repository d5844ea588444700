// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// secretWatch is the informer of one convention in one namespace.
type secretWatch struct {
	namespace  string
	convention convention
	informer   toolscache.SharedIndexInformer
}

// registrar turns registration Secrets into members. It looks at all of them whenever one changes: what a name means
// depends on who else asks for it, and a fleet has some hundreds at most. It does no I/O after it has started.
type registrar struct {
	pool    *Pool
	log     logr.Logger
	watches []secretWatch
	changed chan struct{}
	// told is what the Secrets have been told already, so that each complaint is made once.
	told map[types.UID]complaint
}

// newRegistrar prepares the informers and waits for the MemberClusters, the record of who has which name.
func newRegistrar(ctx context.Context, p *Pool) (*registrar, error) {
	r := &registrar{
		pool: p, log: p.log.WithName("registrar"), changed: make(chan struct{}, 1), told: map[types.UID]complaint{},
	}
	for _, source := range p.cfg.Sources {
		for _, name := range source.Conventions {
			by := conventions[name]
			informer := coreinformers.NewFilteredSecretInformer(p.hub.secrets, source.Namespace, 0, toolscache.Indexers{},
				func(options *metav1.ListOptions) { options.LabelSelector = by.selector })
			if err := informer.SetTransform(r.keep(by)); err != nil {
				return nil, fmt.Errorf("preparing the watch of registrations in %q: %w", source.Namespace, err)
			}
			if _, err := informer.AddEventHandler(r.handler()); err != nil {
				return nil, fmt.Errorf("preparing the watch of registrations in %q: %w", source.Namespace, err)
			}
			r.watches = append(r.watches, secretWatch{namespace: source.Namespace, convention: by, informer: informer})
		}
	}
	recorded, err := p.hub.cache.GetInformer(ctx, &flotillav1.MemberCluster{})
	if err != nil {
		return nil, fmt.Errorf("watching MemberClusters: %w", err)
	}
	handle, err := recorded.AddEventHandler(r.memberClusterHandler())
	if err != nil {
		return nil, fmt.Errorf("watching MemberClusters: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = recorded.RemoveEventHandler(handle) })
	return r, nil
}

// keep drops what is not needed of a Secret before it is cached.
func (r *registrar) keep(by convention) toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	return func(object any) (any, error) {
		if secret, ok := object.(*corev1.Secret); ok {
			by.trim(secret)
		}
		return strip(object)
	}
}

// handler wakes the registrar.
func (r *registrar) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.wake() },
		UpdateFunc: func(any, any) { r.wake() },
		DeleteFunc: func(any) { r.wake() },
	}
}

// memberClusterHandler has MemberClusters put right that someone else changed or deleted.
func (r *registrar) memberClusterHandler() toolscache.ResourceEventHandler {
	enqueue := func(object any) {
		if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			r.pool.publisher.enqueue(multicluster.ClusterName(key))
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			b, ok1 := before.(*flotillav1.MemberCluster)
			a, ok2 := after.(*flotillav1.MemberCluster)
			// Our own status writes and those of the roll-up change neither.
			if ok1 && ok2 && (a.Generation != b.Generation || !maps.Equal(a.Labels, b.Labels)) {
				enqueue(after)
			}
		},
		DeleteFunc: enqueue,
	}
}

// wake has the registrations looked at again. It does not block.
func (r *registrar) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run works until ctx ends. Nothing is decided before every informer has synced: what an informer that cannot list does
// not show may well exist.
func (r *registrar) run(ctx context.Context) {
	for _, watch := range r.watches {
		go watch.informer.RunWithContext(ctx)
	}
	for _, watch := range r.watches {
		if !r.waitForSync(ctx, watch) {
			return
		}
	}
	r.reserve(ctx)
	r.log.Info("Watching registrations", "namespaces", r.namespaces())
	r.wake()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.evaluate(ctx)
		}
	}
}

// waitForSync waits for an informer and says so when that takes long.
func (r *registrar) waitForSync(ctx context.Context, watch secretWatch) bool {
	for {
		wait, cancel := context.WithTimeout(ctx, 30*time.Second)
		synced := toolscache.WaitForCacheSync(wait.Done(), watch.informer.HasSynced)
		cancel()
		if synced || ctx.Err() != nil {
			return synced
		}
		r.log.Info("Still waiting for the registrations; may the manager list Secrets there?", "namespace", watch.namespace)
	}
}

// namespaces lists where registrations are looked for.
func (r *registrar) namespaces() []string {
	var namespaces []string
	for _, watch := range r.watches {
		namespaces = append(namespaces, watch.namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// memberClusters returns the recorded members from the manager's cache.
func (r *registrar) memberClusters(ctx context.Context) []flotillav1.MemberCluster {
	list := &flotillav1.MemberClusterList{}
	if err := r.pool.hub.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		r.log.Error(err, "Listing MemberClusters from the cache")
	}
	return list.Items
}

// reserve gives each recorded cluster to the member that has it, before any member connects.
func (r *registrar) reserve(ctx context.Context) {
	for _, recorded := range r.memberClusters(ctx) {
		r.pool.reserveUID(types.UID(recorded.Status.UID), multicluster.ClusterName(recorded.Name))
	}
}

// evaluate compares what is asked for with the members that there are.
func (r *registrar) evaluate(ctx context.Context) {
	defer recoverTo(r.log, "Evaluating registrations panicked")
	recorded := map[multicluster.ClusterName]*flotillav1.MemberCluster{}
	holders := map[multicluster.ClusterName]secretRef{}
	for _, object := range r.memberClusters(ctx) {
		name, ref := multicluster.ClusterName(object.Name), object.Spec.SecretRef
		recorded[name] = &object
		holders[name] = secretRef{namespace: ref.Namespace, name: ref.Name, uid: types.UID(ref.UID)}
	}
	members := r.pool.all()
	for _, m := range members {
		holders[m.name] = m.holder()
	}
	assigned := assign(r.registrations(), holders)
	for _, m := range members {
		wanted, ok := assigned.holders[m.name]
		// Another Secret under another name is another registration, even if it asks for the same cluster name.
		if r.watched(m.holder()) && (!ok || !wanted.secret.sameName(m.holder())) {
			m.leave()
		}
	}
	for name, wanted := range assigned.holders {
		if m := r.pool.member(name); m != nil {
			m.want(wanted)
			continue
		}
		r.log.Info("Registering member", "cluster", name, "secret", wanted.secret.String())
		r.pool.add(newMember(r.pool, wanted, recorded[name]))
	}
	for name, object := range recorded {
		if _, ok := assigned.holders[name]; !ok && r.pool.member(name) == nil && r.watched(holders[name]) {
			r.log.Info("Offboarding a member whose registration is gone", "cluster", name)
			m := newMember(r.pool, registration{clusterName: name, secret: holders[name], labels: object.Labels}, object)
			m.leave()
			r.pool.add(m)
		}
	}
	r.complain(assigned.complaints)
}

// registrations reads all Secrets that are known. A Secret of two conventions counts once, by the first.
func (r *registrar) registrations() []registration {
	var all []registration
	seen := map[types.UID]bool{}
	for _, watch := range r.watches {
		for _, object := range watch.informer.GetStore().List() {
			secret, ok := object.(*corev1.Secret)
			if !ok || seen[secret.UID] || (watch.convention.recognises != nil && !watch.convention.recognises(secret)) {
				continue
			}
			seen[secret.UID] = true
			all = append(all, readRegistration(secret, watch.convention))
		}
	}
	return all
}

// watched says whether the absence of a Secret is known and not only not seen: its namespace is among the sources.
func (r *registrar) watched(ref secretRef) bool {
	return slices.Contains(r.namespaces(), ref.namespace)
}

// complain tells each Secret once why it is no member.
func (r *registrar) complain(complaints []complaint) {
	told := map[types.UID]complaint{}
	for _, c := range complaints {
		told[c.secret.uid] = c
		if r.told[c.secret.uid] == c {
			continue
		}
		r.log.Info("Refusing registration", "secret", c.secret.String(), "reason", c.reason)
		secret := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: c.secret.namespace, Name: c.secret.name, UID: c.secret.uid,
		}
		r.pool.hub.recorder.Eventf(secret, nil, corev1.EventTypeWarning, c.reason, "Register", "%s", c.message)
	}
	r.told = told
}
