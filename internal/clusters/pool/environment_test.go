// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// environmentFolder holds the registrations that are refused for what they lead to.
const environmentFolder = "../../../test/fleet/testdata/registrations/environment"

// surroundings are what the files of environmentFolder are applied in.
type surroundings struct {
	*fixture
	// vars fill the placeholders of files.
	vars map[string]string
	// other is a second real API server, without our kinds at first.
	other *testenv.Cluster
	// told lists the one event of each name.
	told map[string]string
}

// tokenIn asks a cluster for a token of a ServiceAccount, which may do everything if it is to.
func tokenIn(t *testing.T, c *testenv.Cluster, name string, admin bool) string {
	t.Helper()
	g, ctx := NewWithT(t), context.Background()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Expect(client.IgnoreAlreadyExists(c.Client.Create(ctx, account))).To(Succeed())
	if admin {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
		}
		g.Expect(client.IgnoreAlreadyExists(c.Client.Create(ctx, binding))).To(Succeed())
	}
	request := &authenticationv1.TokenRequest{}
	g.Expect(c.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// lead points the placeholders of a member somewhere.
func (s *surroundings) lead(server string, ca []byte, token string) {
	s.vars["MEMBER_SERVER"], s.vars["MEMBER_CA"], s.vars["MEMBER_TOKEN"] = server, base64.StdEncoding.EncodeToString(ca), token
}

// leadTo points them to a real cluster and its administrator.
func (s *surroundings) leadTo(c *testenv.Cluster) {
	s.t.Helper()
	s.lead(c.Config.Host, c.Config.CAData, tokenIn(s.t, c, "environment", true))
}

// kubectl runs kubectl as the administrator of a cluster.
func (s *surroundings) kubectl(c *testenv.Cluster, args ...string) {
	s.t.Helper()
	kubeconfig := filepath.Join(s.t.TempDir(), "kubeconfig")
	s.Expect(os.WriteFile(kubeconfig, c.Kubeconfig(), 0o600)).To(Succeed())
	cmd := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	s.Expect(err).NotTo(HaveOccurred(), "kubectl %s: %s", strings.Join(args, " "), out)
}

// fill writes a file with its placeholders filled, and its namespace the test's, and returns where it is.
func (s *surroundings) fill(file string) string {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(environmentFolder, file+".yaml"))
	s.Expect(err).NotTo(HaveOccurred())
	text := strings.ReplaceAll(string(content), "namespace: flotilla-clusters\n  labels", "namespace: "+s.namespace+"\n  labels")
	path := filepath.Join(s.t.TempDir(), "filled.yaml")
	s.Expect(os.WriteFile(path, []byte(os.Expand(text, func(name string) string {
		value, ok := s.vars[name]
		s.Expect(ok).To(BeTrue(), "%s has the unknown placeholder %s", file, name)
		return value
	})), 0o600)).To(Succeed())
	return path
}

// apply applies a registration on the hub.
func (s *surroundings) apply(file string) {
	s.t.Helper()
	s.kubectl(hubCluster, "apply", "--server-side", "-f", s.fill(file))
}

// inMember applies a file in a member until the end of the test.
func (s *surroundings) inMember(c *testenv.Cluster, file string) {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: preflight.ClaimNamespace}}
	s.Expect(client.IgnoreAlreadyExists(c.Client.Create(context.Background(), namespace))).To(Succeed())
	path := s.fill("in-member/" + file)
	s.kubectl(c, "apply", "--server-side", "--force-conflicts", "-f", path)
	s.t.Cleanup(func() { s.kubectl(c, "delete", "--ignore-not-found", "-f", path) })
}

// shows waits for a condition. One that is not met says what to do after a semicolon.
func (s *surroundings) shows(name, conditionType, want string) {
	s.t.Helper()
	s.Eventually(s.condition(name, conditionType)).Should(Equal(want))
	object := &flotillav1.MemberCluster{}
	s.Expect(hubCluster.Client.Get(context.Background(), client.ObjectKey{Name: name}, object)).To(Succeed())
	if c := apimeta.FindStatusCondition(object.Status.Conditions, conditionType); c.Status == metav1.ConditionFalse {
		s.Expect(c.Message).To(ContainSubstring("; "), "the message says what to do")
		s.Expect(c.Message).NotTo(HaveSuffix("."))
	}
}

// tells waits for an event, which has to stay the only one of its reason.
func (s *surroundings) tells(name, event string) {
	s.t.Helper()
	s.Eventually(s.warnings(name)).Should(ContainElement(event + " 1"))
	s.told[name] = event
}

// joins waits until a member is engaged.
func (s *surroundings) joins(name string) {
	s.t.Helper()
	s.Eventually(s.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
}

// oldVersion is memberOne behind something that says that it is an old one, until it is upgraded.
func (s *surroundings) oldVersion() (server string, ca []byte, upgrade func()) {
	s.t.Helper()
	upstream, err := url.Parse(memberOne.Config.Host)
	s.Expect(err).NotTo(HaveOccurred())
	through, err := rest.TransportFor(memberOne.Config)
	s.Expect(err).NotTo(HaveOccurred())
	proxy := &httputil.ReverseProxy{Transport: through, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		r.Out.Header.Del("Authorization")
	}}
	var upgraded atomic.Bool
	fake := clusterstest.TLSServer(s.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" && !upgraded.Load() {
			_, _ = w.Write([]byte(`{"major":"1","minor":"29","gitVersion":"v1.29.15"}`))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: fake.Certificate().Raw})
	return fake.URL, ca, func() { upgraded.Store(true) }
}

// silentServer accepts connections and says nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "https://" + listener.Addr().String()
}

// environmentCases say, for each file, what to do with it and what is seen then.
var environmentCases = map[string]func(*surroundings){
	"contested": func(s *surroundings) {
		s.register("holder", memberOne.Kubeconfig())
		s.joins("holder")
		s.vars["MEMBER_NAME"] = "holder"
		s.apply("contested")
		s.shows("holder", flotillav1.ConditionCredentialsAccepted, "True Contested")
		s.tells("holder", "Contested")
		s.tells("contested", "Contested")
		s.Expect(s.state("holder")()).To(Equal(clusters.StateReady))
	},
	"duplicate-cluster": func(s *surroundings) {
		s.register("first-of-two", memberOne.Kubeconfig())
		s.joins("first-of-two")
		s.apply("duplicate-cluster")
		s.shows("duplicate-cluster", flotillav1.ConditionCredentialsAccepted, "False DuplicateCluster")
		s.tells("duplicate-cluster", "ClusterRefused")
	},
	"self-registration-by-alias": func(s *surroundings) {
		alias := testenv.NewLine(s.t, hostOf(s.t, hubCluster.Config.Host))
		s.lead("https://"+alias.Addr(), hubCluster.Config.CAData, tokenIn(s.t, hubCluster, "environment", true))
		s.apply("self-registration-by-alias")
		s.shows("self-registration-by-alias", flotillav1.ConditionCredentialsAccepted, "False SelfRegistration")
		s.tells("self-registration-by-alias", "ClusterRefused")
	},
	"member-is-hub": func(s *surroundings) {
		s.inMember(memberOne, "member-is-hub")
		s.apply("member-is-hub")
		s.shows("member-is-hub", flotillav1.ConditionCredentialsAccepted, "False MemberIsHub")
		s.tells("member-is-hub", "ClusterRefused")
	},
	"identity-changed": func(s *surroundings) {
		s.apply("identity-changed")
		s.joins("identity-changed")
		s.leadTo(s.other)
		s.apply("identity-changed")
		s.shows("identity-changed", flotillav1.ConditionCredentialsAccepted, "False IdentityChanged")
		s.tells("identity-changed", "CredentialsRejected")
		s.Expect(s.state("identity-changed")()).To(Equal(clusters.StateReady), "the cluster that is recorded stays in use")
	},
	"unauthorized": func(s *surroundings) {
		s.apply("unauthorized")
		s.shows("unauthorized", flotillav1.ConditionCredentialsAccepted, "False Unauthorized")
		s.tells("unauthorized", "ClusterAuthFailed")
	},
	"rotation-failed": func(s *surroundings) {
		s.apply("rotation-failed")
		s.joins("rotation-failed")
		s.vars["MEMBER_TOKEN"] = "nobody-issued-this"
		s.apply("rotation-failed")
		s.shows("rotation-failed", flotillav1.ConditionCredentialsAccepted, "False RotationFailed")
		s.tells("rotation-failed", "CredentialsRejected")
		s.Expect(s.state("rotation-failed")()).To(Equal(clusters.StateReady), "the credential in use stays in use")
	},
	"expires-soon": func(s *surroundings) {
		s.apply("expires-soon")
		s.shows("expires-soon", flotillav1.ConditionCredentialsAccepted, "True ExpiresSoon")
		s.tells("expires-soon", "CredentialsExpireSoon")
	},
	"expired": func(s *surroundings) {
		s.apply("expired")
		s.shows("expired", flotillav1.ConditionCredentialsAccepted, "False Expired")
		s.tells("expired", "CredentialsExpired")
	},
	"too-large": func(s *surroundings) {
		s.vars["PADDING"] = strings.Repeat("#", registration.MaxCredentialBytes)
		s.apply("too-large")
		s.shows("too-large", flotillav1.ConditionCredentialsAccepted, "False TooLarge")
		s.tells("too-large", "ClusterRefused")
	},
	"probe-failed": func(s *surroundings) {
		s.apply("probe-failed")
		s.shows("probe-failed", flotillav1.ConditionReachable, "False ProbeFailed")
		s.tells("probe-failed", "ClusterUnreachable")
	},
	"timeout": func(s *surroundings) {
		s.vars["SILENT_SERVER"] = silentServer(s.t)
		s.apply("timeout")
		s.shows("timeout", flotillav1.ConditionReachable, "False Timeout")
		s.tells("timeout", "ClusterUnreachable")
	},
	"tls-failed": func(s *surroundings) {
		s.apply("tls-failed")
		s.shows("tls-failed", flotillav1.ConditionReachable, "False TLSFailed")
		s.tells("tls-failed", "ClusterUnreachable")
	},
	"crd-missing": func(s *surroundings) {
		s.leadTo(s.other)
		s.apply("crd-missing")
		s.shows("crd-missing", flotillav1.ConditionAPIsServed, "False CRDMissing")
		s.tells("crd-missing", "ClusterRefused")
		s.kubectl(s.other, "apply", "--server-side", "-k", "../../../config/crd")
		s.joins("crd-missing")
	},
	"unsupported-version": func(s *surroundings) {
		server, ca, upgrade := s.oldVersion()
		s.lead(server, ca, "any")
		s.apply("unsupported-version")
		s.shows("unsupported-version", flotillav1.ConditionAPIsServed, "False UnsupportedVersion")
		s.tells("unsupported-version", "ClusterRefused")
		upgrade()
		s.joins("unsupported-version")
	},
	"forbidden": func(s *surroundings) {
		s.vars["MEMBER_TOKEN"] = tokenIn(s.t, memberOne, "without-rights", false)
		s.apply("forbidden")
		s.shows("forbidden", flotillav1.ConditionAPIsServed, "False Forbidden")
		s.tells("forbidden", "ClusterRefused")
	},
	"claimed-by-another-hub": func(s *surroundings) {
		s.inMember(memberOne, "claimed-by-another-hub")
		s.apply("claimed-by-another-hub")
		s.shows("claimed-by-another-hub", flotillav1.ConditionClaimed, "False ClaimedByAnotherHub")
		s.tells("claimed-by-another-hub", "ClusterRefused")
	},
	"superseded": func(s *surroundings) {
		s.vars["HUB_ID"], s.vars["NOW"] = "hub", time.Now().UTC().Format(metav1.RFC3339Micro)
		s.inMember(memberOne, "superseded")
		s.apply("superseded")
		s.shows("superseded", flotillav1.ConditionClaimed, "False Superseded")
		s.tells("superseded", "ClusterRefused")
	},
	"paused": func(s *surroundings) {
		s.apply("paused")
		s.shows("paused", flotillav1.ConditionPaused, "True Paused")
		s.joins("paused")
	},
	"drained": func(s *surroundings) {
		s.apply("drained")
		s.shows("drained", flotillav1.ConditionDrained, "True AllRemoved")
	},
}

func TestPool_refuses_what_a_registration_leads_to(t *testing.T) {
	reservedOne.take(t)
	ctx := context.Background()
	files, err := filepath.Glob(filepath.Join(environmentFolder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	other := testenv.Start(t)
	f := startPool(t, hubCluster.Namespace(t))
	told := map[string]string{}
	for _, name := range names {
		run := environmentCases[name]
		if run == nil {
			t.Errorf("no case applies %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			inner := *f
			inner.WithT, inner.t = NewWithT(t), t
			inner.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
			s := &surroundings{fixture: &inner, vars: map[string]string{}, other: other, told: told}
			s.leadTo(memberOne)
			if name == "crd-missing" {
				s.kubectl(other, "delete", "-k", "../../../config/crd")
			}
			run(s)
			s.Expect(hubCluster.Client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(s.namespace))).To(Succeed())
			s.Eventually(func() int { return len(s.pool.Snapshots()) }).Should(BeZero())
		})
	}
	for name, event := range told {
		f.Expect(f.warnings(name)()).To(ContainElement(event+" 1"), "%s was told once", name)
	}
}
