// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
)

// The timing of leader election; cmd/manager has the same.
const (
	modelLease  = 60 * time.Second
	modelLeads  = 54 * time.Second
	modelRetry  = 4 * time.Second
	modelRenews = time.Minute
)

// model is a member, two hubs with the same id, and the processes of each. Time passes while calls are under way, and
// everything else goes on meanwhile.
type model struct {
	random    *rand.Rand
	now       time.Duration
	lease     *coordinationv1.Lease
	version   int
	hubs      [2]modelHub
	processes []*modelProcess
	depth     int
	// setsBack is true if wall clocks are set back, and false if machines are suspended.
	setsBack bool
	// copies is true if the hubs were restored from one backup, and false if one was built anew. A member is not restored in
	// the time of two copies: its claim would look abandoned.
	copies bool
	// edited is until when somebody, or a tool, puts an old claim back from time to time.
	edited time.Duration
	// without is the layer that is taken away.
	without string
	// writers are two processes that could write at the same moment.
	writers string
	story   []string
}

// modelHub is the Lease of leader election of a hub.
type modelHub struct {
	holder  *modelProcess
	version int
	// ended is who released the Lease, while nobody has acquired it since.
	ended *modelProcess
}

// modelProcess is a manager with the real claim and the real permission.
type modelProcess struct {
	*model
	name string
	hub  *modelHub
	// wall and mono are how far its clocks are off. stopped is until when it does nothing; a suspended machine also stops
	// the monotonic clock. cut is until when it cannot reach its hub, mute until when the member does not answer it.
	wall, mono         time.Duration
	stopped, cut, mute time.Duration
	suspended          bool
	busy, over         bool

	claim      *preflight.Claim
	permission clusters.Permission
	leadsFrom  time.Time
	seen       int
	seenAt     time.Time
	due        time.Time
	failing    time.Time
	// before is the process that released the Lease to this one, if any.
	before *modelProcess
}

// modelStart is when every model begins.
const modelStart = int64(1_700_000_000)

// Now returns the time by the clocks of the process. Package time cannot make a time whose two clocks disagree.
func (p *modelProcess) Now() time.Time {
	const hasMonotonic, wallEpoch = 1 << 63, 59453308800 // Seconds from the year 1 to 1885.
	wall := time.Unix(modelStart, 0).Add(p.now + p.wall)
	switch p.without {
	case "the monotonic clock":
		return wall
	case "the wall clock":
		wall = time.Unix(modelStart, 0).Add(p.now + p.mono)
	}
	seconds := uint64(wall.Unix() + 62135596800 - wallEpoch)
	t := struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}{hasMonotonic | seconds<<30 | uint64(wall.Nanosecond()), int64(p.now + p.mono), nil}
	return *(*time.Time)(unsafe.Pointer(&t))
}

// Since implements clock.PassiveClock.
func (p *modelProcess) Since(t time.Time) time.Duration { return p.Now().Sub(t) }

// runs reports whether the process does anything now.
func (p *modelProcess) runs() bool { return !p.over && p.now >= p.stopped }

// leads returns for how long the process may act as the leader, as cmd/manager does.
func (p *modelProcess) leads() time.Duration {
	if p.without == "leadership" && !p.leadsFrom.IsZero() {
		return math.MaxInt64
	}
	if p.leadsFrom.IsZero() {
		return 0
	}
	return clusters.Permission{Began: p.leadsFrom, Length: modelLeads}.Left(p.Now())
}

// writes reports whether a write of the process would reach the member now.
func (p *modelProcess) writes() bool {
	return p.runs() && p.now >= p.mute && p.leads() > 0 && p.permission.Left(p.Now()) > 0
}

// elect has the process renew or acquire the Lease of its hub, as client-go does.
func (p *modelProcess) elect() {
	began := p.Now()
	if p.now < p.cut {
		if p.failing.IsZero() {
			p.failing = began
		}
		// The elector goes by the monotonic clock alone.
		if p.hub.holder == p && began.Sub(p.failing) > modelLeads-modelRetry {
			p.over = true
		}
		return
	}
	p.failing = time.Time{}
	if p.seen != p.hub.version {
		p.seen, p.seenAt = p.hub.version, began
	}
	switch {
	case p.hub.holder == p, p.hub.holder == nil, began.Sub(p.seenAt) >= modelLease:
		if p.hub.holder != p {
			p.before = p.hub.ended
		}
		p.hub.holder, p.hub.ended = p, nil
		p.hub.version++
		p.seen, p.seenAt = p.hub.version, began
		p.delay()
		if p.runs() && p.hub.holder == p {
			p.leadsFrom = began
		}
	case !p.leadsFrom.IsZero():
		p.over = true
	}
}

// hold holds the claim, and has the process write from then on.
func (p *modelProcess) hold() {
	granted, err := p.claim.Hold(context.Background(), modelClient{model: p.model, by: p}, preflight.HoldOptions{Member: "the member"})
	p.due = p.Now().Add(10 * time.Second)
	if err != nil || !p.runs() {
		return
	}
	length := p.claim.Duration / 2
	if p.without == "expiry" {
		length = math.MaxInt64
	}
	p.permission, p.due = clusters.Permission{Began: granted.Began, Length: length}, p.Now().Add(modelRenews)
	p.story = append(p.story, fmt.Sprintf("%v: %s holds the claim", p.now, p.name))
}

// step has the process do what is due.
func (p *modelProcess) step() {
	if !p.runs() || p.busy {
		return
	}
	p.busy = true
	defer func() { p.busy = false }()
	p.elect()
	if p.runs() && p.leads() > 0 && !p.Now().Before(p.due) {
		p.hold()
	}
}

// delay lets time pass, in which others go on.
func (m *model) delay() {
	m.depth++
	defer func() { m.depth-- }()
	m.pass(time.Duration(m.random.Int64N(int64(12 * time.Second))))
}

// pass lets time pass in small steps.
func (m *model) pass(d time.Duration) {
	for end := m.now + d; m.now < end; {
		step := min(end-m.now, time.Duration(m.random.Int64N(int64(5*time.Second)))+1)
		m.now += step
		m.edit()
		for _, p := range m.processes {
			if p.suspended && m.now-step < p.stopped {
				p.mono -= min(step, p.stopped-(m.now-step))
			}
		}
		m.check()
		if m.depth < 3 {
			m.processes[m.random.IntN(len(m.processes))].step()
			m.check()
		}
	}
}

// edit puts an old claim back while the time for that has come.
func (m *model) edit() {
	if m.now < m.edited && m.lease != nil && m.random.IntN(10) == 0 {
		m.version++
		m.lease.ResourceVersion = strconv.Itoa(m.version)
		m.lease.Spec.RenewTime.Time = m.lease.Spec.RenewTime.Add(-time.Hour)
	}
}

// check looks for two writers.
func (m *model) check() {
	var writer *modelProcess
	for _, p := range m.processes {
		switch {
		case !p.writes():
		case writer != nil && m.writers == "":
			m.writers = fmt.Sprintf("after %v, %s and %s", m.now, writer.name, p.name)
		default:
			writer = p
		}
	}
}

// disturb has something go wrong.
func (m *model) disturb() {
	p := m.processes[m.random.IntN(len(m.processes))]
	lasts := m.now + time.Duration(m.random.Int64N(int64(6*time.Minute)))
	what := ""
	switch m.random.IntN(7) {
	case 0:
		p.stopped, p.suspended, what = lasts, false, "is stopped"
	case 1:
		// No process can know when its machine was suspended and set back at once.
		if m.setsBack {
			p.wall -= time.Duration(m.random.Int64N(int64(10 * time.Minute)))
			what = "has its wall clock set back"
		} else {
			p.stopped, p.suspended, what = lasts, true, "is suspended"
		}
	case 2:
		p.cut, what = lasts, "cannot reach its hub"
	case 3:
		p.mute, what = lasts, "cannot reach the member"
	case 4:
		p.wall += time.Duration(m.random.Int64N(int64(10 * time.Minute)))
		what = "has its wall clock set forward"
	case 5:
		if !m.copies {
			m.edited, what = lasts, "sees the claim edited again and again"
		}
	case 6:
		p.end()
		what = "ends"
	}
	m.story = append(m.story, fmt.Sprintf("%v: %s %s for %v", m.now, p.name, what, lasts-m.now))
}

// end has the process end, cleanly if it can, and another one start.
func (p *modelProcess) end() {
	if p.over {
		return
	}
	if p.runs() && p.now >= p.cut && p.hub.holder == p {
		p.hub.holder, p.hub.ended = nil, p
		p.hub.version++
	}
	p.over = true
	p.start(p.hub)
}

// start adds a process of a hub.
func (m *model) start(hub *modelHub) {
	p := &modelProcess{model: m, name: fmt.Sprintf("process %d", len(m.processes)), hub: hub}
	p.wall = time.Duration(m.random.Int64N(int64(10*time.Minute))) - 5*time.Minute
	instance := "first"
	if hub == &m.hubs[1] && !m.copies {
		instance = "second"
	}
	p.claim = &preflight.Claim{
		HubID: "hub", Instance: instance, Process: p.name, Duration: 3 * time.Minute, Clock: p,
		Ended: func(name string) bool {
			return p.before != nil && p.before.name == name || m.without == "the age of the claim"
		},
	}
	m.processes = append(m.processes, p)
}

// modelClient is how a process reaches the Lease in the member.
type modelClient struct {
	client.Client
	*model

	by *modelProcess
}

var (
	errModelMute = errors.New("no answer")
	modelLeases  = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

// call lets a request reach the member, and its answer the process; either may be late or lost.
func (c modelClient) call(serve func() error) error {
	c.delay()
	if !c.by.runs() || c.now < c.by.mute {
		return errModelMute
	}
	err := serve()
	c.delay()
	if c.random.IntN(10) == 0 {
		return errModelMute
	}
	return err
}

func (c modelClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return c.call(func() error {
		preflight.NoteDate(ctx, time.Unix(modelStart, 0).Add(c.now).Truncate(time.Second))
		if c.lease == nil {
			return apierrors.NewNotFound(modelLeases, key.Name)
		}
		c.lease.DeepCopyInto(object.(*coordinationv1.Lease))
		return nil
	})
}

func (c modelClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return c.call(func() error {
		if c.lease != nil {
			return apierrors.NewAlreadyExists(modelLeases, object.GetName())
		}
		return c.store(object)
	})
}

func (c modelClient) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return c.call(func() error {
		if object.GetResourceVersion() != c.lease.ResourceVersion && c.without != "the resourceVersion" {
			return apierrors.NewConflict(modelLeases, object.GetName(), errModelMute)
		}
		return c.store(object)
	})
}

func (c modelClient) store(object client.Object) error {
	c.version++
	c.lease = object.(*coordinationv1.Lease).DeepCopy()
	c.lease.ResourceVersion = strconv.Itoa(c.version)
	return nil
}

// run plays a schedule for half an hour or so.
func (m *model) run(seed uint64) {
	m.random, m.setsBack, m.copies = rand.New(rand.NewPCG(seed, 7)), seed%2 == 1, seed%4 >= 2
	for i := range 4 {
		m.start(&m.hubs[i%2])
	}
	for range 12 {
		m.pass(time.Duration(m.random.Int64N(int64(4 * time.Minute))))
		m.disturb()
	}
	m.pass(4 * time.Minute)
}

// modelSchedules is how many schedules are played. The drill plays more.
var modelSchedules = uint64(2_000)

func TestPermission_never_lets_two_processes_write(t *testing.T) {
	t.Parallel()
	var held uint64
	for seed := range modelSchedules {
		m := &model{}
		m.run(seed)
		if m.writers != "" {
			t.Fatalf("seed %d: %s could write at the same moment:\n%s", seed, m.writers, strings.Join(m.story, "\n"))
		}
		held += uint64(m.version)
	}
	if held < modelSchedules*10 {
		t.Errorf("the claim was written %d times; the schedules show little", held)
	}
}

func TestPermission_needs_each_of_its_layers(t *testing.T) {
	t.Parallel()
	for _, layer := range []string{"leadership", "expiry", "the age of the claim", "the wall clock", "the monotonic clock", "the resourceVersion"} {
		found := false
		for seed := uint64(0); seed < modelSchedules && !found; seed++ {
			m := &model{without: layer}
			m.run(seed)
			found = m.writers != ""
		}
		if !found {
			t.Errorf("without %s no two processes can write either", layer)
		}
	}
}
