// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// smallHub is an API server with a twentieth of the default concurrency.
var smallHub = []string{"--max-requests-inflight=20", "--max-mutating-requests-inflight=10"}

const (
	// burst is how many objects are placed at once, and calm how long administrators are watched before.
	burst = 200
	calm  = 20 * time.Second
	// administratorPace is how often an administrator makes three requests.
	administratorPace = 100 * time.Millisecond
)

// TestFairnessDrill has administrators work on a small hub while many objects are placed. The manager has no limit of its own
// by default; that it starves nobody is left to API Priority and Fairness.
func TestFairnessDrill(t *testing.T) {
	runScenarios(t, start(t, 4), []scenario{
		{"MembersJoin", membersJoin},
		{"AdministratorsAreServedDuringABurst", servedDuringBurst},
	})
}

func servedDuringBurst(t *testing.T, f *fleet) {
	g := NewWithT(t)
	f.stopManager(t)
	// Without the race detector, which would hold it back.
	f.command(t, "go", "build", "-o", filepath.Join(f.dir, "manager"), "./cmd/manager")
	f.end(t, "hub", apiServer)(t, smallHub...)
	f.awaitReady(t, "hub")
	f.startManager(t)
	membersJoin(t, f)
	administrators := f.administrators(t)
	before := f.serve(administrators, func() { <-time.After(calm) })

	asked, shared := f.audit(t, "hub"), f.flowControl(t)
	began := time.Now()
	during := f.serve(administrators, func() {
		for i := range burst {
			g.Expect(f.hub.Create(f.ctx, burstPool(i))).To(Succeed())
		}
		g.Eventually(func() int { return f.unplaced(g) }, 5*time.Minute, time.Second).Should(BeZero(), "the burst ends")
	})
	took, refused := time.Since(began).Round(time.Second), 0
	requests := asked.read(t)
	for _, r := range requests {
		if r.ResponseStatus.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	t.Logf("%d objects are in %d members after %v; of %d requests of the manager %d were answered with 429", burst, f.count, took, len(requests), refused)
	now := f.flowControl(t)
	for _, counter := range slices.Sorted(maps.Keys(now)) {
		if n := now[counter] - shared[counter]; n > 0 {
			t.Logf("%s: %.4g", counter, n)
		}
	}
	for who, served := range during {
		t.Logf("%s: %v before, %v during", who, before[who], served)
		if served.failed > 0 || served.refused > 0 {
			t.Errorf("%s: %d requests failed, %d were answered with 429", who, served.failed, served.refused)
		}
		if most := reactionTime(); served.p99 > most {
			t.Errorf("%s: p99 is %v, want at most %v", who, served.p99, most)
		}
	}
}

func burstPool(i int) *flotillav1.NodePool {
	name := fmt.Sprintf("burst-%03d", i)
	return &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flotillav1.NodePoolSpec{
		Placement:    &flotillav1.Placement{All: true},
		NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/burst": flotillav1.LabelValue(name)}},
	}}
}

// unplaced counts the objects of the burst of which the hub does not know that they are everywhere.
func (f *fleet) unplaced(g Gomega) int {
	pools := &flotillav1.NodePoolList{}
	g.Expect(f.hub.List(f.ctx, pools)).To(Succeed())
	left := burst
	for _, pool := range pools.Items {
		counts := pool.Status.ClusterCounts
		if strings.HasPrefix(pool.Name, "burst-") && counts != nil && *counts == f.allReady() {
			left--
		}
	}
	return left
}

// administrator works on the hub as people and their tools do.
type administrator struct {
	client  client.Client
	refused atomic.Int64
}

// service is how the hub has served an administrator.
type service struct {
	requests, failed, refused int
	p50, p99                  time.Duration
}

// String implements fmt.Stringer.
func (s service) String() string {
	return fmt.Sprintf("p50 %v, p99 %v of %d requests (%d failed, %d times 429)",
		s.p50.Round(time.Millisecond), s.p99.Round(time.Millisecond), s.requests, s.failed, s.refused)
}

// administrators are a person and a ServiceAccount with all rights. Neither is in system:masters, which is exempt from all
// limits; the ServiceAccount shares its priority level with the manager.
func (f *fleet) administrators(t *testing.T) map[string]*administrator {
	t.Helper()
	all := map[string]*administrator{}
	for who, as := range map[string]rest.ImpersonationConfig{
		"a person": {UserName: "jane", Groups: []string{"system:authenticated"}},
		"a ServiceAccount": {
			UserName: "system:serviceaccount:default:deployer",
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
		},
	} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(as.UserName, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: as.UserName}},
		}
		if err := client.IgnoreAlreadyExists(f.hub.Create(f.ctx, binding)); err != nil {
			t.Fatal(err)
		}
		a, config := &administrator{}, rest.CopyConfig(f.configs["hub"])
		config.QPS, config.Impersonate = -1, as
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counting{rt, &a.refused} })
		var err error
		if a.client, err = client.New(config, client.Options{Scheme: testenv.Scheme()}); err != nil {
			t.Fatal(err)
		}
		all[who] = a
	}
	return all
}

// counting counts answers with 429, which clients do not show when they try again.
type counting struct {
	http.RoundTripper
	refused *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusTooManyRequests {
		c.refused.Add(1)
	}
	return response, err
}

// serve has the administrators work while something is done, and returns how they were served.
func (f *fleet) serve(administrators map[string]*administrator, while func()) map[string]service {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var mu sync.Mutex
	var working sync.WaitGroup
	served := map[string]service{}
	for who, a := range administrators {
		working.Go(func() {
			s := a.work(f.ctx, ctx.Done())
			mu.Lock()
			defer mu.Unlock()
			served[who] = s
		})
	}
	while()
	cancel()
	working.Wait()
	return served
}

// work makes three requests at every tick.
func (a *administrator) work(ctx context.Context, done <-chan struct{}) service {
	pace := time.NewTicker(administratorPace)
	defer pace.Stop()
	var took []time.Duration
	s := service{refused: -int(a.refused.Load())}
	acts := []func() error{
		func() error { return a.client.Get(ctx, client.ObjectKey{Name: "default"}, &corev1.Namespace{}) },
		func() error { return a.client.List(ctx, &flotillav1.NodePoolList{}) },
		func() error {
			return a.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "administrator-"}})
		},
	}
	for {
		select {
		case <-done:
			slices.Sort(took)
			s.requests, s.refused = len(took), s.refused+int(a.refused.Load())
			s.p50, s.p99 = took[len(took)/2], took[len(took)*99/100]
			return s
		case <-pace.C:
		}
		for _, act := range acts {
			began := time.Now()
			if act() != nil {
				s.failed++
			}
			took = append(took, time.Since(began))
		}
	}
}

var flowCounter = regexp.MustCompile(`(?m)^apiserver_flowcontrol_(dispatched_requests_total|rejected_requests_total|request_wait_duration_seconds_sum)` +
	`\{(?:execute="true",)?flow_schema="([^"]+)",priority_level="([^"]+)"[^}]*\} (\S+)$`)

// flowControl reads what the hub has dispatched and rejected so far, and for how long it had requests wait, by flow schema and
// priority level.
func (f *fleet) flowControl(t *testing.T) map[string]float64 {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(f.configs["hub"])
	if err != nil {
		t.Fatal(err)
	}
	content, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	counters := map[string]float64{}
	for _, match := range flowCounter.FindAllStringSubmatch(string(content), -1) {
		n, err := strconv.ParseFloat(match[4], 64)
		if err != nil {
			t.Fatal(err)
		}
		counters[fmt.Sprintf("%s of %s (%s)", match[1], match[2], match[3])] += n
	}
	return counters
}
