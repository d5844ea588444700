// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
)

// secretWatch is the informer of one convention in one namespace.
type secretWatch struct {
	namespace  string
	convention registration.Convention
	informer   toolscache.SharedIndexInformer
}

// registrar turns registration Secrets into members. Every change evaluates all of them: the meaning of a name depends
// on the other Secrets that request it, and a fleet has a few hundred at most. It does no I/O after it has started.
type registrar struct {
	pool    *Pool
	log     logr.Logger
	watches []secretWatch
	changed chan struct{}
	// unregistered contains the UIDs of the deleted Secrets whose members are offboarded without a grace period.
	unregistered unregistered
	// complained contains the complaints that have been recorded, so that each is recorded once.
	complained map[types.UID]registration.Complaint
}

// newRegistrar creates the informers of registrations and waits for the cache of MemberClusters, which record the
// owner of each name.
func newRegistrar(ctx context.Context, p *Pool) (*registrar, error) {
	r := &registrar{
		pool: p, log: p.log.WithName("registrar"), changed: make(chan struct{}, 1), complained: map[types.UID]registration.Complaint{},
	}
	for _, source := range p.cfg.Sources {
		for _, name := range source.Conventions {
			informer := coreinformers.NewFilteredSecretInformer(p.hub.secrets, source.Namespace, 0, toolscache.Indexers{},
				func(options *metav1.ListOptions) { options.LabelSelector = name.Selector() })
			if err := informer.SetTransform(r.keep(name)); err != nil {
				return nil, fmt.Errorf("preparing the watch of registrations in %q: %w", source.Namespace, err)
			}
			if _, err := informer.AddEventHandler(r.handler()); err != nil {
				return nil, fmt.Errorf("preparing the watch of registrations in %q: %w", source.Namespace, err)
			}
			r.watches = append(r.watches, secretWatch{namespace: source.Namespace, convention: name, informer: informer})
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

// keep returns a transform that drops unneeded parts of a Secret before it is cached.
func (r *registrar) keep(by registration.Convention) toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	return func(object any) (any, error) {
		if secret, ok := object.(*corev1.Secret); ok {
			by.Trim(secret)
		}
		return strip(object)
	}
}

// handler returns a handler that wakes the registrar on every event.
func (r *registrar) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.wake() },
		UpdateFunc: func(any, any) { r.wake() },
		DeleteFunc: func(object any) {
			if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if secret, ok := object.(*corev1.Secret); ok && secret.Annotations[flotillav1.AnnotationUnregister] == "true" {
				r.unregistered.add(secret.UID)
			}
			r.wake()
		},
	}
}

// unregistered is a set of UIDs for concurrent use. The annotation is read when a Secret is deleted, because the last
// evaluation may have been before it was set.
type unregistered struct {
	mu   sync.Mutex
	uids []types.UID
}

// add adds the UID of a deleted Secret.
func (u *unregistered) add(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uids = append(u.uids, uid)
}

// takeAll empties the set and returns what it contained.
func (u *unregistered) takeAll() []types.UID {
	u.mu.Lock()
	defer u.mu.Unlock()
	uids := u.uids
	u.uids = nil
	return uids
}

// memberClusterHandler returns a handler that restores MemberClusters that were modified or deleted, and that wakes the
// registrar when what people ask for there has changed.
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
			// Status writes of the pool and of the roll-up change neither.
			if ok1 && ok2 && (a.Generation != b.Generation || !maps.Equal(a.Labels, b.Labels)) {
				enqueue(after)
			}
			if ok1 && ok2 && askedOf(a) != askedOf(b) {
				r.wake()
			}
		},
		DeleteFunc: func(object any) {
			enqueue(object)
			r.wake()
		},
	}
}

// asked is what people ask for on a MemberCluster. A registration that a GitOps tool applies is no place for it: such a tool
// takes back what others write there.
type asked struct{ paused, drain bool }

// askedOf returns what people ask for on a MemberCluster, which may be nil.
func askedOf(object *flotillav1.MemberCluster) asked {
	if object == nil {
		return asked{}
	}
	return asked{
		paused: object.Annotations[flotillav1.AnnotationPaused] == "true",
		drain:  object.Annotations[flotillav1.AnnotationDrain] == "true",
	}
}

// ask adds what people ask for on the MemberClusters to the registrations.
func ask(assigned *registration.Assignment, recorded map[multicluster.ClusterName]*flotillav1.MemberCluster) {
	for name, wanted := range assigned.Holders {
		asked := askedOf(recorded[name])
		wanted.Paused, wanted.Drain = wanted.Paused || asked.paused, wanted.Drain || asked.drain
		assigned.Holders[name] = wanted
	}
}

// wake schedules an evaluation of the registrations. It does not block.
func (r *registrar) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run evaluates registrations until ctx ends. Nothing is decided before every informer has synced, because a Secret
// may exist that an informer could not list.
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

// waitForSync waits for an informer to sync, and logs when that takes long. It reports whether the informer has
// synced.
func (r *registrar) waitForSync(ctx context.Context, watch secretWatch) bool {
	for {
		wait, cancel := context.WithTimeout(ctx, 30*time.Second)
		synced := toolscache.WaitForCacheSync(wait.Done(), watch.informer.HasSynced)
		cancel()
		if synced || ctx.Err() != nil {
			return synced
		}
		r.log.Info("Still waiting for the first list of registration Secrets; check that the manager may list and watch Secrets in the namespace", "namespace", watch.namespace)
	}
}

// namespaces returns the watched namespaces, sorted.
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

// reserve assigns each recorded cluster to its member before any member connects.
func (r *registrar) reserve(ctx context.Context) {
	for _, recorded := range r.memberClusters(ctx) {
		r.pool.reserveUID(types.UID(recorded.Status.UID), multicluster.ClusterName(recorded.Name))
	}
}

// evaluate reconciles the members with the registrations.
func (r *registrar) evaluate(ctx context.Context) {
	defer recoverTo(r.log, "Evaluating registrations panicked")
	recorded := map[multicluster.ClusterName]*flotillav1.MemberCluster{}
	holders := map[multicluster.ClusterName]registration.SecretRef{}
	for _, object := range r.memberClusters(ctx) {
		name, ref := multicluster.ClusterName(object.Name), object.Spec.SecretRef
		recorded[name] = &object
		holders[name] = registration.SecretRef{Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID)}
	}
	members := r.pool.all()
	for _, m := range members {
		holders[m.name] = m.holder()
	}
	assigned := registration.Assign(r.registrations(), holders)
	ask(&assigned, recorded)
	unregistered := r.unregistered.takeAll()
	for _, m := range members {
		r.route(m, &assigned, unregistered)
	}
	for name, wanted := range assigned.Holders {
		if r.pool.member(name) != nil {
			continue
		}
		r.log.Info("Registering member", "cluster", name, "secret", wanted.Secret.String())
		r.pool.add(newMember(r.pool, wanted, recorded[name]))
	}
	for name, object := range recorded {
		if _, ok := assigned.Holders[name]; !ok && r.pool.member(name) == nil && r.watched(holders[name]) {
			draining := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionDrained) != nil
			m := newMember(r.pool, registration.Registration{ClusterName: name, Secret: holders[name], Labels: object.Labels, Drain: draining}, object)
			r.route(m, &assigned, unregistered)
			r.pool.add(m)
		}
	}
	r.complain(assigned.Complaints)
}

// route passes its registration to a member, or that there is none. A Secret of another name is another registration,
// even if it requests the same cluster name: it has to wait until the member is offboarded.
func (r *registrar) route(m *member, assigned *registration.Assignment, unregistered []types.UID) {
	held := m.holder()
	wanted, ok := assigned.Holders[m.name]
	switch {
	case slices.Contains(unregistered, held.UID):
		m.leave()
	case !r.watched(held), ok && wanted.Secret.SameName(held):
		if ok {
			m.want(wanted)
		}
	default:
		m.lose()
		if ok {
			assigned.Complaints = append(assigned.Complaints, registration.Complaint{
				Secret: wanted.Secret, Reason: flotillav1.ReasonContested,
				Message: fmt.Sprintf("Cluster name %q is held by Secret %s, which is gone, until the member is offboarded", m.name, held),
			})
		}
	}
}

// registrations parses all cached Secrets. A Secret that matches two conventions counts once, by the first.
func (r *registrar) registrations() []registration.Registration {
	var all []registration.Registration
	seen := map[types.UID]bool{}
	for _, watch := range r.watches {
		for _, object := range watch.informer.GetStore().List() {
			secret, ok := object.(*corev1.Secret)
			if !ok || seen[secret.UID] || !watch.convention.Recognises(secret) {
				continue
			}
			seen[secret.UID] = true
			all = append(all, watch.convention.Read(secret))
		}
	}
	return all
}

// registered reads live whether a Secret is the registration of a member.
func (p *Pool) registered(ctx context.Context, ref registration.SecretRef, name multicluster.ClusterName) (bool, error) {
	for _, source := range p.cfg.Sources {
		if source.Namespace != ref.Namespace {
			continue
		}
		for _, convention := range source.Conventions {
			// Listing needs no other right than the watch does.
			list, err := p.hub.secrets.CoreV1().Secrets(ref.Namespace).List(ctx, metav1.ListOptions{
				LabelSelector: convention.Selector(), FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String(),
			})
			if err != nil {
				return false, fmt.Errorf("looking for the registration %s: %w", ref, err)
			}
			for _, secret := range list.Items {
				if convention.Recognises(&secret) && convention.Read(&secret).ClusterName == name {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// watched reports whether the absence of a Secret can be observed: its namespace is among the sources.
func (r *registrar) watched(ref registration.SecretRef) bool {
	return slices.Contains(r.namespaces(), ref.Namespace)
}

// complain records once on each rejected Secret why it does not become a member.
func (r *registrar) complain(complaints []registration.Complaint) {
	complained := map[types.UID]registration.Complaint{}
	for _, c := range complaints {
		complained[c.Secret.UID] = c
		if r.complained[c.Secret.UID] == c {
			continue
		}
		r.log.Info("Refusing registration", "secret", c.Secret.String(), "reason", c.Reason)
		secret := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: c.Secret.Namespace, Name: c.Secret.Name, UID: c.Secret.UID,
		}
		r.pool.hub.recorder.Eventf(secret, nil, corev1.EventTypeWarning, c.Reason, "Register", "%s", c.Message)
	}
	r.complained = complained
}

// tenants resolves the namespaces of a registration; nil permits all. Cluster-scoped objects belong to no namespace:
// they may be placed by anyone who may create them on the hub, unless tenancy is enforced. Then only the registration
// decides.
func (p *Pool) tenants(namespaces []string) []string {
	switch {
	case slices.Contains(namespaces, registration.EveryNamespace), namespaces == nil && !p.cfg.EnforceTenancy:
		return nil
	case p.cfg.EnforceTenancy:
		return append([]string{}, namespaces...)
	default:
		return append([]string{""}, namespaces...)
	}
}
