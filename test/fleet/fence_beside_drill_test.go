// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// twin is the second hub, which is restored from a snapshot of the first.
	twin = "hub-2"
	// rivalry is how long two managers compete in a round. Claims are renewed every minute, and one that asks for a claim
	// that is being renewed shows after 95 s at the latest that it is superseded.
	rivalry = 105 * time.Second
	// succession is in how many rounds the manager that writes is killed for good once.
	succession = 4
)

// hubRestoredBeside starts a second hub from a snapshot of the first one, which runs on with its manager. Managers of the
// other hub start, again and again: of two, one may write. In every fourth round, and in the last, it is killed and the
// other takes over.
func (f *fence) hubRestoredBeside(t *testing.T) {
	noted := f.note(t)
	incumbent := f.contend(t, "hub")
	defer f.churn(t, "hub", f.hub)()
	f.awaitWrites(t, noted, incumbent, takeOver)
	hubs := map[string]client.Client{"hub": f.hub, twin: f.startTwin(t)}
	other := map[string]string{"hub": twin, twin: "hub"}
	defer f.churn(t, twin, hubs[twin])()
	for i := range f.rounds {
		f.dropLease(t, hubs[other[incumbent.hub]])
		succeeds := (i+1)%succession == 0 || i == f.rounds-1
		incumbent = f.besideRound(t, i+1, incumbent, hubs[other[incumbent.hub]], other[incumbent.hub], succeeds)
	}
	f.quit(t, incumbent)
}

// besideRound has a manager of the other hub compete with the incumbent, and returns the one that goes on.
func (f *fence) besideRound(t *testing.T, round int, incumbent *contender, hub client.Client, name string, succeeds bool) *contender {
	t.Helper()
	writing := f.note(t)
	f.awaitWrites(t, writing, incumbent, time.Minute)
	challenger := f.contend(t, name)
	f.wait(rivalry)
	competed := f.show(t, writing)
	problems, told := competed.problems, f.claimed(hub)
	winner, loser := incumbent, challenger
	if f.wroteLastEverywhere(competed, challenger) {
		winner, loser = challenger, incumbent
	} else if len(writing.firstOf(t, challenger)) == 0 {
		for _, member := range f.registered() {
			if told[member] != "False Superseded" {
				problems = append(problems, fmt.Sprintf("%s does not write to %s, but Claimed is %q there", challenger.name, member, told[member]))
			}
		}
	}
	r := row{attack: "hub beside", round: round, gap: competed.gap, told: fmt.Sprintf("%s of %s challenges %s of %s: %s writes; the challenger's hub shows %v; %v",
		challenger.name, challenger.hub, incumbent.name, incumbent.hub, winner.name, told, competed)}
	if !f.isUndisturbed(t, winner) {
		problems = append(problems, winner.name+" does not write to every member any more")
	}
	if succeeds && winner == incumbent {
		killed := time.Now()
		incumbent.kill()
		everywhere := f.awaitWrites(t, writing, challenger, takeOver)
		f.awaitWrites(t, f.note(t), challenger, time.Minute)
		succeeded := f.show(t, writing)
		r.took, r.gap, r.told = everywhere.Sub(killed), succeeded.gap, r.told+"; killed, "+challenger.name+" takes over"
		f.report(t, r, append(problems, succeeded.problems...))
		return challenger
	}
	f.report(t, r, problems)
	loser.kill()
	if len(problems) > 0 {
		// What was divided belongs to the winner before the next round.
		f.awaitWrites(t, f.note(t), winner, takeOver)
	}
	return winner
}

// dropLease has the next manager of a hub lead at once. Unlike freeLease, it does not say that the one before has ended.
func (f *fence) dropLease(t *testing.T, hub client.Client) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "flotilla-manager"}}
	if err := client.IgnoreNotFound(hub.Delete(f.ctx, lease)); err != nil {
		t.Fatal(err)
	}
}

// wroteLastEverywhere reports whether a manager was the last one to write to each member.
func (f *fence) wroteLastEverywhere(s shown, c *contender) bool {
	for _, name := range f.registered() {
		if s.last[name] != c.pid() {
			return false
		}
	}
	return true
}

// isUndisturbed reports whether a manager runs and writes to every member within a few seconds.
func (f *fence) isUndisturbed(t *testing.T, c *contender) bool {
	t.Helper()
	now := f.note(t)
	for deadline := time.Now().Add(loadPatience()); time.Now().Before(deadline); f.wait(200 * time.Millisecond) {
		if len(now.firstOf(t, c)) == f.count {
			return c.running()
		}
	}
	return false
}

// startTwin starts etcd and an API server with everything that the hub holds now, beside it: the same certificates and
// keys, the same objects with the same UIDs, other ports.
func (f *fence) startTwin(t *testing.T) client.Client {
	t.Helper()
	g, from, to := NewWithT(t), f.clusterDir("hub"), f.clusterDir(twin)
	f.command(t, "rm", "-rf", to)
	for _, folder := range []string{"pids", "logs"} {
		g.Expect(os.MkdirAll(filepath.Join(to, folder), 0o700)).To(Succeed())
	}
	f.command(t, "cp", "-a", f.snapshot(t, "hub"), filepath.Join(to, "etcd"))
	f.command(t, "cp", "-a", filepath.Join(from, "pki"), filepath.Join(from, "audit.yaml"), to)
	server, err := url.Parse(f.configs["hub"].Host)
	g.Expect(err).NotTo(HaveOccurred())
	first, err := strconv.Atoi(server.Port())
	g.Expect(err).NotTo(HaveOccurred())
	// Of the six ports of a cluster the API server's is the third. Those behind the last cluster are free.
	first -= 2
	var pairs []string
	for i := range 3 {
		pairs = append(pairs, fmt.Sprint("127.0.0.1:", first+i), fmt.Sprint("127.0.0.1:", first+6*(f.count+2)+i))
		pairs = append(pairs, fmt.Sprint("secure-port=", first+i), fmt.Sprint("secure-port=", first+6*(f.count+2)+i))
	}
	moved := strings.NewReplacer(append(pairs, from+"/", to+"/")...)
	for _, component := range []string{"etcd", apiServer} {
		started := f.commandOf(t, "hub", component)
		for i := range started.args {
			started.args[i] = moved.Replace(started.args[i])
		}
		f.launch(t, twin, component, started)
		t.Cleanup(func() { f.signal(t, twin, component, syscall.SIGKILL) })
		if component == "etcd" {
			f.awaitEtcd(t, twin)
		}
	}
	kubeconfig, err := os.ReadFile(filepath.Join(f.dir, "kubeconfigs", "hub"))
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig = bytes.ReplaceAll(kubeconfig, []byte(server.Host), []byte(moved.Replace(server.Host)))
	g.Expect(os.WriteFile(filepath.Join(f.dir, "kubeconfigs", twin), kubeconfig, 0o600)).To(Succeed())
	var hub client.Client
	hub, f.configs[twin] = f.connect(t, twin)
	f.awaitReady(t, twin)
	f.writeKubeconfig(t, twin)
	return hub
}
