// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestUninstallDrill does what docs/operations.md says about uninstalling, and looks at everything that is left.
func TestUninstallDrill(t *testing.T) {
	u := &uninstall{fleet: start(t, 2)}
	u.prepare(t)
	for _, step := range []scenario{
		{"MembersJoin", membersJoin},
		{"Installed", func(t *testing.T, _ *fleet) { u.install(t) }},
		{"DeletedAtOnceItComesBack", func(t *testing.T, _ *fleet) { u.deletedAtOnce(t) }},
		{"KeepingWhatRuns", func(t *testing.T, _ *fleet) { u.keeping(t) }},
		{"RemovingEverything", func(t *testing.T, _ *fleet) { u.removing(t) }},
		{"TheManagerIsGoneTooEarly", func(t *testing.T, _ *fleet) { u.tooEarly(t) }},
		{"InstalledByThePage", func(t *testing.T, _ *fleet) { u.byThePage(t) }},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, u.fleet) }) {
			t.Fatalf("%s failed; the steps after it build on it", step.name)
		}
	}
}

// uninstall is a fleet with the plugin, and a kubeconfig that has the page's contexts.
type uninstall struct {
	*fleet
	env []string
	// folder has what the pages name of the repository.
	folder string
}

func (u *uninstall) prepare(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	u.folder = t.TempDir()
	for _, name := range []string{"dist", "config", "charts"} {
		g.Expect(os.Symlink(filepath.Join(u.root, name), filepath.Join(u.folder, name))).To(Succeed())
	}
	config := clientcmdapi.NewConfig()
	for context, name := range map[string]string{"hub-admin": "hub", "eu-1-admin": "member-1", "us-1-admin": "member-2", "eu-2-admin": "member-3"} {
		one, err := clientcmd.LoadFromFile(filepath.Join(u.dir, "kubeconfigs", name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(clientcmdapi.FlattenConfig(one)).To(Succeed())
		current := one.Contexts[one.CurrentContext]
		config.Clusters[context], config.AuthInfos[context] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: context}
	}
	config.CurrentContext = "hub-admin"
	kubeconfig := filepath.Join(u.dir, "config", "uninstall.kubeconfig")
	g.Expect(clientcmd.WriteToFile(*config, kubeconfig)).To(Succeed())
	u.env = append(os.Environ(), "PATH="+u.dir+":"+filepath.Join(u.root, "bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig)
}

// run runs a line as a shell in the repository would. What it writes is not to be found there.
func (u *uninstall) run(t *testing.T, line string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(u.ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = u.folder, u.env
	out, err := cmd.CombinedOutput()
	t.Logf("$ %s\n%s", line, out)
	return string(out), err
}

// block returns the lines of a block of commands below a heading of the page.
func (u *uninstall) block(t *testing.T, heading string, number int) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(u.root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n##")
	blocks := fenced(section, "```sh\n")
	if len(blocks) <= number {
		t.Fatalf("%q has %d blocks of commands", heading, len(blocks))
	}
	// In this fleet the page's members have other names; their contexts do not.
	ours := strings.NewReplacer("eu-1-admin", "eu-1-admin", "us-1-admin", "us-1-admin", "eu-1", "member-1", "us-1", "member-2")
	return strings.Split(strings.TrimSpace(ours.Replace(blocks[number])), "\n")
}

// do runs a block of commands of the page. The manager of the suite is no Pod: it gets the environment of its Deployment,
// has no rollout, and ends with it.
func (u *uninstall) do(t *testing.T, heading string, number int) {
	t.Helper()
	for _, line := range u.block(t, heading, number) {
		_, environment, set := strings.Cut(line, " set env deployment/flotilla-manager ")
		switch {
		case set:
			u.stopManager(t)
			u.manager = u.runManager(t, "hub", hubID, flagsOf(environment)...)
		case strings.Contains(line, " rollout status deployment/flotilla-manager"):
			continue
		case strings.Contains(line, "delete -f dist/install.yaml"):
			u.stopManager(t)
		}
		if out, err := u.run(t, line); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}

// flagsOf returns the flags that mean the same as variables of the manager.
func flagsOf(environment string) []string {
	var flags []string
	for variable := range strings.FieldsSeq(environment) {
		key, value, _ := strings.Cut(strings.TrimPrefix(variable, "FLOTILLA_"), "=")
		flags = append(flags, "--"+strings.ToLower(strings.ReplaceAll(key, "_", "-")), value)
	}
	return flags
}

// install does what an administrator does for a hub and two members, or does again, and waits for the objects.
func (u *uninstall) install(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	u.stopManager(t)
	u.fleet.install(t, "hub")
	for name, region := range u.regions() {
		u.prepareMember(t, name)
		u.register(t, name, region)
	}
	u.freeLease(t)
	u.startManager(t)
	placedAndAddedUp(t, u.fleet)
	scratch := cacheRedis()
	scratch.Name, scratch.Spec.Placement.Overrides, scratch.Spec.Storage.RetentionPolicy = "scratch", nil, flotillav1.RedisRetentionDelete
	g.Expect(client.IgnoreAlreadyExists(u.hub.Create(u.ctx, scratch))).To(Succeed())
	for _, name := range u.registered() {
		own := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
		own.Spec.Storage.RetentionPolicy = flotillav1.RedisRetentionDelete
		g.Expect(client.IgnoreAlreadyExists(u.members[name].Create(u.ctx, own))).To(Succeed())
	}
	g.Eventually(func(g Gomega) {
		for _, name := range u.registered() {
			for _, object := range []string{"cache", "scratch", "own"} {
				redis := &flotillav1.Redis{}
				g.Expect(u.members[name].Get(u.ctx, client.ObjectKey{Namespace: namespace, Name: object}, redis)).To(Succeed())
				g.Expect(conditionStatus(redis.Status.Conditions, flotillav1.ConditionReady)).To(Equal("True"), "%s in %s", object, name)
				g.Expect(len(redis.Finalizers) == 1).To(Equal(object != "cache"), "%s in %s: %v", object, name, redis.Finalizers)
			}
			g.Expect(u.memberPool(name).Finalizers).To(Equal([]string{flotillav1.FinalizerNodePool}))
		}
		g.Expect(u.hubRedis().Finalizers).To(Equal([]string{flotillav1.FinalizerPlacement}))
	}, 90*time.Second, 200*time.Millisecond).Should(Succeed())
	u.settled(t, u.registered()...)
}

// expectKept compares what runs in members with what ran before.
func (u *uninstall) expectKept(t *testing.T, before map[string]string, members ...string) {
	t.Helper()
	NewWithT(t).Expect(cmp.Diff(before, u.running(t, members...))).To(BeEmpty(), "what runs is what ran")
}

// expectFree looks at every object of clusters for what would wait for us.
func (u *uninstall) expectFree(t *testing.T, clusters ...string) {
	t.Helper()
	for _, name := range clusters {
		NewWithT(t).Eventually(func() []string { return u.waiting(t, name) }, 60*time.Second, time.Second).Should(BeEmpty(), "nothing in %s waits for us", name)
	}
}

// expectNoTrace looks at every object of clusters for anything of ours that the page does not name as staying.
func (u *uninstall) expectNoTrace(t *testing.T, named []string, clusters ...string) {
	t.Helper()
	for _, name := range clusters {
		NewWithT(t).Eventually(func() []string { return u.traces(t, name, named...) }, 90*time.Second, time.Second).Should(BeEmpty(), "nothing of ours is left in %s", name)
	}
}

// deletedAtOnce takes the manifest away first, and puts it back.
func (u *uninstall) deletedAtOnce(t *testing.T) {
	g := NewWithT(t)
	before := u.running(t, u.registered()...)
	u.deleteManifest(t)
	secrets := &corev1.SecretList{}
	g.Expect(u.hub.List(u.ctx, secrets, client.InNamespace("flotilla-clusters"), client.HasLabels{flotillav1.LabelCluster})).To(Succeed())
	g.Expect(secrets.Items).To(HaveLen(2), "the registrations are kept")
	g.Expect(u.hubRedis().DeletionTimestamp).To(BeNil(), "the objects are kept")
	u.expectKept(t, before, u.registered()...)
	u.install(t)
	u.expectKept(t, before, u.registered()...)
}

// deleteManifest deletes what was installed while members are registered, and has the manager end at once.
func (u *uninstall) deleteManifest(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	u.killManager()
	out, err := u.run(t, "timeout 120 kubectl delete -f dist/install.yaml")
	g.Expect(err).To(HaveOccurred(), "not everything can be deleted")
	g.Expect(strings.Count(out, "members are registered")).To(Equal(4), "three definitions and a namespace are kept")
	g.Expect(out).To(ContainSubstring(`deployment.apps "flotilla-manager" deleted`))
	// Where something is refused kubectl does not wait for the rest.
	g.Eventually(func() []string {
		var going []string
		for _, object := range u.everything(t, "hub") {
			if object.DeletionTimestamp != nil {
				going = append(going, nameOf(object))
			}
		}
		return going
	}, 60*time.Second, time.Second).Should(BeEmpty(), "nothing hangs")
}

// keeping ends the fleet and keeps what runs; in the second member, without anything of ours to look after it.
func (u *uninstall) keeping(t *testing.T) {
	const heading = "Keeping what runs"
	g, before := NewWithT(t), u.running(t, u.registered()...)
	u.do(t, heading, 0)
	u.expectFree(t, append(u.registered(), "hub")...)
	u.expectNoTrace(t, nil, "hub")
	u.expectKept(t, before, u.registered()...)
	u.do(t, heading, 1)
	u.expectFree(t, "member-2")
	u.expectKept(t, before, u.registered()...)
	g.Expect(u.kubectl(t, "member-2", "api-resources", "--api-group=flotilla.dev", "-o", "name")).To(BeEmpty())

	// For the next step: what was left in the second member would be in the way of objects of the same names.
	u.kubectl(t, "member-2", "delete", "namespace", namespace)
	u.kubectl(t, "member-2", "delete", "runtimeclass", flotillav1.RuntimeClassPrefix+"web")
	first := u.running(t, "member-1")
	u.install(t)
	u.expectKept(t, first, "member-1")
}

// removing ends the fleet with all that it has made.
func (u *uninstall) removing(t *testing.T) {
	const heading = "Removing everything"
	u.do(t, heading, 0)
	u.expectFree(t, append(u.registered(), "hub")...)
	u.expectNoTrace(t, nil, "hub")
	u.expectNoTrace(t, []string{"PersistentVolumeClaim shop/data-cache-", "Secret shop/cache-auth"}, u.registered()...)
	for _, name := range u.registered() {
		for _, node := range u.nodes(name) {
			NewWithT(t).Expect(node.Labels).NotTo(HaveKey("example.com/team"), "%s is as before", node.Name)
		}
	}
	u.do(t, heading, 1)
	u.expectNoTrace(t, nil, u.registered()...)
	u.install(t)
}

// tooEarly deletes the manifest twice: the second time it waits for objects that nobody lets go.
func (u *uninstall) tooEarly(t *testing.T) {
	const heading = "When the manager is gone too early"
	g, before := NewWithT(t), u.running(t, u.registered()...)
	u.deleteManifest(t)
	out, err := u.run(t, "kubectl delete -f dist/install.yaml --ignore-not-found --timeout=30s")
	g.Expect(err).To(HaveOccurred())
	g.Expect(out).To(ContainSubstring("timed out waiting for the condition on customresourcedefinitions/"))
	g.Expect(u.waiting(t, "hub")).NotTo(BeEmpty())
	for _, name := range u.registered() {
		g.Eventually(func(g Gomega) {
			claim := &coordinationv1.Lease{}
			g.Expect(u.members[name].Get(u.ctx, client.ObjectKey{Namespace: "flotilla-system", Name: "flotilla-hub"}, claim)).To(Succeed())
			end := claim.Spec.RenewTime.Add(time.Duration(*claim.Spec.LeaseDurationSeconds) * time.Second)
			g.Expect(time.Now()).To(BeTemporally(">", end))
		}, 200*time.Second, time.Second).Should(Succeed(), "the claim on %s runs out within 3 minutes", name)
	}
	u.do(t, heading, 0)
	u.expectFree(t, append(u.registered(), "hub")...)
	u.expectNoTrace(t, nil, "hub")
	u.expectKept(t, before, u.registered()...)
	for _, name := range u.registered() {
		for _, node := range u.nodes(name) {
			g.Expect(node.Annotations).NotTo(HaveKey(flotillav1.AnnotationNodeRecord), "what detach takes from nodes is the record")
		}
	}
}

// byThePage begins with an empty hub and does what docs/install.md says. The manager of the suite is no Pod: it is started
// when the page waits for its Deployment.
func (u *uninstall) byThePage(t *testing.T) {
	g := NewWithT(t)
	for _, name := range u.registered() {
		// Copies of the hub that was are not those of this one.
		u.kubectl(t, name, "delete", "redises,nodepools", "--all", "--all-namespaces")
		u.kubectl(t, name, "delete", "namespace", namespace)
	}
	u.kubectl(t, "hub", "delete", "namespace", namespace)
	page, err := os.ReadFile(filepath.Join(u.root, "docs", "install.md"))
	g.Expect(err).NotTo(HaveOccurred())
	manifests := fenced(string(page), "```yaml\n")
	g.Expect(manifests).NotTo(BeEmpty())
	g.Expect(os.WriteFile(filepath.Join(u.folder, "cache.yaml"), []byte(manifests[0]), 0o600)).To(Succeed())
	blocks := fenced(string(page), "<!-- run -->\n```sh\n")
	g.Expect(blocks).To(HaveLen(4))
	for _, block := range blocks {
		for line := range strings.SplitSeq(strings.TrimSpace(block), "\n") {
			if strings.Contains(line, "rollout status") {
				u.writeKubeconfig(t, "hub")
				u.manager = u.runManager(t, "hub", "prod")
				continue
			}
			if out, err := u.run(t, line); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
	}
	out, err := u.run(t, "kubectl get deployment -n flotilla-system flotilla-manager -o jsonpath='{.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].args}'")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(ContainSubstring("registry.example.com/flotilla-manager:v0.1.0"), ContainSubstring("--hub-id=prod")))
	redis := &flotillav1.Redis{}
	g.Eventually(func(g Gomega) {
		g.Expect(u.hub.Get(u.ctx, client.ObjectKey{Namespace: "shop", Name: "cache"}, redis)).To(Succeed())
		g.Expect(redis.Status.PlacedIn).To(Equal([]string{"eu-1", "eu-2", "us-1"}))
		g.Expect(conditionStatus(redis.Status.Conditions, flotillav1.ConditionFullyReady)).To(Equal("True"))
	}, 60*time.Second, 200*time.Millisecond).Should(Succeed())
}
