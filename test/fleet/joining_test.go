// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func joinAndLeave(t *testing.T, f *fleet) {
	g := NewWithT(t)
	const name = "member-4"
	others := f.settled(t, "member-1", "member-2", "member-3")
	f.prepareMember(t, name)
	secret := f.registration(t, name, map[string]string{"region": "us"})
	g.Expect(f.hub.Create(f.ctx, secret)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(conditionStatus(f.memberCluster(name).Status.Conditions, "Ready")).To(Equal("True"))
		g.Expect(f.memberRedis(name).Status.ObservedGeneration).To(BeNumerically(">", 0))
		g.Expect(f.hubRedis().Status.ClusterCounts.Desired).To(Equal(int32(4)))
	}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
	g.Eventually(func() int32 { return f.hubRedis().Status.ClusterCounts.Ready }, 30*time.Second, 200*time.Millisecond).Should(Equal(int32(4)))

	g.Expect(f.hub.Delete(f.ctx, secret)).To(Succeed())
	g.Eventually(func(g Gomega) {
		err := f.hub.Get(f.ctx, client.ObjectKey{Name: name}, &flotillav1.MemberCluster{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the MemberCluster goes: %v", err)
		g.Expect(f.hubRedis().Status.ClusterCounts.Desired).To(Equal(int32(3)))
	}, 20*time.Second, 100*time.Millisecond).Should(Succeed())
	g.Expect(f.memberRedis(name).Status.ReadyReplicas).To(Equal(int32(3)), "the objects in the member stay")
	g.Expect(f.members[name].Get(f.ctx, client.ObjectKey{Namespace: namespace, Name: "cache"}, &appsv1.StatefulSet{})).To(Succeed())
	g.Expect(cmp.Diff(others, f.fingerprint("member-1", "member-2", "member-3"))).To(BeEmpty(), "nothing else moves")
}

func badRegistrations(t *testing.T, f *fleet) {
	g := NewWithT(t)
	witness := t.TempDir() + "/executed"
	good := string(f.registration(t, "member-4", nil).Data["kubeconfig"])
	for name, tc := range map[string]struct{ kubeconfig, reason string }{
		"garbage":   {"\x00\x01 not: [a kubeconfig", flotillav1.ReasonParseError},
		"exec":      {withUser(good, fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [%s], interactiveMode: Never}", witness)), flotillav1.ReasonExecNotAllowed},
		"tokenfile": {withUser(good, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"), flotillav1.ReasonFileReferenceNotAllowed},
	} {
		secret := f.registration(t, "member-4", nil)
		secret.Name = "bad-" + name
		secret.Data["kubeconfig"] = []byte(tc.kubeconfig)
		g.Expect(f.hub.Create(f.ctx, secret)).To(Succeed())
		g.Eventually(func(g Gomega) {
			mc := f.memberCluster(secret.Name)
			condition := apimeta.FindStatusCondition(mc.Status.Conditions, "CredentialsAccepted")
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Status).To(Equal(metav1.ConditionFalse))
			g.Expect(condition.Reason).To(Equal(tc.reason))
			g.Expect(conditionStatus(mc.Status.Conditions, "Ready")).To(Equal("False"))
		}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
		g.Expect(f.hub.Delete(f.ctx, secret)).To(Succeed())
		g.Eventually(func() bool {
			return apierrors.IsNotFound(f.hub.Get(f.ctx, client.ObjectKey{Name: secret.Name}, &flotillav1.MemberCluster{}))
		}, 10*time.Second, 100*time.Millisecond).Should(BeTrue())
	}
	g.Expect(witness).NotTo(BeAnExistingFile(), "nothing was executed")
	refusedFiles(t, f)
	g.Expect(f.managerLog()).NotTo(ContainSubstring("panic"))
}

func memberDeadAtStart(t *testing.T, f *fleet) {
	const name = "member-3"
	before := f.hubRedis()
	f.stopManager(t)
	end := cutOff.start(t, f, name)
	f.startManager(t)
	expectReaction(t, f, "member-1")
	expectUnknown(t, f, name, before, 45*time.Second)
	end()
	expectBack(t, f, name)
}

func withUser(kubeconfig, user string) string {
	lines := strings.Split(kubeconfig, "\n")
	for i, line := range lines {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "token:") {
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			lines[i] = indent + user
		}
	}
	return strings.Join(lines, "\n")
}
