// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// boundToken is a token of the hub's ServiceAccount in a member that ends with a Secret there.
type boundToken struct {
	member string
	secret *corev1.Secret
	token  string
}

func (f *fleet) boundToken(t *testing.T, member string) boundToken {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", GenerateName: "token-"}}
	if err := f.members[member].Create(f.ctx, secret); err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(f.configs[member])
	if err != nil {
		t.Fatal(err)
	}
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID},
	}}
	token, err := clientset.CoreV1().ServiceAccounts("flotilla-system").CreateToken(f.ctx, "flotilla-hub", ask, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking %q for a token: %v", member, err)
	}
	return boundToken{member: member, secret: secret, token: token.Status.Token}
}

// revoke deletes what a token is bound to and waits until the member refuses the token.
func (f *fleet) revoke(t *testing.T, b boundToken) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(f.members[b.member].Delete(f.ctx, b.secret)).To(Succeed())
	config := rest.AnonymousClientConfig(f.configs[b.member])
	config.BearerToken = b.token
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: f.hub.RESTMapper()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() bool {
		return apierrors.IsUnauthorized(c.Get(f.ctx, client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}))
	}, 30*time.Second, 100*time.Millisecond).Should(BeTrue(), "%s refuses the token that was revoked", b.member)
}

// use puts a token in the registration of a member and waits until the manager uses it.
func (f *fleet) use(t *testing.T, b boundToken) {
	t.Helper()
	before := f.rotations(b.member)
	f.put(t, f.registrationWith(t, b.member, b.token, map[string]string{"region": f.memberCluster(b.member).Labels["region"]}))
	NewWithT(t).Eventually(func() int { return f.rotations(b.member) }, 20*time.Second, 100*time.Millisecond).Should(BeNumerically(">", before))
}

// rotations counts how often the manager has put another credential of a member in use.
func (f *fleet) rotations(member string) int {
	count := 0
	for line := range strings.Lines(f.managerLog()) {
		if strings.Contains(line, "Rotated the credential") && strings.Contains(line, "cluster="+member) {
			count++
		}
	}
	return count
}

// tokenRotates replaces a token under load and revokes the old one, then revokes the one in use, then gives a good one.
func tokenRotates(t *testing.T, f *fleet) {
	const name = "member-3"
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	first := f.boundToken(t, name)
	f.use(t, first)
	f.expectConverged(t, registered...)
	ready := apimeta.FindStatusCondition(f.memberCluster(name).Status.Conditions, flotillav1.ConditionReady)
	asked, logged := f.audit(t, name), len(f.managerLog())
	before := f.hubRedis()

	load := f.startLoad(t, registered...)
	second := f.boundToken(t, name)
	f.use(t, second)
	f.revoke(t, first)
	expectReaction(t, f, name)
	load.stop(t)
	g.Expect(asked.requests(t, request.relist)).To(BeEmpty(), "nothing of %s is listed again", name)
	for line := range strings.Lines(f.managerLog()[logged:]) {
		g.Expect(line).NotTo(ContainSubstring("Reconciler error"))
	}
	g.Expect(apimeta.FindStatusCondition(f.memberCluster(name).Status.Conditions, flotillav1.ConditionReady)).To(Equal(ready), "the member was Ready all the time")

	f.revoke(t, second)
	g.Eventually(func(g Gomega) {
		conditions := f.memberCluster(name).Status.Conditions
		accepted := apimeta.FindStatusCondition(conditions, flotillav1.ConditionCredentialsAccepted)
		g.Expect(accepted).NotTo(BeNil())
		g.Expect(string(accepted.Status) + " " + accepted.Reason).To(Equal("False " + flotillav1.ReasonUnauthorized))
		g.Expect(conditionStatus(conditions, flotillav1.ConditionReady)).To(Equal("False"))
		g.Expect(conditionStatus(conditions, flotillav1.ConditionReachable)).To(Equal("True"))
	}, 45*time.Second, 200*time.Millisecond).Should(Succeed())
	expectEntryUnknown(t, f, name, before)
	expectReaction(t, f, "member-1")

	f.register(t, name, "us")
	expectBack(t, f, name)
	expectReaction(t, f, name)
	g.Expect(asked.requests(t, request.relist)).To(BeEmpty(), "nothing of %s is listed again", name)
}
