// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Config is what a Pool works from. Zero durations and limits take their defaults.
type Config struct {
	// HubID is the name of this hub in claims and on copies.
	HubID string
	// Instance tells this hub from a copy of it with the same HubID: the UID of the hub's namespace kube-system. When it is
	// empty, the pool reads it from the hub when it starts.
	Instance string
	// Namespace is the manager's own on the hub, where the freeze switch is; without one there is no switch.
	Namespace string
	// InstallCRDs installs and upgrades our CustomResourceDefinitions in members; otherwise their administrators do.
	InstallCRDs bool
	// InspectInterval is how often it is looked for changes of these definitions; 30 s.
	InspectInterval time.Duration
	// EnforceTenancy lets nobody place in a member whose registration does not say who may.
	EnforceTenancy bool
	// Sources are where registrations are.
	Sources []Source
	// Policy is what the site changes about the rules for registrations.
	Policy Policy
	// Scheme is shared by all members. It must know our kinds and the built-in ones.
	Scheme *runtime.Scheme
	// HubEndpoints are further host:port under which the hub is known; registrations that lead there are refused undialled.
	// The endpoint of the hub's own client is always among them.
	HubEndpoints []string
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Health says how members are probed.
	Health Health
	// Limits are what one member may cost.
	Limits Limits
	// SyncTimeout is how long the caches of a member may take to fill; 5 min.
	SyncTimeout time.Duration
	// Slots is how many members are checked and synced at once, and SlotTime how long one keeps its slot; 8 and 30 s.
	Slots    int
	SlotTime time.Duration
	// ClaimDuration and ClaimRenewal are those of the claim; 180 s and 60 s.
	ClaimDuration, ClaimRenewal time.Duration
	// PublishRetry is how long after a failure the hub is written again, at first; 1 s.
	PublishRetry time.Duration
}

// validate returns all problems at once.
func (c *Config) validate() error {
	var problems []error
	if len(validation.IsDNS1123Label(c.HubID)) > 0 {
		problems = append(problems, fmt.Errorf("hub id %q is not a DNS label", c.HubID))
	}
	if c.Scheme == nil || !c.Scheme.Recognizes(flotillav1.GroupVersion.WithKind("MemberCluster")) {
		problems = append(problems, errors.New("the scheme does not know our kinds"))
	}
	if len(c.Sources) == 0 {
		problems = append(problems, errors.New("there is no source of registrations"))
	}
	for _, source := range c.Sources {
		if len(validation.IsDNS1123Label(source.Namespace)) > 0 {
			problems = append(problems, fmt.Errorf("%q is not a namespace", source.Namespace))
		}
		if len(source.Conventions) == 0 {
			problems = append(problems, fmt.Errorf("namespace %q has no conventions", source.Namespace))
		}
		for _, name := range source.Conventions {
			if _, ok := conventions[name]; !ok {
				problems = append(problems, fmt.Errorf("convention %q is not one of %v", name, Conventions()))
			}
		}
	}
	return errors.Join(problems...)
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Health = c.Health.withDefaults()
	c.Limits = c.Limits.withDefaults()
	setDefault(&c.SyncTimeout, 5*time.Minute)
	setDefault(&c.InspectInterval, 30*time.Second)
	setDefault(&c.Slots, 8)
	setDefault(&c.SlotTime, 30*time.Second)
	setDefault(&c.ClaimDuration, 180*time.Second)
	setDefault(&c.ClaimRenewal, 60*time.Second)
	setDefault(&c.PublishRetry, time.Second)
	return c
}

// fieldIndex is an index that every member gets.
type fieldIndex struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

// Pool keeps the connections to all members. It is a multicluster.Provider and a Directory.
type Pool struct {
	cfg       Config
	log       logr.Logger
	mapper    apimeta.RESTMapper
	slots     chan struct{}
	publisher *publisher

	incarnations atomic.Uint64
	frozen       atomic.Pointer[freeze]

	// Set before the members run, and read-only from then on.
	hub           *hub
	aware         multicluster.Aware
	root          context.Context //nolint:containedctx // The lifetime of all members; contexts of requests are too short.
	instance      types.UID
	rules         *rules
	subscribers   []func(multicluster.ClusterName)
	wakeRegistrar func()

	mu      sync.RWMutex // Guards the fields below; nothing waits while holding it.
	members map[multicluster.ClusterName]*member
	// owners says which member has which cluster. Recorded members keep theirs while they are away.
	owners  map[types.UID]multicluster.ClusterName
	indexes []fieldIndex
}

var (
	_ multicluster.Provider         = &Pool{}
	_ multicluster.ProviderRunnable = &Pool{}
	_ Directory                     = &Pool{}
)

// NewPool makes a pool that is given its hub by SetupWithManager.
func NewPool(cfg Config) (*Pool, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("checking the configuration of the pool: %w", err)
	}
	p := &Pool{
		cfg:           cfg.withDefaults(),
		log:           logf.Log.WithName("clusters"),
		mapper:        newMapper(),
		members:       map[multicluster.ClusterName]*member{},
		owners:        map[types.UID]multicluster.ClusterName{},
		instance:      types.UID(cfg.Instance),
		wakeRegistrar: func() {},
	}
	p.slots = make(chan struct{}, p.cfg.Slots)
	p.publisher = newPublisher(p)
	p.frozen.Store(&freeze{})
	return p, nil
}

// SetupWithManager connects the pool with the hub. Nothing is read before the manager runs the pool, which it does on
// the leader only.
func (p *Pool) SetupWithManager(mgr mcmanager.Manager) error {
	h, err := newHub(mgr.GetLocalManager())
	if err != nil {
		return fmt.Errorf("preparing the hub: %w", err)
	}
	p.hub = h
	p.rules = &rules{hubEndpoints: hubEndpoints(h.config.Host, p.cfg.HubEndpoints), policy: p.cfg.Policy}
	return nil
}

// Start implements multicluster.ProviderRunnable. It returns when ctx has ended and every member has stopped.
func (p *Pool) Start(ctx context.Context, aware multicluster.Aware) error {
	if p.hub == nil {
		return errors.New("the pool has no hub: call SetupWithManager first")
	}
	p.aware, p.root = aware, ctx
	if err := p.readInstance(ctx); err != nil {
		return err
	}
	r, err := newRegistrar(ctx, p)
	if err != nil {
		return err
	}
	p.wakeRegistrar = r.wake
	defer inventories.follow(p)()
	// No member is written before the switch has been read.
	if err := p.watchFreeze(ctx); err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { p.publisher.run(ctx) })
	r.run(ctx)
	for _, m := range p.all() {
		<-m.done
	}
	running.Wait()
	return nil
}

// readInstance finds out who this hub is.
func (p *Pool) readInstance(ctx context.Context) error {
	if p.instance != "" {
		return nil
	}
	return wait.PollUntilContextCancel(ctx, 2*time.Second, true, func(ctx context.Context) (bool, error) {
		namespace := &corev1.Namespace{}
		if err := p.hub.reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
			p.log.Error(err, "Reading the identity of the hub")
			return false, nil
		}
		p.instance = namespace.UID
		return true, nil
	})
}

// Get implements multicluster.Provider.
func (p *Pool) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	return p.Member(name)
}

// IndexField implements multicluster.Provider.
func (p *Pool) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	p.mu.Lock()
	p.indexes = append(p.indexes, fieldIndex{object: object, field: field, extract: extract})
	p.mu.Unlock()
	for _, m := range p.all() {
		if c := m.cluster(); c != nil {
			if err := c.GetFieldIndexer().IndexField(ctx, object, field, extract); err != nil {
				return fmt.Errorf("indexing %q in %q: %w", field, m.name, err)
			}
		}
	}
	return nil
}

// fieldIndexes returns what IndexField was given.
func (p *Pool) fieldIndexes() []fieldIndex {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Clone(p.indexes)
}

// Member implements Directory.
func (p *Pool) Member(name multicluster.ClusterName) (cluster.Cluster, error) {
	m := p.member(name)
	if m == nil {
		return nil, fmt.Errorf("looking up member %q: %w", name, multicluster.ErrClusterNotFound)
	}
	if c := m.cluster(); c != nil {
		return c, nil
	}
	return nil, &NotReadyError{Snapshot: m.snapshot()}
}

// Snapshot implements Directory.
func (p *Pool) Snapshot(name multicluster.ClusterName) (Snapshot, bool) {
	m := p.member(name)
	if m == nil {
		return Snapshot{}, false
	}
	return m.snapshot(), true
}

// Snapshots implements Directory.
func (p *Pool) Snapshots() []Snapshot {
	members := p.all()
	snapshots := make([]Snapshot, 0, len(members))
	for _, m := range members {
		snapshots = append(snapshots, m.snapshot())
	}
	return snapshots
}

// Subscribe implements Directory.
func (p *Pool) Subscribe(fn func(multicluster.ClusterName)) {
	p.subscribers = append(p.subscribers, fn)
}

// notify tells the subscribers.
func (p *Pool) notify(name multicluster.ClusterName) {
	for _, fn := range p.subscribers {
		fn(name)
	}
}

// member returns a member, or nil.
func (p *Pool) member(name multicluster.ClusterName) *member {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.members[name]
}

// all returns the members sorted by name.
func (p *Pool) all() []*member {
	p.mu.RLock()
	defer p.mu.RUnlock()
	members := slices.Collect(maps.Values(p.members))
	slices.SortFunc(members, func(a, b *member) int { return strings.Compare(string(a.name), string(b.name)) })
	return members
}

// add starts a member. The caller makes sure that there is none of that name.
func (p *Pool) add(m *member) {
	p.mu.Lock()
	p.members[m.name] = m
	p.mu.Unlock()
	beginMetrics(p, m.name)
	go m.run(p.root)
	p.notify(m.name)
	p.publisher.enqueue(m.name)
}

// forget drops a member that is offboarded, and only that very one.
func (p *Pool) forget(m *member) {
	p.mu.Lock()
	if p.members[m.name] == m {
		delete(p.members, m.name)
	}
	maps.DeleteFunc(p.owners, func(_ types.UID, owner multicluster.ClusterName) bool { return owner == m.name })
	p.mu.Unlock()
	forgetMetrics(string(m.name))
	p.notify(m.name)
	p.wakeRegistrar()
}

// reserveUID records at start which member has which cluster.
func (p *Pool) reserveUID(uid types.UID, name multicluster.ClusterName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, taken := p.owners[uid]; uid != "" && !taken {
		p.owners[uid] = name
	}
}

// acquireUID gives a cluster to a member unless another one has it, and returns who has it.
func (p *Pool) acquireUID(uid types.UID, name multicluster.ClusterName) (owner multicluster.ClusterName, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if owner, taken := p.owners[uid]; taken && owner != name {
		return owner, false
	}
	p.owners[uid] = name
	return name, true
}

// keepUID gives up the clusters that a member had before this one.
func (p *Pool) keepUID(uid types.UID, name multicluster.ClusterName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.owners, func(other types.UID, owner multicluster.ClusterName) bool { return owner == name && other != uid })
}

// hubUID is the UID of the hub's own cluster.
func (p *Pool) hubUID() types.UID { return p.instance }

// lifetime is the context that everything of a member descends from.
func (p *Pool) lifetime() context.Context { return p.root }

// claim is this hub's claim on members.
func (p *Pool) claim() claim {
	return claim{hubID: p.cfg.HubID, instance: string(p.instance), duration: p.cfg.ClaimDuration, clock: p.cfg.Clock}
}

// recoverTo logs a panic. It is for goroutines that nobody waits for.
func recoverTo(log logr.Logger, message string) {
	if r := recover(); r != nil {
		log.Error(fmt.Errorf("panic: %v", r), message, "stack", string(debug.Stack()))
	}
}
