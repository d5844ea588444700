// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestCredential_stage(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		issued, expires, now time.Time
		want                 stage
	}{
		"without an end":                {now: noon, want: stageValid},
		"before the last fifth":         {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(8*time.Hour - 1), want: stageValid},
		"in the last fifth":             {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(8 * time.Hour), want: stageEndsSoon},
		"a moment before the end":       {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(10*time.Hour - 1), want: stageEndsSoon},
		"at the end":                    {issued: noon, expires: noon.Add(10 * time.Hour), now: noon.Add(10 * time.Hour), want: stageEnded},
		"eight days, beginning unknown": {expires: noon.Add(8 * 24 * time.Hour), now: noon, want: stageValid},
		"six days, beginning unknown":   {expires: noon.Add(6 * 24 * time.Hour), now: noon, want: stageEndsSoon},
		"a beginning after the end":     {issued: noon.Add(30 * 24 * time.Hour), expires: noon.Add(6 * 24 * time.Hour), now: noon, want: stageEndsSoon},
		"centuries":                     {issued: noon, expires: noon.AddDate(7000, 0, 0), now: noon, want: stageValid},
	} {
		t.Run(name, func(t *testing.T) {
			c := &credential{issued: tc.issued, expires: tc.expires}
			if got := c.stage(tc.now); got != tc.want {
				t.Errorf("got stage %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTokenLifetime(t *testing.T) {
	for name, tc := range map[string]struct {
		claims              string
		wantIssued, wantEnd int64
	}{
		"both":            {claims: `{"iat":1000,"exp":2000}`, wantIssued: 1000, wantEnd: 2000},
		"not before":      {claims: `{"nbf":1000,"exp":2000.9}`, wantIssued: 1000, wantEnd: 2000},
		"no end":          {claims: `{"iat":1000}`, wantIssued: 1000},
		"the year 10000":  {claims: `{"exp":253402300800}`},
		"before all time": {claims: `{"exp":-1}`},
		"text":            {claims: `{"exp":"2000"}`},
		"no JSON":         {claims: `exp`},
	} {
		t.Run(name, func(t *testing.T) {
			issued, end := tokenLifetime("e30." + base64.RawURLEncoding.EncodeToString([]byte(tc.claims)) + ".c2ln")
			for _, x := range []struct {
				got  time.Time
				want int64
			}{{issued, tc.wantIssued}, {end, tc.wantEnd}} {
				if (x.want == 0) != x.got.IsZero() || (x.want != 0 && x.got.Unix() != x.want) {
					t.Errorf("got %s and %s", issued, end)
				}
			}
		})
	}
}

// rushingClock is a clock that can be moved forward while it goes on, at the pace of the real one, to the end of the test.
func rushingClock(t *testing.T) *testingclock.FakeClock {
	t.Helper()
	clk := testingclock.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		const pace = 10 * time.Millisecond
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				clk.Step(pace)
			}
		}
	}()
	return clk
}

// token asks the member for a token of a service account that may do everything.
func token(t *testing.T, name string, lifetime time.Duration) *authenticationv1.TokenRequest {
	t.Helper()
	g, ctx := NewWithT(t), context.Background()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Expect(client.IgnoreAlreadyExists(memberOne.Client.Create(ctx, account))).To(Succeed())
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
	}
	g.Expect(client.IgnoreAlreadyExists(memberOne.Client.Create(ctx, binding))).To(Succeed())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(lifetime.Seconds()))}}
	g.Expect(memberOne.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request
}

// withToken is a kubeconfig of the member.
func withToken(t *testing.T, token string) []byte {
	t.Helper()
	return kubeconfigFor(t, memberOne.Config.Host, memberOne.Config.CAData,
		func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = token })
}

func TestPool_tells_before_a_credential_ends(t *testing.T) {
	ctx := context.Background()
	clk := rushingClock(t)
	namespace := hubCluster.Namespace(t)
	adjust := func(c *Config) { c.Clock = clk }
	f := startPool(t, namespace, adjust)
	first := token(t, "ends", time.Hour)
	secret := f.register("ends", withToken(t, first.Status.Token))
	accepted := f.condition("ends", flotillav1.ConditionCredentialsAccepted)
	f.Eventually(f.condition("ends", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Expect(accepted()).To(Equal("True Accepted"))
	object := &flotillav1.MemberCluster{}
	f.Expect(hubCluster.Client.Get(ctx, client.ObjectKey{Name: "ends"}, object)).To(Succeed())
	f.Expect(object.Status.Credentials.ExpirationTime.Unix()).To(BeNumerically("~", first.Status.ExpirationTimestamp.Unix(), 1))
	f.Expect(expirySeries(t, "ends")).To(Equal(fmt.Sprint(object.Status.Credentials.ExpirationTime.Unix())))

	clk.Step(50 * time.Minute)
	f.Eventually(accepted).Should(Equal("True ExpiresSoon"))
	f.Eventually(f.warnings("ends")).Should(ConsistOf("CredentialsExpireSoon 1"))
	f.Eventually(f.condition("ends", flotillav1.ConditionReady)).Should(Equal("True Connected"))

	f.stop()
	f = startPool(t, namespace, adjust)
	accepted = f.condition("ends", flotillav1.ConditionCredentialsAccepted)
	f.Eventually(f.state("ends")).Should(Equal(StateReady))
	clk.Step(11 * time.Minute)
	f.Eventually(accepted).Should(Equal("False Expired"))
	f.Eventually(f.warnings("ends")).Should(ContainElements("CredentialsExpireSoon 1", "CredentialsExpired 1"), "a restart tells nothing twice")
	f.Expect(f.state("ends")()).To(Equal(StateReady), "the member decides, and its clock is another")

	f.patch(secret, func() {
		secret.Data[flotillav1.KeyKubeconfig] = withToken(t, token(t, "ends", 24*time.Hour).Status.Token)
	})
	f.Eventually(accepted).Should(Equal("True Accepted"))
	f.unregister(secret)
	f.Expect(expirySeries(t, "ends")).To(BeEmpty())
}

// warnings reads "<reason> <count>" of the events that warn about credentials.
func (f *fixture) warnings(name string) func() []string {
	return func() []string {
		list := &eventsv1.EventList{}
		if err := hubCluster.Client.List(context.Background(), list); err != nil {
			return []string{err.Error()}
		}
		counts := map[string]int{}
		for _, e := range list.Items {
			if e.Regarding.Name == name && e.Type == corev1.EventTypeWarning {
				counts[e.Reason]++
				if e.Series != nil {
					counts[e.Reason] += int(e.Series.Count)
				}
			}
		}
		var warnings []string
		for reason, count := range counts {
			warnings = append(warnings, fmt.Sprint(reason, " ", count))
		}
		return warnings
	}
}

// expirySeries is the value of the metric of a member, empty when there is none.
func expirySeries(t *testing.T, name string) string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, sample := range family.Metric {
			if family.GetName() == "flotilla_cluster_credential_expiry_timestamp_seconds" && sample.Label[0].GetValue() == name {
				return fmt.Sprint(int64(sample.Gauge.GetValue()))
			}
		}
	}
	return ""
}
