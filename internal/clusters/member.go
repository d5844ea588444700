// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// panicPause is how long a member rests after a panic.
const panicPause = 5 * time.Second

// member is one actor: a goroutine that alone decides what state the member is in. It never does I/O itself; jobs do,
// on goroutines of their own, and hand back what to do with the outcome.
type member struct {
	pool *Pool
	name multicluster.ClusterName
	log  logr.Logger

	// changed says that wanted or leaving changed; kicks that a probe is asked for. Both hold one signal.
	changed, kicks chan struct{}
	// outcomes are what jobs hand back.
	outcomes chan func()
	// done is closed when the actor has ended.
	done chan struct{}

	mu        sync.Mutex // Guards the fields below; nothing waits while holding it.
	wanted    registration
	leaving   bool
	published publication
	engaged   *memberCluster
	events    []hubEvent

	// The rest belongs to the actor's goroutine.

	// current is the registration that was looked at last.
	current registration
	// credential is the last one that was accepted; proven says that the member accepted it too.
	credential *credential
	proven     bool
	expiry     expiry
	// rejected is why the content of the registration is not in use while an earlier credential is.
	rejected *verdict
	recorded recordedState
	// thawed says that the last news about the freeze switch was that it does not hold the member.
	thawed   bool
	session  *session
	attempt  *attempt
	rotation *rotation
	health   health
	retries  retries
	retryAt  time.Time
	// probing, renewing, checking, sweeping and inspecting say that such a job runs; renewAt is when the claim is renewed
	// next, sweepAt when silent watches are looked for, inspectAt when changes of the definitions are.
	probing, renewing, checking, sweeping, inspecting bool
	renewAt, checkAt, sweepAt, inspectAt              time.Time
	noWatchList                                       bool
	// recheckAt is when it may be asked again what the member serves and allows.
	recheckAt time.Time
	restores  restores
	// noticed says that a definition has changed and is to be read.
	noticed bool
	// offboarding says that the member leaves; over that it has left.
	offboarding, over bool
	// rest is how long the actor pauses before it goes on after a panic.
	rest time.Duration
}

// attempt is a try to connect.
type attempt struct {
	input  *attemptInput
	cancel context.CancelFunc
}

// newMember makes a member that does nothing before it runs. recorded is what an earlier process published, or nil.
func newMember(p *Pool, wanted registration, recorded *flotillav1.MemberCluster) *member {
	m := &member{
		pool: p, name: wanted.clusterName, log: p.log.WithValues("cluster", string(wanted.clusterName)),
		changed: make(chan struct{}, 1), kicks: make(chan struct{}, 1),
		outcomes: make(chan func()), done: make(chan struct{}),
		wanted: wanted, recorded: readRecorded(recorded), health: health{policy: p.cfg.Health},
	}
	m.published = publication{
		secret:   wanted.secret,
		verdicts: map[string]verdict{},
		snapshot: Snapshot{
			Name: m.name, State: StatePending, Since: p.cfg.Clock.Now(), UID: m.recorded.uid, Accepted: m.recorded.accepted,
			Labels: wanted.labels, Paused: wanted.paused, Draining: wanted.drain, Kinds: wanted.kinds,
			Frozen: p.frozen.Load().covers(wanted.labels), Namespaces: p.tenants(wanted.namespaces),
		},
	}
	m.thawed = !m.recorded.frozen
	m.changed <- struct{}{}
	return m
}

// want hands over what the registration asks for now. It does not block.
func (m *member) want(wanted registration) {
	m.mu.Lock()
	same := m.leaving || reflect.DeepEqual(withoutContent(m.wanted), withoutContent(wanted))
	if !same {
		m.wanted = wanted
	}
	m.mu.Unlock()
	if !same {
		signal(m.changed)
	}
}

// withoutContent leaves out what cannot be compared; the digest stands for it.
func withoutContent(r registration) registration {
	r.kubeconfig, r.parse, r.refused = sealed{}, nil, nil
	return r
}

// leave has the member offboarded. There is no way back: a registration that returns makes a new member.
func (m *member) leave() {
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	signal(m.changed)
}

// holder is the Secret that holds the name.
func (m *member) holder() secretRef {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted.secret
}

// snapshot is what is known now.
func (m *member) snapshot() Snapshot { return m.publication().snapshot }

// publication is what is to be published now.
func (m *member) publication() publication {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.published
}

// cluster is the engaged cluster, or nil.
func (m *member) cluster() cluster.Cluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engaged == nil {
		return nil
	}
	return m.engaged
}

// cachedObjects is how many objects are cached of the member; false when it is not engaged.
func (m *member) cachedObjects() (objects int, engaged bool) {
	m.mu.Lock()
	c := m.engaged
	m.mu.Unlock()
	if c == nil {
		return 0, false
	}
	return c.cached.stored(), true
}

// takeEvents returns the events that have not been told.
func (m *member) takeEvents() []hubEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}

// signal sets a signal that holds one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// run is the actor's life. A panic costs the member its connection and a rest, and nobody else anything.
func (m *member) run(ctx context.Context) {
	defer close(m.done)
	for !m.live(ctx) {
	}
}

// live handles one thing after the other until the member's life is over, or until a panic, which returns false.
func (m *member) live(ctx context.Context) (over bool) {
	defer func() {
		if r := recover(); r != nil {
			m.log.Error(fmt.Errorf("panic: %v", r), "Member panicked", "stack", string(debug.Stack()))
			m.reset()
		}
	}()
	timer := m.pool.cfg.Clock.NewTimer(m.rest)
	defer timer.Stop()
	if m.rest > 0 {
		select {
		case <-ctx.Done():
			return true
		case <-timer.C():
			m.rest = 0
		}
	}
	for {
		m.arm(timer)
		select {
		case <-ctx.Done():
			m.disconnect()
			return true
		case <-m.changed:
			m.onRegistration(ctx)
		case <-m.kicks:
			m.health.asked = true
		case outcome := <-m.outcomes:
			outcome()
		case <-timer.C():
		}
		m.act(ctx)
		if m.over {
			return true
		}
	}
}

// reset forgets everything that a panic may have left half done.
func (m *member) reset() {
	m.disconnect()
	m.probing, m.renewing, m.checking, m.sweeping, m.inspecting, m.offboarding = false, false, false, false, false, false
	m.health = health{policy: m.pool.cfg.Health}
	m.current = registration{}
	m.rest = panicPause
	m.setState(StateUnreachable, flotillav1.ReasonProbeFailed, "The manager failed while it worked with the member; see its log")
	signal(m.changed)
}

// disconnect ends the attempt and the session, if any.
func (m *member) disconnect() {
	m.rotation = nil
	if m.attempt != nil {
		m.attempt.cancel()
		m.attempt = nil
	}
	if m.session == nil {
		return
	}
	m.session.close()
	m.session = nil
	m.mu.Lock()
	m.engaged = nil
	m.mu.Unlock()
}

// spawn runs a job, and what it returns on the actor's goroutine. A panic of the job becomes one of the actor.
func (m *member) spawn(job func() func()) {
	go func() { m.hand(guarded(job)) }()
}

// hand has something run on the actor's goroutine. It returns when the actor has taken it.
func (m *member) hand(outcome func()) {
	select {
	case m.outcomes <- outcome:
	case <-m.done:
	}
}

// guarded runs a job and turns a panic into an outcome that panics again.
func guarded(job func() func()) (outcome func()) {
	defer func() {
		if r := recover(); r != nil {
			stack := debug.Stack()
			outcome = func() { panic(fmt.Sprintf("%v\n%s", r, stack)) }
		}
	}()
	return job()
}

// arm sets the timer to the next thing that is due.
func (m *member) arm(timer clock.Timer) {
	now := m.pool.cfg.Clock.Now()
	next := now.Add(time.Hour)
	for _, t := range m.tasks() {
		if t.at.Before(next) {
			next = t.at
		}
	}
	if !timer.Stop() {
		select {
		case <-timer.C():
		default:
		}
	}
	timer.Reset(max(next.Sub(now), 0))
}

// task is something that the member does at its time.
type task struct {
	at    time.Time
	start func(context.Context)
}

// tasks lists what is to be done and does not run yet.
func (m *member) tasks() []task {
	if m.offboarding || m.over {
		return nil
	}
	tasks := m.expiryTasks()
	switch {
	case m.session == nil && (m.attempt != nil || m.retryAt.IsZero()):
		return tasks
	case m.session == nil:
		return append(tasks, task{m.retryAt, m.connect})
	}
	if !m.probing {
		tasks = append(tasks, task{m.health.due(m.session.transport.traffic()), m.probe})
	}
	writable := m.health.away == "" && !m.current.paused
	// A freeze does not keep the claim from being renewed: whoever finds it expired would take the hub for gone.
	if writable && m.session.claimed && !m.renewing {
		tasks = append(tasks, task{m.renewAt, m.renew})
	}
	if writable && m.thawed && !m.session.claimed && !m.checking {
		tasks = append(tasks, task{m.checkAt, m.unpause})
	}
	if !m.sweeping {
		tasks = append(tasks, task{m.sweepAt, m.sweep})
	}
	if m.health.away == "" && !m.inspecting {
		tasks = append(tasks, task{m.inspectAt, m.inspect})
	}
	if m.rotation != nil && !m.rotation.running {
		tasks = append(tasks, task{m.rotation.at, m.rotate})
	}
	return tasks
}

// act starts what is due.
func (m *member) act(ctx context.Context) {
	now := m.pool.cfg.Clock.Now()
	for _, t := range m.tasks() {
		if !now.Before(t.at) {
			t.start(ctx)
		}
	}
}
