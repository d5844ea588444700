// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// refusal is what a registration of testdata/registrations/environment leads to.
type refusal struct {
	file string
	// condition is "<type> <status> <reason>", event the reason of the warning that tells it.
	condition, event string
	// vars fill the placeholders of the file.
	vars map[string]string
}

// refusedByEnvironment applies the registrations that are refused for what they lead to. Old clusters are the only thing
// that the fleet does not have: the tests of the pool apply the file for them.
func refusedByEnvironment(t *testing.T, f *fleet) {
	t.Run("AtOnce", func(t *testing.T) { refusedAtOnce(t, f) })
	t.Run("MemberIsHub", func(t *testing.T) {
		// The second hub was real, and what it has published of its member is there still.
		f.expectRefused(t, refusal{file: "member-is-hub", condition: "CredentialsAccepted False MemberIsHub", event: "ClusterRefused", vars: f.leadTo(t, spare)})
		f.withdraw(t, "member-is-hub")
		f.kubectl(t, spare, "delete", "memberclusters", "--all")
	})
	t.Run("Claims", func(t *testing.T) { refusedForClaims(t, f) })
	t.Run("Kinds", func(t *testing.T) { refusedForKinds(t, f) })
	t.Run("Rotations", func(t *testing.T) { refusedRotations(t, f) })
	t.Run("PausedAndDrained", func(t *testing.T) { pausedAndDrained(t, f) })
	for _, name := range f.registered() {
		expectBack(t, f, name)
	}
}

// spare is the member that no scenario has registered for long.
const spare = "member-4"

// refusedAtOnce applies all registrations that do not get as far as to know a cluster of their own.
func refusedAtOnce(t *testing.T, f *fleet) {
	g := NewWithT(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = silent.Close() }()
	one, other := f.leadTo(t, "member-1"), f.leadTo(t, spare)
	cases := []refusal{
		{file: "duplicate-cluster", condition: "CredentialsAccepted False DuplicateCluster", event: "ClusterRefused", vars: one},
		{file: "self-registration-by-alias", condition: "CredentialsAccepted False SelfRegistration", event: "ClusterRefused", vars: f.hubByAlias(t)},
		{file: "unauthorized", condition: "CredentialsAccepted False Unauthorized", event: "ClusterAuthFailed", vars: other},
		{file: "expired", condition: "CredentialsAccepted False Expired", event: "CredentialsExpired"},
		{file: "expires-soon", condition: "CredentialsAccepted True ExpiresSoon", event: "CredentialsExpireSoon"},
		{file: "too-large", condition: "CredentialsAccepted False TooLarge", event: "ClusterRefused", vars: map[string]string{"PADDING": strings.Repeat("#", 256<<10)}},
		{file: "probe-failed", condition: "Reachable False ProbeFailed", event: "ClusterUnreachable"},
		{file: "tls-failed", condition: "Reachable False TLSFailed", event: "ClusterUnreachable", vars: other},
		{file: "timeout", condition: "Reachable False Timeout", event: "ClusterUnreachable", vars: map[string]string{"SILENT_SERVER": "https://" + silent.Addr().String()}},
	}
	one["MEMBER_NAME"] = "member-1"
	f.applyFile(t, "contested", one)
	for _, r := range cases {
		f.applyFile(t, r.file, r.vars)
	}
	f.expectTold(t, "member-1", "CredentialsAccepted True Contested", "Contested")
	g.Eventually(func() []string { return f.warnings("contested") }, 10*time.Second, 100*time.Millisecond).Should(ContainElement(HavePrefix("Contested: ")))
	g.Expect(conditionStatus(f.memberCluster("member-1").Status.Conditions, "Ready")).To(Equal("True"), "the incumbent wins")
	for _, r := range cases {
		f.expectTold(t, r.file, r.condition, r.event)
	}
	expectReaction(t, f, "member-1")
	names := []string{"contested"}
	for _, r := range cases {
		names = append(names, r.file)
	}
	f.withdraw(t, names...)
	g.Eventually(func() string {
		return apimeta.FindStatusCondition(f.memberCluster("member-1").Status.Conditions, "CredentialsAccepted").Reason
	}, 15*time.Second, 100*time.Millisecond).ShouldNot(Equal("Contested"))
}

// refusedForClaims has others claim the member.
func refusedForClaims(t *testing.T, f *fleet) {
	vars := f.leadTo(t, spare)
	vars["HUB_ID"], vars["NOW"] = hubID, time.Now().UTC().Format(metav1.RFC3339Micro)
	for _, r := range []refusal{
		{file: "claimed-by-another-hub", condition: "Claimed False ClaimedByAnotherHub", event: "ClusterRefused", vars: vars},
		{file: "superseded", condition: "Claimed False Superseded", event: "ClusterRefused", vars: vars},
	} {
		claim := f.fill(t, "in-member/"+r.file, vars)
		f.kubectl(t, spare, "apply", "--server-side", "--force-conflicts", "-f", claim)
		f.expectRefused(t, r)
		f.withdraw(t, r.file)
		f.kubectl(t, spare, "delete", "-f", claim)
	}
}

// refusedForKinds takes from the member what the hub needs there: rights, then kinds, which come back.
func refusedForKinds(t *testing.T, f *fleet) {
	vars := f.leadTo(t, spare)
	vars["MEMBER_TOKEN"] = strings.TrimSpace(f.kubectl(t, spare, "create", "token", "default"))
	f.expectRefused(t, refusal{file: "forbidden", condition: "APIsServed False Forbidden", event: "ClusterRefused", vars: vars})
	f.withdraw(t, "forbidden")

	f.removeKinds(t, f.members[spare])
	f.expectRefused(t, refusal{file: "crd-missing", condition: "APIsServed False CRDMissing", event: "ClusterRefused", vars: f.leadTo(t, spare)})
	f.prepareMember(t, spare)
	f.expectJoined(t, "crd-missing")
	f.withdraw(t, "crd-missing")
}

// refusedRotations gives members that have joined a credential that is none, and one of another cluster.
func refusedRotations(t *testing.T, f *fleet) {
	g := NewWithT(t)
	elsewhere, wrong := f.leadTo(t, "member-3"), f.leadTo(t, spare)
	wrong["MEMBER_TOKEN"] = "nobody-issued-this"
	for _, r := range []refusal{
		{file: "rotation-failed", condition: "CredentialsAccepted False RotationFailed", event: "CredentialsRejected", vars: wrong},
		{file: "identity-changed", condition: "CredentialsAccepted False IdentityChanged", event: "CredentialsRejected", vars: elsewhere},
	} {
		f.applyFile(t, r.file, f.leadTo(t, spare))
		f.expectJoined(t, r.file)
		f.expectRefused(t, r)
		g.Expect(conditionStatus(f.memberCluster(r.file).Status.Conditions, "Ready")).To(Equal("True"), "the credential in use stays in use")
		f.withdraw(t, r.file)
	}
}

// pausedAndDrained registers the member to be observed only, and to lose its copies.
func pausedAndDrained(t *testing.T, f *fleet) {
	g := NewWithT(t)
	for file, condition := range map[string]string{"paused": "Paused True Paused", "drained": "Drained True AllRemoved"} {
		f.applyFile(t, file, f.leadTo(t, spare))
		f.expectJoined(t, file)
		g.Eventually(func() string { return f.condition(file, condition) }, 20*time.Second, 100*time.Millisecond).Should(Equal(condition))
		f.withdraw(t, file)
	}
}

// leadTo says what leads to a member as its owner has prepared it.
func (f *fleet) leadTo(t *testing.T, member string) map[string]string {
	t.Helper()
	token := strings.TrimSpace(f.kubectl(t, member, "create", "token", "-n", "flotilla-system", "flotilla-hub"))
	return f.placeholders(t, member, "https://"+f.lines[member].Addr(), token)
}

// hubByAlias says what leads to the hub under an address that the manager does not know it by.
func (f *fleet) hubByAlias(t *testing.T) map[string]string {
	t.Helper()
	f.kubectl(t, "hub", "create", "serviceaccount", "-n", "default", "alias")
	f.kubectl(t, "hub", "create", "clusterrolebinding", "alias", "--clusterrole=cluster-admin", "--serviceaccount=default:alias")
	t.Cleanup(func() {
		f.kubectl(t, "hub", "delete", "clusterrolebinding", "alias")
		f.kubectl(t, "hub", "delete", "serviceaccount", "-n", "default", "alias")
	})
	token := strings.TrimSpace(f.kubectl(t, "hub", "create", "token", "-n", "default", "alias"))
	return f.placeholders(t, "hub", f.configs["hub"].Host, token)
}

func (f *fleet) placeholders(t *testing.T, cluster, server, token string) map[string]string {
	t.Helper()
	return map[string]string{
		"MEMBER_SERVER": server, "MEMBER_CA": base64.StdEncoding.EncodeToString(f.authority(t, cluster)), "MEMBER_TOKEN": token,
	}
}

// fill writes a file of testdata/registrations/environment with its placeholders filled, and returns where it is.
func (f *fleet) fill(t *testing.T, file string, vars map[string]string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(f.root, "test", "fleet", "testdata", "registrations", "environment", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "filled.yaml")
	filled := os.Expand(string(content), func(name string) string {
		value, ok := vars[name]
		if !ok {
			t.Errorf("%s has the placeholder %s, which nothing fills", file, name)
		}
		return value
	})
	if err := os.WriteFile(path, []byte(filled), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (f *fleet) applyFile(t *testing.T, file string, vars map[string]string) {
	t.Helper()
	f.kubectl(t, "hub", "apply", "--server-side", "-f", f.fill(t, file, vars))
}

// expectRefused applies a file and waits for what is said of it.
func (f *fleet) expectRefused(t *testing.T, r refusal) {
	t.Helper()
	f.applyFile(t, r.file, r.vars)
	f.expectTold(t, r.file, r.condition, r.event)
}

// expectTold waits for a condition, whose message says what to do, and for the event that tells it.
func (f *fleet) expectTold(t *testing.T, name, condition, event string) {
	t.Helper()
	g := NewWithT(t)
	kind, _, _ := strings.Cut(condition, " ")
	g.Eventually(func(g Gomega) {
		g.Expect(f.condition(name, condition)).To(Equal(condition))
		c := apimeta.FindStatusCondition(f.memberCluster(name).Status.Conditions, kind)
		g.Expect(c.Message).To(ContainSubstring("; "), "the message says what to do")
		// An event of what is refused says the same; one of what goes on says what is new.
		said := c.Message[:min(len(c.Message), 100)]
		if c.Status == metav1.ConditionTrue {
			said = ""
		}
		g.Expect(f.warnings(name)).To(ContainElement(And(HavePrefix(event+": "), ContainSubstring(said))))
	}, 30*time.Second, 200*time.Millisecond).Should(Succeed(), "%s: %s", name, condition)
}

// expectJoined waits until a registration leads to a member that works.
func (f *fleet) expectJoined(t *testing.T, name string) {
	t.Helper()
	NewWithT(t).Eventually(func() string { return f.condition(name, "Ready") }, 45*time.Second, 100*time.Millisecond).Should(HavePrefix("Ready True "))
}

// condition returns "<type> <status> <reason>" of the condition whose type a text begins with.
func (f *fleet) condition(name, text string) string {
	kind, _, _ := strings.Cut(text, " ")
	c := apimeta.FindStatusCondition(f.memberCluster(name).Status.Conditions, kind)
	if c == nil {
		return kind + " is not told"
	}
	return fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason)
}

// warnings lists "<reason>: <note>" of the warnings about what has a name.
func (f *fleet) warnings(name string) []string {
	list := &eventsv1.EventList{}
	_ = f.hub.List(f.ctx, list)
	var warnings []string
	for _, event := range list.Items {
		if event.Regarding.Name == name && event.Type == corev1.EventTypeWarning {
			warnings = append(warnings, event.Reason+": "+event.Note)
		}
	}
	return warnings
}

// withdraw deletes registrations and waits until nothing is left of them.
func (f *fleet) withdraw(t *testing.T, names ...string) {
	t.Helper()
	f.kubectl(t, "hub", append([]string{"delete", "secrets", "-n", "flotilla-clusters"}, names...)...)
	for _, name := range names {
		NewWithT(t).Eventually(func() bool {
			return apierrors.IsNotFound(f.hub.Get(f.ctx, client.ObjectKey{Name: name}, &flotillav1.MemberCluster{}))
		}, 30*time.Second, 100*time.Millisecond).Should(BeTrue(), "%s goes", name)
	}
}
