// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

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
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
)

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
	return clusterstest.Kubeconfig(t, memberOne.Config.Host, memberOne.Config.CAData,
		func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = token })
}

// lasting is a credential with a token that is valid for ten hours from a time on.
func lasting(t *testing.T, from time.Time) *registration.Credential {
	t.Helper()
	part := base64.RawURLEncoding.EncodeToString
	claims := part(fmt.Appendf(nil, `{"iat":%d,"exp":%d}`, from.Unix(), from.Add(10*time.Hour).Unix()))
	ca, _ := clusterstest.KeyPair(t, from)
	raw := clusterstest.Kubeconfig(t, "https://10.0.0.1", ca, func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.Token = part([]byte(`{"alg":"none"}`)) + "." + claims + "." + part([]byte("x"))
	})
	accepted, refused := registration.Parse(raw, &registration.Rules{})
	if refused != nil {
		t.Fatal(refused)
	}
	return accepted
}

func TestCredentials_report_each_stage_once(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := credentials{credential: lasting(t, from)}
	registered := &registration.Registration{}
	for _, stage := range []struct {
		after  time.Duration
		reason string
		next   time.Duration
	}{
		{after: 0, reason: flotillav1.ReasonAccepted, next: 8 * time.Hour},
		{after: 8 * time.Hour, reason: flotillav1.ReasonExpiresSoon, next: 10 * time.Hour},
		{after: 10 * time.Hour, reason: flotillav1.ReasonExpired},
	} {
		now := from.Add(stage.after)
		if got := c.acceptance(now, registered); got.Reason != stage.reason {
			t.Errorf("after %s: got %+v, want %s", stage.after, got, stage.reason)
		}
		c.expiry = expiry{fingerprint: c.credential.Fingerprint(), reported: c.credential.Stage(now)}
		switch due := c.expiryDue(); {
		case stage.next == 0 && !due.IsZero(), stage.next > 0 && !due.Equal(from.Add(stage.next)):
			t.Errorf("after %s: the next report is due at %s", stage.after, due)
		}
	}
	if due := (&credentials{}).expiryDue(); !due.IsZero() {
		t.Errorf("without a credential a report is due at %s", due)
	}
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
	f.Eventually(f.state("ends")).Should(Equal(clusters.StateReady))
	clk.Step(11 * time.Minute)
	f.Eventually(accepted).Should(Equal("False Expired"))
	f.Eventually(f.warnings("ends")).Should(ContainElements("CredentialsExpireSoon 1", "CredentialsExpired 1"), "a restart tells nothing twice")
	f.Expect(f.state("ends")()).To(Equal(clusters.StateReady), "the member decides, and its clock is another")

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
	families, err := ctrlmetrics.Registry.Gather()
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

// rotating is a member without CRDs for the moment, so that there is no session with it.
type rotating struct {
	*fixture
	server *clusterstest.Server
	secret *corev1.Secret
}

// startRotating engages a member that accepts the token first.
func startRotating(t *testing.T, name string) *rotating {
	t.Helper()
	r := &rotating{fixture: startPool(t, hubCluster.Namespace(t), func(c *Config) { c.InspectInterval = 200 * time.Millisecond }), server: clusterstest.Start(t)}
	r.server.Accept("first")
	r.secret = r.register(name, r.server.KubeconfigWith("first"))
	r.Eventually(r.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	return r
}

// ask puts a token in the registration.
func (r *rotating) ask(token string) {
	r.patch(r.secret, func() { r.secret.Data[flotillav1.KeyKubeconfig] = r.server.KubeconfigWith(token) })
}

// hangUp takes the CRDs away, which ends the session; engage puts them back.
func (r *rotating) hangUp() {
	r.server.Remove(crdOf(r.t, "Redis"))
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionReady)).Should(Equal("False CRDMissing"))
}

func (r *rotating) engage() {
	r.server.Put(crdOf(r.t, "Redis"))
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
}

func TestPool_a_rotation_outlives_the_session(t *testing.T) {
	t.Parallel()
	r := startRotating(t, "rotates-later")
	r.ask("second")
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionCredentialsAccepted)).Should(Equal("False RotationFailed"))
	r.hangUp()
	r.engage()
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionCredentialsAccepted)).Should(Equal("False RotationFailed"))
	r.server.Accept("first", "second")
	r.Eventually(func() []string { return r.events(r.secret.Name) }).Should(ContainElement("CredentialsRotated"))
	r.server.Accept("second")
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionCredentialsAccepted)).Should(Equal("True Accepted"))
	r.Expect(r.condition(r.secret.Name, flotillav1.ConditionReady)()).To(Equal("True Connected"))
	r.unregister(r.secret)
}

func TestPool_a_bad_credential_displaces_no_proven_one_without_a_session(t *testing.T) {
	t.Parallel()
	r := startRotating(t, "rotates-without-a-session")
	r.hangUp()
	r.ask("typo")
	r.engage()
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionCredentialsAccepted)).Should(Equal("False RotationFailed"))
	r.server.Accept("first", "third")
	r.ask("third")
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionCredentialsAccepted)).Should(Equal("True Accepted"))
	r.unregister(r.secret)
}

// The credential in use is revoked while the member is not engaged, and the one that is asked for becomes good later.
func TestPool_a_good_credential_is_tried_when_the_proven_one_is_revoked(t *testing.T) {
	t.Parallel()
	r := startRotating(t, "rotates-when-revoked")
	r.ask("second")
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionCredentialsAccepted)).Should(Equal("False RotationFailed"))
	r.hangUp()
	r.server.Accept()
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionReady)).Should(Equal("False Unauthorized"))
	r.server.Put(crdOf(t, "Redis"))
	r.server.Accept("second")
	r.Eventually(r.condition(r.secret.Name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	r.unregister(r.secret)
}
