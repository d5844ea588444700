// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// sources are the registrations that the suite's manager understands.
const sources = "flotilla-clusters:flotilla+multicluster-runtime+cluster-api+argo-cd"

// register creates the registration of a member, or brings it up to date.
func (f *fleet) register(t *testing.T, name, region string) {
	t.Helper()
	f.put(t, f.registration(t, name, map[string]string{"region": region}))
}

// registerByCommand registers a member as its administrator would. A fleet that was kept has it registered already.
func (f *fleet) registerByCommand(t *testing.T, name string) {
	t.Helper()
	region := f.regions()[name]
	if err := f.hub.Get(f.ctx, client.ObjectKey{Namespace: "flotilla-clusters", Name: name}, &corev1.Secret{}); err == nil {
		f.register(t, name, region)
		return
	}
	cmd := exec.CommandContext(f.ctx, filepath.Join(f.dir, "kubectl-flotilla"), "register", name, "--context", "hub",
		"--member-context", name, "--server", "https://"+f.lines[name].Addr(), "--labels", "region="+region)
	kubeconfigs := filepath.Join(f.dir, "kubeconfigs")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(kubeconfigs, "hub")+":"+filepath.Join(kubeconfigs, name))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("registering %q: %v\n%s\n%s", name, err, out, f.managerLog())
	}
}

// put creates a registration on the hub, or replaces its content.
func (f *fleet) put(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	err := f.hub.Create(f.ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = f.hub.Update(f.ctx, secret)
	}
	if err != nil {
		t.Fatalf("registering %q: %v", secret.Name, err)
	}
}

// registration makes a registration Secret with a token of the member's ServiceAccount for the hub.
func (f *fleet) registration(t *testing.T, name string, labels map[string]string) *corev1.Secret {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(f.configs[name])
	if err != nil {
		t.Fatal(err)
	}
	token, err := clientset.CoreV1().ServiceAccounts("flotilla-system").CreateToken(f.ctx, "flotilla-hub", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking %q for a token: %v", name, err)
	}
	return f.registrationWith(t, name, token.Status.Token, labels)
}

// registrationWith makes a registration Secret with a token that leads through the member's line.
func (f *fleet) registrationWith(t *testing.T, name, token string, labels map[string]string) *corev1.Secret {
	t.Helper()
	ca := f.authority(t, name)
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"member": {Server: "https://" + f.lines[name].Addr(), CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"hub": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "member", AuthInfo: "hub"}},
		CurrentContext: "hub",
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{flotillav1.LabelCluster: "true"}
	maps.Copy(all, labels)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-clusters", Name: name, Labels: all},
		Data:       map[string][]byte{flotillav1.KeyKubeconfig: kubeconfig},
	}
}

// authority is the certificate of who has signed that of a cluster's API server.
func (f *fleet) authority(t *testing.T, cluster string) []byte {
	t.Helper()
	config := f.configs[cluster]
	if len(config.CAData) > 0 {
		return config.CAData
	}
	ca, err := os.ReadFile(config.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// refusedFiles applies every file of testdata/registrations at once. Each is named after its member, which is named after
// the reason.
func refusedFiles(t *testing.T, f *fleet) {
	t.Helper()
	g := NewWithT(t)
	folder := filepath.Join(f.root, "test", "fleet", "testdata", "registrations")
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	f.kubectl(t, "hub", "apply", "-f", folder)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		reason := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(name, "argo-cd-"), "cluster-api-"), "-", "")
		g.Eventually(func(g Gomega) {
			mc := f.memberCluster(name)
			condition := apimeta.FindStatusCondition(mc.Status.Conditions, flotillav1.ConditionCredentialsAccepted)
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Status).To(Equal(metav1.ConditionFalse))
			g.Expect(strings.ToLower(condition.Reason)).To(Equal(reason))
			g.Expect(conditionStatus(mc.Status.Conditions, "Ready")).To(Equal("False"))
			g.Expect(f.refusals(name)).To(ContainElement(HavePrefix(condition.Reason + ": ")))
		}, 15*time.Second, 100*time.Millisecond).Should(Succeed(), name)
	}
	f.kubectl(t, "hub", "delete", "--wait=false", "-f", folder)
	g.Eventually(func(g Gomega) {
		members := &flotillav1.MemberClusterList{}
		g.Expect(f.hub.List(f.ctx, members)).To(Succeed())
		g.Expect(members.Items).To(HaveLen(3))
	}, 15*time.Second, 100*time.Millisecond).Should(Succeed())
	g.Expect("/tmp/flotilla-executed-a-registration").NotTo(BeAnExistingFile(), "nothing was executed")
}

// refusals reads the notes of the events that refuse a member.
func (f *fleet) refusals(name string) []string {
	list := &eventsv1.EventList{}
	_ = f.hub.List(f.ctx, list)
	var notes []string
	for _, event := range list.Items {
		if event.Regarding.Kind == "MemberCluster" && event.Regarding.Name == name && event.Reason == "ClusterRefused" {
			notes = append(notes, event.Note)
		}
	}
	return notes
}

// labelDropped takes the label that a placement selects on from a registration. The copies stay until a person says so.
func labelDropped(t *testing.T, f *fleet) {
	const name = "member-3"
	g := NewWithT(t)
	f.settled(t, name)
	world, asked := f.world(t, name), f.audit(t, name)
	f.put(t, f.registration(t, name, nil))
	g.Eventually(func(g Gomega) {
		g.Expect(f.memberCluster(name).Labels).NotTo(HaveKey("region"))
		for _, conditions := range [][]metav1.Condition{f.hubRedis().Status.Conditions, f.hubPool().Status.Conditions} {
			placed := apimeta.FindStatusCondition(conditions, flotillav1.ConditionPlaced)
			g.Expect(placed).NotTo(BeNil())
			g.Expect(placed.Message).To(ContainSubstring("leaving, copy kept: " + name))
		}
		g.Expect(f.hubRedis().Status.PlacedIn).To(ContainElement(name))
	}, 20*time.Second, 100*time.Millisecond).Should(Succeed())
	expectReaction(t, f, name)
	f.register(t, name, "us")
	g.Eventually(func() string {
		return apimeta.FindStatusCondition(f.hubRedis().Status.Conditions, flotillav1.ConditionPlaced).Message
	}, 20*time.Second, 100*time.Millisecond).ShouldNot(ContainSubstring("leaving"))
	expectBack(t, f, name)
	f.settled(t, name)
	g.Expect(cmp.Diff(world, f.world(t, name))).To(BeEmpty(), "nothing in the member changes")
	g.Expect(asked.requests(t, func(r request) bool { return r.write() && r.Verb == "delete" })).To(BeEmpty())
}
