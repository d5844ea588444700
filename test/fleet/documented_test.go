// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// documented does what docs/placement.md and docs/conditions.md show, in their order.
func documented(t *testing.T, f *fleet) {
	g := NewWithT(t)
	manifest, commands := "", []string{}
	for _, name := range []string{"placement.md", "conditions.md"} {
		page, err := os.ReadFile(filepath.Join(f.root, "docs", name))
		g.Expect(err).NotTo(HaveOccurred())
		// Manifests after the first continue it.
		manifest += strings.Join(fenced(string(page), "```yaml\n"), "")
		shown := fenced(string(page), "```sh\n")
		g.Expect(len(shown)).To(BeNumerically(">", 1), "%s shows commands", name)
		commands = append(commands, shown...)
	}
	// In this fleet the page's clusters and its namespace have other names.
	ours := strings.NewReplacer("eu-1", "member-1", "us-1", "member-3", "eu-2", "member-2", "shop", "documented")
	g.Expect(f.hub.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "documented"}})).To(Succeed())
	file := filepath.Join(f.dir, "documented.yaml")
	g.Expect(os.WriteFile(file, []byte(ours.Replace(manifest)), 0o600)).To(Succeed())
	f.kubectl(t, "hub", "apply", "-f", file)

	key := types.NamespacedName{Namespace: "documented", Name: "cache"}
	expect := func(when string) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			redis := &flotillav1.Redis{}
			g.Expect(f.hub.Get(f.ctx, key, redis)).To(Succeed())
			g.Expect(redis.Status.PlacedIn).To(Equal([]string{"member-1", "member-2"}))
			g.Expect(conditionStatus(redis.Status.Conditions, flotillav1.ConditionFullyReady)).To(Equal("True"))
			g.Expect(redis.Status.ReadyReplicas).To(Equal(int32(8)), "5 in member-1, which has an override, and 3 in member-2")
			g.Expect(redis.Annotations).NotTo(Or(HaveKey(flotillav1.AnnotationConfirmLeave), HaveKey(flotillav1.AnnotationConfirmRemoval), HaveKey(flotillav1.AnnotationConfirmRecreated), HaveKey(flotillav1.AnnotationRelease), HaveKey(flotillav1.AnnotationPromote)), "works once and is removed")
		}, 60*time.Second, 200*time.Millisecond).Should(Succeed(), when)
	}
	expect("after the manifest")
	for _, command := range commands {
		run := exec.CommandContext(f.ctx, "bash", "-euc", ours.Replace(command))
		run.Env = append(os.Environ(), "PATH="+f.dir+":"+filepath.Join(f.root, "bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+filepath.Join(f.dir, "kubeconfigs", "hub"))
		out, err := run.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), "%s\n%s", command, out)
		expect("after " + command)
	}
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	g.Expect(f.hub.Delete(f.ctx, redis)).To(Succeed())
	g.Eventually(func() bool {
		f.confirmHeld(redis)
		return apierrors.IsNotFound(f.hub.Get(f.ctx, key, redis))
	}, 60*time.Second, 200*time.Millisecond).Should(BeTrue())
	for _, name := range f.registered() {
		g.Expect(apierrors.IsNotFound(f.members[name].Get(f.ctx, key, redis))).To(BeTrue(), "the copy in %s is gone", name)
	}
	// The garbage collector of a member looks for new kinds every 30 s, and knows nothing of an owner until then.
	for _, name := range f.registered() {
		g.Eventually(func() []string { return f.parts(name, key.Namespace) }, time.Minute, 200*time.Millisecond).Should(BeEmpty(), "in "+name)
	}
}

// parts names what is left of the Redises of a namespace in a member.
func (f *fleet) parts(member, namespace string) []string {
	var names []string
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}} {
		if err := f.members[member].List(f.ctx, list, client.InNamespace(namespace)); err != nil {
			return []string{err.Error()}
		}
		_ = apimeta.EachListItem(list, func(o runtime.Object) error {
			if object := o.(client.Object); metav1.GetControllerOf(object) != nil {
				names = append(names, fmt.Sprintf("%T %s", object, object.GetName()))
			}
			return nil
		})
	}
	return names
}

// fenced returns the blocks of a page that begin with some lines.
func fenced(page, opening string) []string {
	var blocks []string
	for _, found := range regexp.MustCompile("(?ms)^"+regexp.QuoteMeta(opening)+"(.*?)^```").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, found[1])
	}
	return blocks
}
