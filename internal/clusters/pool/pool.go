// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
)

// Config configures a Pool. Zero durations and limits take their defaults.
type Config struct {
	// HubID is the name of this hub in claims and on copies.
	HubID string
	// Instance distinguishes this hub from a copy with the same HubID: it is the UID of the hub's namespace
	// kube-system. When empty, the pool reads it from the hub at start.
	Instance string
	// Namespace is the manager's namespace on the hub, which contains the freeze switch. When empty, there is no
	// switch.
	Namespace string
	// InstallCRDs installs and upgrades Flotilla's CustomResourceDefinitions in members. Otherwise their
	// administrators must do so.
	InstallCRDs bool
	// InspectInterval is how often the CustomResourceDefinitions are checked for changes. Defaults to 30s.
	InspectInterval time.Duration
	// EnforceTenancy forbids placement in a member whose registration does not list the permitted namespaces.
	EnforceTenancy bool
	// Sources are the namespaces and conventions of registrations.
	Sources []registration.Source
	// Policy customizes the rules for registrations.
	Policy registration.Policy
	// HubEndpoints are further host:port addresses of the hub. Registrations that lead there are refused without
	// dialling. The endpoint of the hub's own client is always included.
	HubEndpoints []string
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Health configures the probes of members.
	Health Health
	// Limits bound the resources that one member may use.
	Limits transport.Limits
	// CacheMemory is what the caches of all members may need. Defaults to a third of the memory limit of the Go runtime.
	CacheMemory int64
	// SyncTimeout limits how long the caches of a member may take to fill. Defaults to 5m.
	SyncTimeout time.Duration
	// Slots is how many members are checked and synced at once; SlotTime is how long one keeps its slot. Defaults to 8
	// and 30s.
	Slots    int
	SlotTime time.Duration
	// Process identifies this process in claims. It must not be shared by two processes that run at the same time.
	// Defaults to a random name.
	Process string
	// Leading returns how long this process may act as the leader, zero if it may not. Nil means forever.
	Leading func() time.Duration
	// Ended reports whether an earlier process is known to have ended, so that its claims can be taken at once. May be nil.
	Ended func(process string) bool
	// ClaimDuration and ClaimRenewal are the duration and the renewal interval of the claim. Half of the duration after a
	// renewal began, nothing is written to the member any more. Defaults to 180s and 60s.
	ClaimDuration, ClaimRenewal time.Duration
	// Grace is how long a registration may be gone before its member is offboarded. Defaults to 60s.
	Grace time.Duration
	// PublishRetry is the initial delay before a failed write to the hub is retried. Defaults to 1s.
	PublishRetry time.Duration
}

// validate returns all problems, joined.
func (c *Config) validate() error {
	var problems []error
	if len(validation.IsDNS1123Label(c.HubID)) > 0 {
		problems = append(problems, fmt.Errorf("hub id %q is not a DNS label", c.HubID))
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
			if !name.Known() {
				problems = append(problems, fmt.Errorf("convention %q is not one of %v", name, registration.Conventions()))
			}
		}
	}
	return errors.Join(problems...)
}

// withDefaults returns c with defaults for its zero fields.
func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Health = c.Health.withDefaults()
	c.Limits = c.Limits.WithDefaults()
	c.SyncTimeout = cmp.Or(c.SyncTimeout, 5*time.Minute)
	c.CacheMemory = cmp.Or(c.CacheMemory, cacheMemory())
	c.InspectInterval = cmp.Or(c.InspectInterval, 30*time.Second)
	c.Slots = cmp.Or(c.Slots, 8)
	c.SlotTime = cmp.Or(c.SlotTime, 30*time.Second)
	c.ClaimDuration = cmp.Or(c.ClaimDuration, 180*time.Second)
	c.ClaimRenewal = cmp.Or(c.ClaimRenewal, 60*time.Second)
	c.Grace = cmp.Or(c.Grace, 60*time.Second)
	c.Process = cmp.Or(c.Process, string(uuid.NewUUID()))
	c.PublishRetry = cmp.Or(c.PublishRetry, time.Second)
	return c
}

// fieldIndex is an index that is added to the cache of every member.
type fieldIndex struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

// owner is the member that owns a cluster.
type owner struct {
	name multicluster.ClusterName
	// attempt is the attempt to connect that reserved the cluster; nil once the member is known to be this cluster.
	attempt *attemptInput
}

// Pool maintains the connections to all members. It is a multicluster.Provider and a Directory.
type Pool struct {
	cfg       Config
	log       logr.Logger
	mapper    apimeta.RESTMapper
	slots     chan struct{}
	publisher *publisher
	ledger    *ledger

	incarnations atomic.Uint64
	frozen       atomic.Pointer[freeze]

	// Set before the members run, and read-only from then on.
	hub           *hub
	aware         multicluster.Aware
	root          context.Context //nolint:containedctx // The lifetime of all members, which exceeds that of any request.
	instance      types.UID
	rules         *registration.Rules
	subscribers   []func(multicluster.ClusterName)
	wakeRegistrar func()

	mu      sync.RWMutex // Guards the fields below; never held while blocking.
	members map[multicluster.ClusterName]*member
	// owners maps each cluster to the member that owns it. Recorded members keep their cluster while they are away.
	owners  map[types.UID]owner
	indexes []fieldIndex
}

var (
	_ multicluster.Provider         = &Pool{}
	_ multicluster.ProviderRunnable = &Pool{}
	_ clusters.Directory            = &Pool{}
)

// New returns a Pool. SetupWithManager must be called before it is started.
func New(cfg Config) (*Pool, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("checking the configuration of the pool: %w", err)
	}
	p := &Pool{
		cfg:           cfg.withDefaults(),
		log:           logf.Log.WithName("clusters"),
		mapper:        kinds.NewMapper(),
		members:       map[multicluster.ClusterName]*member{},
		owners:        map[types.UID]owner{},
		instance:      types.UID(cfg.Instance),
		wakeRegistrar: func() {},
	}
	p.slots = make(chan struct{}, p.cfg.Slots)
	p.publisher = newPublisher(p)
	p.ledger = newLedger(p.cfg.CacheMemory)
	p.frozen.Store(&freeze{})
	return p, nil
}

// SetupWithManager connects the pool to the hub. Nothing is read until the manager starts the pool, which happens on
// the leader only.
func (p *Pool) SetupWithManager(mgr mcmanager.Manager) error {
	h, err := newHub(mgr.GetLocalManager())
	if err != nil {
		return fmt.Errorf("preparing the hub: %w", err)
	}
	p.hub = h
	p.rules = &registration.Rules{HubEndpoints: registration.HubEndpoints(h.config.Host, p.cfg.HubEndpoints), Policy: p.cfg.Policy}
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
	// No member may be written before the switch has been read.
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

// readInstance reads the UID that identifies this hub, unless it is configured.
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

// fieldIndexes returns the indexes registered by IndexField.
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
	return nil, &clusters.NotReadyError{Snapshot: m.snapshot()}
}

// Snapshot implements Directory.
func (p *Pool) Snapshot(name multicluster.ClusterName) (clusters.Snapshot, bool) {
	m := p.member(name)
	if m == nil {
		return clusters.Snapshot{}, false
	}
	return m.snapshot(), true
}

// Snapshots implements Directory.
func (p *Pool) Snapshots() []clusters.Snapshot {
	members := p.all()
	snapshots := make([]clusters.Snapshot, 0, len(members))
	for _, m := range members {
		snapshots = append(snapshots, m.snapshot())
	}
	return snapshots
}

// Subscribe implements Directory.
func (p *Pool) Subscribe(fn func(multicluster.ClusterName)) {
	p.subscribers = append(p.subscribers, fn)
}

// notify calls the subscribers.
func (p *Pool) notify(name multicluster.ClusterName) {
	for _, fn := range p.subscribers {
		fn(name)
	}
}

// member returns the member with the given name, or nil.
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

// add starts a member. The caller must ensure that there is none of that name.
func (p *Pool) add(m *member) {
	p.mu.Lock()
	p.members[m.name] = m
	p.mu.Unlock()
	metrics.Begin(p, m.name)
	go m.run(p.root)
	p.notify(m.name)
	p.publisher.enqueue(m.name)
}

// forget removes an offboarded member, but not another member of the same name.
func (p *Pool) forget(m *member) {
	p.mu.Lock()
	if p.members[m.name] == m {
		delete(p.members, m.name)
	}
	maps.DeleteFunc(p.owners, func(_ types.UID, o owner) bool { return o.name == m.name })
	p.mu.Unlock()
	metrics.Forget(string(m.name))
	p.notify(m.name)
	p.wakeRegistrar()
}

// reserveUID reserves a recorded cluster for its member at start.
func (p *Pool) reserveUID(uid types.UID, name multicluster.ClusterName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, taken := p.owners[uid]; uid != "" && !taken {
		p.owners[uid] = owner{name: name}
	}
}

// acquireUID assigns a cluster to a member unless another member owns it, and returns the owner. What an attempt acquires
// is reserved until keepUID, or until the attempt gives it up.
func (p *Pool) acquireUID(uid types.UID, name multicluster.ClusterName, by *attemptInput) (multicluster.ClusterName, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, taken := p.owners[uid]
	switch {
	case taken && before.name != name:
		return before.name, false
	case !taken || before.attempt != nil:
		p.owners[uid] = owner{name: name, attempt: by}
	}
	return name, true
}

// giveUpUIDs releases what an attempt has reserved, except the cluster that the member is now known to be; empty when
// that is not known.
func (p *Pool) giveUpUIDs(by *attemptInput, except types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.owners[except]; kept.attempt == by {
		p.owners[except] = owner{name: kept.name}
	}
	maps.DeleteFunc(p.owners, func(_ types.UID, o owner) bool { return o.attempt == by })
}

// keepUID releases all other clusters that a member owns.
func (p *Pool) keepUID(uid types.UID, name multicluster.ClusterName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.owners, func(other types.UID, o owner) bool { return o.name == name && other != uid })
	p.owners[uid] = owner{name: name}
}

// checker returns the preflight, which decides whether a member can be engaged. The attempt is nil for a member that is
// connected.
func (p *Pool) checker(by *attemptInput) preflight.Checker {
	return preflight.Checker{
		HubUID: p.instance, InstallCRDs: p.cfg.InstallCRDs,
		Acquire: func(uid types.UID, name multicluster.ClusterName) (multicluster.ClusterName, bool) {
			return p.acquireUID(uid, name, by)
		},
	}
}

// newMemberAPI returns live clients of a member that use a transport or a link.
func (p *Pool) newMemberAPI(name string, through http.RoundTripper) (*preflight.API, error) {
	return preflight.NewAPI(name, through, kinds.Scheme(), p.mapper)
}

// lifetime returns the parent context of everything that belongs to a member.
func (p *Pool) lifetime() context.Context { return p.root }

// newClaim returns a claim of this hub on a member.
func (p *Pool) newClaim() *preflight.Claim {
	return &preflight.Claim{
		HubID: p.cfg.HubID, Instance: string(p.instance), Process: p.cfg.Process, Duration: p.cfg.ClaimDuration, Clock: p.cfg.Clock,
		Ended: p.cfg.Ended,
	}
}

// permission returns the right to write that a hold of the claim gives, which began at that time. It ends well before
// others may consider the claim expired.
func (p *Pool) permission(began time.Time) clusters.Permission {
	return clusters.Permission{Began: began, Length: p.cfg.ClaimDuration / 2}
}

// recoverTo recovers from a panic and logs it. It must be deferred, in goroutines that nothing waits for. HandleCrash of
// apimachinery panics again unless that is turned off for the whole process, client-go included.
func recoverTo(log logr.Logger, message string) {
	if r := recover(); r != nil {
		log.Error(fmt.Errorf("panic: %v", r), message, "stack", string(debug.Stack()))
	}
}
