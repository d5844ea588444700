// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// takeOver is how long a manager may take until it writes in place of one that is gone: the hub's Lease and the claims
	// run out first.
	takeOver = 4*time.Minute + 30*time.Second
	// driftPace and changePace are how often something is deleted in each member, and changed on a hub.
	driftPace, changePace = 400 * time.Millisecond, 500 * time.Millisecond
)

// TestFence attacks the rule that at any time one process at most writes to a member: with managers that are stopped while
// others take over, with a hub that is restored beside itself, and with members that are restored. The audit logs of the
// members are the evidence. FENCE_ROUNDS says how often each attack is repeated.
func TestFence(t *testing.T) {
	f := newFence(t)
	t.Run("ManagerIsStopped", f.managerStopped)
	t.Run("MemberIsRestored", f.memberRestored)
	t.Run("HubIsRestoredBeside", f.hubRestoredBeside)
	t.Logf("All rounds:\n%s", f.table())
}

// fence is a fleet whose members tell the processes of managers apart, and the managers that compete for them.
type fence struct {
	*fleet
	rounds     int
	contenders map[int]*contender
	rows       []row
}

// contender is a manager that would write if it may.
type contender struct {
	*process
	name, hub, log string
}

// row is what a round has shown.
type row struct {
	attack     string
	round      int
	took, gap  time.Duration
	told, fits string
}

func newFence(t *testing.T) *fence {
	t.Helper()
	f := &fence{fleet: start(t, 3), rounds: 20, contenders: map[int]*contender{}}
	if set := os.Getenv("FENCE_ROUNDS"); set != "" {
		rounds, err := strconv.Atoi(set)
		if err != nil {
			t.Fatal(err)
		}
		f.rounds = rounds
	}
	membersJoin(t, f.fleet)
	placedAndAddedUp(t, f.fleet)
	f.stopManager(t)
	for _, name := range f.registered() {
		token := f.kubectl(t, name, "create", "token", "-n", "flotilla-system", "flotilla-hub", "--duration=24h")
		f.put(t, f.registrationWith(t, name, strings.TrimSpace(token), map[string]string{"region": f.regions()[name]}))
		f.lines[name].TellProcesses()
	}
	t.Cleanup(func() { f.killAll() })
	return f
}

// contend starts a manager for a hub.
func (f *fence) contend(t *testing.T, hub string) *contender {
	t.Helper()
	c := &contender{name: fmt.Sprint("manager ", len(f.contenders)+1), hub: hub}
	c.log = filepath.Join(f.dir, strings.ReplaceAll(c.name, " ", "-")+".log")
	// The drill removes more copies in ten minutes than a person would without a confirmation.
	c.process = f.runManagerInto(t, c.log, hub, hubID, "--removals-budget=1000", "--removals-share=100")
	f.contenders[c.pid()] = c
	return c
}

// name is what a process is called in reports.
func (f *fence) name(pid int) string {
	if c := f.contenders[pid]; c != nil {
		return c.name
	}
	return fmt.Sprintf("a stranger (pid %d)", pid)
}

// kill ends a manager without a warning.
func (c *contender) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

func (f *fence) killAll() {
	for _, c := range f.contenders {
		c.kill()
	}
}

// quit ends all managers as a rollout would, those that do not lead first.
func (f *fence) quit(t *testing.T, all ...*contender) {
	t.Helper()
	for _, c := range all {
		if c.running() {
			f.stop(t, c.process)
		}
	}
}

func (c *contender) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("sending %v to %s: %v", signal, c.name, err)
	}
}

// logged is how much a manager has logged.
func (c *contender) logged() int {
	info, err := os.Stat(c.log)
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// says reports whether a manager has logged a text since.
func (c *contender) says(text string, since int) bool {
	content, err := os.ReadFile(c.log)
	return err == nil && strings.Contains(string(content[min(since, len(content)):]), text)
}

// pair starts a manager and, once it writes, another one that stands by.
func (f *fence) pair(t *testing.T, hub string) (leader, standby *contender) {
	t.Helper()
	defer f.churn(t, "hub", f.hub)()
	noted := f.note(t)
	leader = f.contend(t, hub)
	f.awaitWrites(t, noted, leader, takeOver)
	return leader, f.standBy(t, hub)
}

// standBy starts a manager and waits until it asks for the Lease.
func (f *fence) standBy(t *testing.T, hub string) *contender {
	t.Helper()
	c := f.contend(t, hub)
	NewWithT(t).Eventually(func() bool { return c.says("ttempting to acquire leader lease", 0) }, 60*time.Second, 200*time.Millisecond).Should(BeTrue(), "%s stands by", c.name)
	return c
}

// churn has something to do for the manager of a hub in every member: Services are deleted there, and the pool is changed on
// the hub. Whether a change succeeds does not matter.
func (f *fence) churn(t *testing.T, name string, hub client.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	var working sync.WaitGroup
	repeat := func(pace time.Duration, act func(context.Context, int)) {
		working.Go(func() {
			ticker := time.NewTicker(pace)
			defer ticker.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
					act(ctx, i)
				}
			}
		})
	}
	for _, member := range f.registered() {
		repeat(driftPace, func(ctx context.Context, _ int) {
			_ = f.members[member].Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache-any"}})
		})
	}
	repeat(changePace, func(ctx context.Context, i int) {
		patch := fmt.Appendf(nil, `{"spec":{"labels":{"example.com/revision":"%s-%d"}}}`, name, i%1000)
		_ = hub.Patch(ctx, webPool(), client.RawPatch("application/merge-patch+json", patch))
	})
	stop = func() { cancel(); working.Wait() }
	t.Cleanup(stop)
	return stop
}

// wait lets some time pass.
func (f *fence) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.ctx.Done():
	}
}

// report notes what a round has shown, and fails the test if it was not right.
func (f *fence) report(t *testing.T, r row, problems []string) {
	t.Helper()
	r.fits = "ok"
	if len(problems) > 0 {
		r.fits = "FAILED"
		t.Errorf("%s, round %d: %s", r.attack, r.round, strings.Join(problems, "\n"))
	}
	f.rows = append(f.rows, r)
	t.Log(r)
}

// String implements fmt.Stringer.
func (r row) String() string {
	return fmt.Sprintf("%s\t%d\t%v\t%v\t%s\t%s", r.attack, r.round, r.took.Round(100*time.Millisecond), r.gap.Round(time.Millisecond), r.fits, r.told)
}

// table lists all rounds.
func (f *fence) table() string {
	out := &strings.Builder{}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "attack\tround\tuntil the next wrote everywhere, or all was right\tgap between writers\tresult\twhat happened")
	for _, r := range f.rows {
		_, _ = fmt.Fprintln(w, r)
	}
	_ = w.Flush()
	return out.String()
}

// claimed is the condition Claimed of the members as a hub shows it, by member.
func (f *fence) claimed(hub client.Client) map[string]string {
	list := &flotillav1.MemberClusterList{}
	_ = hub.List(f.ctx, list)
	told := map[string]string{}
	for _, mc := range list.Items {
		for _, c := range mc.Status.Conditions {
			if c.Type == flotillav1.ConditionClaimed {
				told[mc.Name] = fmt.Sprintf("%s %s", c.Status, c.Reason)
			}
		}
	}
	return told
}
