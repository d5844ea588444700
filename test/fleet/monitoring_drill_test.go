// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestMonitoringDrill has a Prometheus scrape the manager, and breaks what alerts are about, one thing after the other.
// They fire, go on, and end when it is mended; no other alert fires.
func TestMonitoringDrill(t *testing.T) {
	f := start(t, 2)
	m := &monitoring{address: testenv.FreeAddress(t)}
	// The suite's own tokens last for an hour, which there is an alert about.
	for _, name := range f.registered() {
		m.giveToken(t, f, name, "720h")
	}
	f.stopManager(t)
	f.manager = f.runManager(t, "hub", hubID, "--metrics-bind-address="+m.address)
	for _, name := range []string{"prometheus", "stranger"} {
		f.kubectl(t, "hub", "create", "serviceaccount", "-n", "default", name)
	}
	f.kubectl(t, "hub", "create", "clusterrolebinding", "prometheus-reads-flotilla", "--clusterrole=flotilla-metrics-reader", "--serviceaccount=default:prometheus")
	m.prometheus = f.startPrometheus(t, m.address, m.token(t, f, "prometheus"))
	runScenarios(t, f, []scenario{
		{"MembersJoin", membersJoin},
		{"ObjectsArePlacedAndAddedUp", placedAndAddedUp},
		{"MetricsAreForWhoMayReadThem", m.metricsNeedARight},
		{"NothingFiresWhenAllIsWell", m.allIsWell},
		{"EveryPanelReturnsData", m.everyPanel},
		{"MemberIsStopped", m.memberStopped},
		{"CredentialIsNearItsEnd", m.credentialEndsSoon},
		{"CredentialIsRefused", m.rotationFails},
		{"ObjectIsDegraded", m.objectDegraded},
		{"MemberThatIsAwayIsOffboarded", m.memberOffboarded},
	})
}

// monitoring is what the scenarios share.
type monitoring struct {
	// address is where the manager serves its metrics.
	address string
	*prometheus
}

// giveToken has a member registered with a token that ends after a while.
func (m *monitoring) giveToken(t *testing.T, f *fleet, name, lasting string) {
	t.Helper()
	token := strings.TrimSpace(f.kubectl(t, name, "create", "token", "-n", "flotilla-system", "flotilla-hub", "--duration="+lasting))
	f.put(t, f.registrationWith(t, name, token, map[string]string{"region": "eu"}))
}

// token is one of a ServiceAccount on the hub.
func (m *monitoring) token(t *testing.T, f *fleet, name string) string {
	t.Helper()
	return strings.TrimSpace(f.kubectl(t, "hub", "create", "token", "-n", "default", name, "--duration=4h"))
}

// expectAlerts waits until these fire and no others, and expects that to last.
func (m *monitoring) expectAlerts(t *testing.T, within time.Duration, want ...string) {
	t.Helper()
	g, firing := NewWithT(t), func() []string { return m.alerts("firing") }
	began := time.Now()
	g.Eventually(firing, within, 200*time.Millisecond).Should(Equal(want))
	t.Logf("%v fire after %v", want, time.Since(began).Round(time.Second))
	g.Consistently(firing, 5*time.Second, 200*time.Millisecond).Should(Equal(want))
}

// expectNoAlerts waits until none fires or is about to, and expects that to last.
func (m *monitoring) expectNoAlerts(t *testing.T, within, during time.Duration) {
	t.Helper()
	g, known := NewWithT(t), func() []string {
		// One scrape that comes late, on a busy machine, begins to look like a manager that is gone.
		coming := slices.DeleteFunc(m.alerts("pending"), func(alert string) bool { return alert == "FlotillaDown" })
		return append(m.alerts("firing"), coming...)
	}
	g.Eventually(known, within, 200*time.Millisecond).Should(BeEmpty())
	g.Consistently(known, during, 200*time.Millisecond).Should(BeEmpty())
}

// metricsNeedARight asks for the metrics with no token, that of a stranger, and that of Prometheus.
func (m *monitoring) metricsNeedARight(t *testing.T, f *fleet) {
	g := NewWithT(t)
	// The certificate is the manager's own.
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func(token string) (int, string) {
		request, err := http.NewRequestWithContext(f.ctx, http.MethodGet, "https://"+m.address+"/metrics", nil)
		g.Expect(err).NotTo(HaveOccurred())
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		g.Expect(err).NotTo(HaveOccurred())
		return answer.StatusCode, string(body)
	}
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, m.token(t, f, "stranger"): http.StatusForbidden,
		// This is what controller-runtime answers where a token cannot be reviewed.
		"nobody-issued-this": http.StatusInternalServerError,
	} {
		status, body := ask(token)
		g.Expect(status).To(Equal(want), body)
		g.Expect(body).NotTo(ContainSubstring("flotilla_"))
	}
	status, body := ask(m.token(t, f, "prometheus"))
	g.Expect(status).To(Equal(http.StatusOK))
	g.Expect(body).To(ContainSubstring("flotilla_build_info"))
}

func (m *monitoring) allIsWell(t *testing.T, f *fleet) {
	f.expectConverged(t, f.registered()...)
	m.expectNoAlerts(t, 30*time.Second, 20*time.Second)
}

// goodNews are the panels that have nothing to show when all is well.
var goodNews = map[string]bool{"6 Members that are not ready A": true}

// everyPanel asks what the dashboard asks.
func (m *monitoring) everyPanel(t *testing.T, f *fleet) {
	g, all := NewWithT(t), panels(t, f.root)
	g.Expect(len(all)).To(BeNumerically(">", 20))
	for _, panel := range slices.Sorted(maps.Keys(all)) {
		ask := func() ([]sample, error) { return m.query(all[panel]) }
		if goodNews[panel] {
			g.Expect(ask()).To(BeEmpty(), "%s: %s", panel, all[panel])
			continue
		}
		// Rates want two scrapes with something between them, and members are probed when nothing else is heard of them.
		began := time.Now()
		g.Eventually(ask, 90*time.Second, time.Second).ShouldNot(BeEmpty(), "%s: %s", panel, all[panel])
		if took := time.Since(began); took > time.Second {
			t.Logf("%s has data after %v", panel, took.Round(time.Second))
		}
	}
	for expr, want := range map[string]float64{
		`sum(flotilla_objects{state="Ready"})`:                     2,
		`sum(flotilla_objects{state!="Ready"})`:                    0,
		`sum(flotilla_cluster_objects{kind="Node",state="Ready"})`: 10,
		`sum(flotilla_cluster_objects{state!="Ready"})`:            0,
		`count(flotilla_cluster_state{state="Ready"} == 1)`:        2,
	} {
		g.Eventually(func() ([]sample, error) { return m.query(expr) }, 15*time.Second, 500*time.Millisecond).Should(
			Equal([]sample{{labels: map[string]string{}, value: want}}), expr)
	}
}

// memberStopped has the API server of a member hang.
func (m *monitoring) memberStopped(t *testing.T, f *fleet) {
	const name = "member-2"
	g := NewWithT(t)
	end := stopped.start(t, f, name)
	m.expectAlerts(t, stopped.noticed+30*time.Second, "FlotillaFleetUnreachable", "FlotillaMemberUnreachable "+name)
	for panel, expr := range panels(t, f.root) {
		g.Expect(m.query(expr)).NotTo(BeEmpty(), "%s: %s", panel, expr)
	}
	g.Expect(m.query(`sum by (cluster) (flotilla_cluster_objects{kind="Node",state="Unknown"} > 0)`)).To(Equal(
		[]sample{{labels: map[string]string{"cluster": name}, value: 5}}))
	g.Expect(m.query(`flotilla_objects{state="Unknown"} == 1`)).To(HaveLen(2), "neither the Redis nor the NodePool is known to be well")
	end()
	expectBack(t, f, name)
	m.expectNoAlerts(t, 30*time.Second, 5*time.Second)
}

// credentialEndsSoon gives a member a token that ends within the seven days, and then a better one.
func (m *monitoring) credentialEndsSoon(t *testing.T, f *fleet) {
	const name = "member-1"
	m.giveToken(t, f, name, "144h")
	m.expectAlerts(t, 90*time.Second, "FlotillaCredentialExpiresSoon "+name)
	m.giveToken(t, f, name, "720h")
	m.expectNoAlerts(t, 30*time.Second, 5*time.Second)
}

// rotationFails gives a member a token that nobody has issued, and then a good one.
func (m *monitoring) rotationFails(t *testing.T, f *fleet) {
	const name = "member-1"
	f.put(t, f.registrationWith(t, name, "nobody-issued-this", map[string]string{"region": "eu"}))
	m.expectAlerts(t, 30*time.Second, "FlotillaRotationFailed "+name)
	NewWithT(t).Expect(conditionStatus(f.memberCluster(name).Status.Conditions, flotillav1.ConditionReady)).To(Equal("True"), "the credential in use stays in use")
	m.giveToken(t, f, name, "720h")
	// The rule looks back for an hour, which is a minute here.
	m.expectNoAlerts(t, 90*time.Second, 5*time.Second)
}

// objectDegraded gives the Redis on the hub what no node has room for, and then what it had.
func (m *monitoring) objectDegraded(t *testing.T, f *fleet) {
	f.changeHubRedis(t, `{"placement":{"rollout":{"progressDeadlineSeconds":10}},"resources":{"requests":{"memory":"64Ti"}}}`)
	m.expectAlerts(t, 60*time.Second, "FlotillaObjectsDegraded Redis")
	f.changeHubRedis(t, `{"resources":null}`)
	f.expectConverged(t, f.registered()...)
	m.expectNoAlerts(t, 30*time.Second, 5*time.Second)
}

// memberOffboarded takes the registration of a member that is away: its alerts and its series end with it.
func (m *monitoring) memberOffboarded(t *testing.T, f *fleet) {
	const name = "member-2"
	g := NewWithT(t)
	stopped.start(t, f, name)
	m.expectAlerts(t, stopped.noticed+30*time.Second, "FlotillaFleetUnreachable", "FlotillaMemberUnreachable "+name)
	g.Expect(f.hub.Delete(f.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-clusters", Name: name}})).To(Succeed())
	m.expectNoAlerts(t, 60*time.Second, 5*time.Second)
	g.Expect(m.query(`{cluster="`+name+`"} or {host="`+name+`"}`)).To(BeEmpty(), "the member has no series")
}
