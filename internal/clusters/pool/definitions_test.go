// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/config/crd"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// skewed is a fixture with a member whose definitions are spoilt.
type skewed struct {
	*fixture
	member *testenv.Cluster
}

// startSkewed begins with the definitions of this build.
func startSkewed(t *testing.T, member *testenv.Cluster, adjust ...func(*Config)) *skewed {
	t.Helper()
	adjust = append(adjust, func(c *Config) { c.InspectInterval = 200 * time.Millisecond })
	f := &skewed{fixture: startPool(t, hubCluster.Namespace(t), adjust...), member: member}
	t.Cleanup(func() { freeClaim(member) })
	for _, kind := range clusters.OurKinds() {
		f.put(kind, func(*apiextensionsv1.CustomResourceDefinition) {})
	}
	return f
}

// TestPool_definitions spoils those of a member of its own.
func TestPool_definitions(t *testing.T) {
	t.Parallel()
	member := testenv.Start(t)
	for name, run := range map[string]func(*testing.T, *testenv.Cluster){
		"are verified": testVerify, "are being deleted": testDeletion, "are installed": testInstall,
		"are not installed where that is not allowed": testClaimedElsewhere, "are the first ones": testFirst,
	} {
		t.Run(name, func(t *testing.T) { run(t, member) })
	}
}

// crdOf returns our CustomResourceDefinition of a kind.
func crdOf(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	for _, raw := range [][]byte{crd.NodePools, crd.Redises} {
		object := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, object); err != nil {
			t.Fatal(err)
		}
		if object.Spec.Names.Kind == kind {
			return object
		}
	}
	t.Fatalf("there is no definition of %s", kind)
	return nil
}

// editSpec changes the schema of spec.
func editSpec(object *apiextensionsv1.CustomResourceDefinition, change func(map[string]apiextensionsv1.JSONSchemaProps)) {
	schema := object.Spec.Versions[0].Schema.OpenAPIV3Schema
	spec := schema.Properties["spec"]
	change(spec.Properties)
	schema.Properties["spec"] = spec
}

// definition reads a definition in the member; nil when there is none.
func (f *skewed) definition(kind string) *apiextensionsv1.CustomResourceDefinition {
	theirs := crdOf(f.t, kind)
	err := f.member.Client.Get(context.Background(), client.ObjectKeyFromObject(theirs), theirs)
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Expect(err).NotTo(HaveOccurred())
	return theirs
}

// remove deletes a definition and waits until it is gone.
func (f *skewed) remove(kind string) {
	f.t.Helper()
	f.Expect(f.member.Client.Delete(context.Background(), crdOf(f.t, kind))).To(Succeed())
	f.Eventually(func() bool {
		d := f.definition(kind)
		return d == nil || d.DeletionTimestamp == nil
	}).Should(BeTrue())
}

// put creates or replaces a definition.
func (f *skewed) put(kind string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	f.t.Helper()
	theirs := crdOf(f.t, kind)
	change(theirs)
	if there := f.definition(kind); there != nil {
		theirs.ResourceVersion = there.ResourceVersion
		f.Expect(f.member.Client.Update(context.Background(), theirs)).To(Succeed())
		return
	}
	f.Expect(f.member.Client.Create(context.Background(), theirs)).To(Succeed())
}

// message reads the message of a published condition.
func (f *skewed) message(name, conditionType string) string {
	object := &flotillav1.MemberCluster{}
	f.Expect(hubCluster.Client.Get(context.Background(), client.ObjectKey{Name: name}, object)).To(Succeed())
	return apimeta.FindStatusCondition(object.Status.Conditions, conditionType).Message
}

func (f *skewed) lacks(name string) func() map[string][]clusters.MissingField {
	return func() map[string][]clusters.MissingField {
		s, _ := f.pool.Snapshot(multicluster.ClusterName(name))
		return s.Lacks
	}
}

func withoutPriority(object *apiextensionsv1.CustomResourceDefinition) {
	delete(object.Annotations, flotillav1.AnnotationCRDRevision)
	editSpec(object, func(fields map[string]apiextensionsv1.JSONSchemaProps) { delete(fields, "priorityClassName") })
}

func fromTheFuture(object *apiextensionsv1.CustomResourceDefinition) {
	object.Annotations[flotillav1.AnnotationCRDRevision] = "999"
	editSpec(object, func(fields map[string]apiextensionsv1.JSONSchemaProps) {
		fields["invented"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	})
}

func testVerify(t *testing.T, member *testenv.Cluster) {
	f := startSkewed(t, member)
	f.remove("Redis")
	secret := f.register("verifies", f.member.Kubeconfig())
	f.Eventually(f.condition("verifies", flotillav1.ConditionAPIsServed)).Should(Equal("False CRDMissing"))
	f.Expect(f.message("verifies", flotillav1.ConditionAPIsServed)).To(ContainSubstring("redises.flotilla.dev"))
	f.Expect(f.engaged.count("verifies")).To(BeZero())

	// It joins when they appear, older ones as well.
	f.put("Redis", withoutPriority)
	f.Eventually(f.condition("verifies", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(f.condition("verifies", flotillav1.ConditionAPIsServed)).Should(Equal("True VersionSkew"))
	f.Expect(f.message("verifies", flotillav1.ConditionAPIsServed)).To(ContainSubstring("spec.priorityClassName"))
	f.Expect(f.lacks("verifies")()).To(Equal(map[string][]clusters.MissingField{"Redis": {{Path: "spec.priorityClassName"}}}))

	// An upgrade and a newer revision are noticed while it is engaged, and nothing is written.
	f.put("Redis", func(*apiextensionsv1.CustomResourceDefinition) {})
	f.Eventually(f.condition("verifies", flotillav1.ConditionAPIsServed)).Should(Equal("True AllServed"))
	f.Eventually(f.lacks("verifies")).Should(BeNil())
	f.put("Redis", fromTheFuture)
	f.Eventually(func() string { return f.message("verifies", flotillav1.ConditionAPIsServed) }).Should(ContainSubstring("newer CRDs"))
	f.Expect(f.definition("Redis").ManagedFields).NotTo(ContainElement(HaveField("Manager", string(preflight.FieldOwner))))
	f.Expect(f.engaged.count("verifies")).To(Equal(1))

	// Without them it is not worked with, and it is taken up again with them.
	f.remove("Redis")
	f.Eventually(f.condition("verifies", flotillav1.ConditionAPIsServed)).Should(Equal("False CRDMissing"))
	f.Eventually(f.condition("verifies", flotillav1.ConditionReady)).Should(Equal("False CRDMissing"))
	f.Expect(f.engaged.ended("verifies")).To(BeTrue())
	f.put("Redis", func(*apiextensionsv1.CustomResourceDefinition) {})
	f.Eventually(f.condition("verifies", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count("verifies") }).Should(Equal(2))
	f.unregister(secret)
}

func testDeletion(t *testing.T, member *testenv.Cluster) {
	ctx := context.Background()
	f := startSkewed(t, member)
	secret := f.register("deletes", f.member.Kubeconfig())
	f.Eventually(f.condition("deletes", flotillav1.ConditionAPIsServed)).Should(Equal("True AllServed"))
	waits := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "waits", Finalizers: []string{flotillav1.FinalizerNodePool}}}
	f.Expect(f.member.Client.Create(ctx, waits)).To(Succeed())
	f.Expect(f.member.Client.Delete(ctx, crdOf(t, "NodePool"))).To(Succeed())
	f.Eventually(f.condition("deletes", flotillav1.ConditionAPIsServed)).Should(Equal("False CRDMissing"))
	f.Expect(f.message("deletes", flotillav1.ConditionAPIsServed)).To(ContainSubstring("is deleting nodepools.flotilla.dev"))
	f.Expect(f.condition("deletes", flotillav1.ConditionReady)()).To(Equal("True Connected"), "objects wait for the manager to let them go")

	f.Expect(f.member.Client.Get(ctx, client.ObjectKeyFromObject(waits), waits)).To(Succeed())
	waits.Finalizers = nil
	f.Expect(f.member.Client.Update(ctx, waits)).To(Succeed())
	f.Eventually(f.condition("deletes", flotillav1.ConditionReady)).Should(Equal("False CRDMissing"))
	f.unregister(secret)
}

func testInstall(t *testing.T, member *testenv.Cluster) {
	ctx := context.Background()
	f := startSkewed(t, member, func(c *Config) { c.InstallCRDs = true })
	f.remove("Redis")
	f.remove("NodePool")
	secret := f.register("installs", f.member.Kubeconfig(), func(s *corev1.Secret) {
		s.Annotations = map[string]string{flotillav1.AnnotationPaused: "true"}
	})
	f.Eventually(f.condition("installs", flotillav1.ConditionAPIsServed)).Should(Equal("False CRDMissing"), "a paused member is not written")
	f.patch(secret, func() { secret.Annotations = nil })
	f.Eventually(f.condition("installs", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Expect(f.condition("installs", flotillav1.ConditionAPIsServed)()).To(Equal("True AllServed"))
	f.Expect(f.definition("NodePool").ManagedFields).To(ContainElement(HaveField("Manager", string(preflight.FieldOwner))))

	// One that is deleted is put back.
	engaged, err := f.pool.Member("installs")
	f.Expect(err).NotTo(HaveOccurred())
	uid := f.definition("Redis").UID
	f.Expect(f.member.Client.Delete(ctx, f.definition("Redis"))).To(Succeed())
	f.Eventually(func() bool { d := f.definition("Redis"); return d != nil && d.UID != uid }).Should(BeTrue())
	f.Eventually(func() bool { again, err := f.pool.Member("installs"); return err == nil && again != engaged }).Should(BeTrue())
	f.Eventually(f.condition("installs", flotillav1.ConditionReady)).Should(Equal("True Connected"))

	// An older one is upgraded, a newer one is left alone.
	f.put("Redis", withoutPriority)
	f.Eventually(func() string { return f.definition("Redis").Annotations[flotillav1.AnnotationCRDRevision] }).
		Should(Equal(crdOf(t, "Redis").Annotations[flotillav1.AnnotationCRDRevision]))
	f.Eventually(f.lacks("installs")).Should(BeNil())
	f.Eventually(f.condition("installs", flotillav1.ConditionAPIsServed)).Should(Equal("True AllServed"))
	f.put("Redis", fromTheFuture)
	generation := f.definition("Redis").Generation
	f.Eventually(func() string { return f.message("installs", flotillav1.ConditionAPIsServed) }).Should(ContainSubstring("newer CRDs"))
	f.Expect(f.definition("Redis").Generation).To(Equal(generation))
	f.unregister(secret)
}

// testFirst has a member that nobody has upgraded since the schemas got numbers. A manager that may not upgrade it works
// with it and says what it lacks, one that may does it under the objects.
func testFirst(t *testing.T, member *testenv.Cluster) {
	ctx := context.Background()
	f := startSkewed(t, member)
	member.GoBack(t)
	old := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: flotillav1.NodePoolSpec{
		NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/pool": "old"}},
	}}
	f.Expect(member.Client.Create(ctx, old)).To(Succeed())
	secret := f.register("first", f.member.Kubeconfig())
	f.Eventually(f.condition("first", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(f.condition("first", flotillav1.ConditionAPIsServed)).Should(Equal("True VersionSkew"))
	f.Expect(f.message("first", flotillav1.ConditionAPIsServed)).To(And(
		ContainSubstring("nodepools.flotilla.dev, redises.flotilla.dev without spec.affinity"), HaveSuffix("; apply config/member there")))
	snapshot, _ := f.pool.Snapshot("first")
	f.Expect(snapshot.Lacks["Redis"]).To(ContainElements(clusters.MissingField{Path: "spec.podMetadata"}, HaveField("Path", "spec.updateStrategy")))
	f.Expect(snapshot.Lacks["NodePool"]).To(ConsistOf(HaveField("Path", "spec.reporting")))
	f.Expect(snapshot.LacksStatus).To(Equal(map[string][]string{
		"NodePool": {"status.change", "status.choice", "status.departing", "status.recreated", "status.requested", "status.rollout", "status.trials", "status.utilization"},
		"Redis": {
			"status.change", "status.choice", "status.clusters[].failovers", "status.clusters[].lastFailoverTime", "status.clusters[].primary",
			"status.departing", "status.failovers", "status.lastFailoverTime", "status.primaryEpoch", "status.recreated", "status.rollout", "status.trials",
		},
	}))
	f.Expect(f.definition("NodePool").Annotations).To(HaveKeyWithValue(flotillav1.AnnotationCRDRevision, "1"), "nothing is written")
	f.unregister(secret)

	installing := startPool(t, hubCluster.Namespace(t), func(c *Config) {
		c.InspectInterval, c.InstallCRDs = 200*time.Millisecond, true
	})
	f = &skewed{fixture: installing, member: member}
	member.GoBack(t)
	old.ResourceVersion, old.UID = "", ""
	f.Expect(member.Client.Create(ctx, old)).To(Succeed())
	uid, version := old.UID, old.ResourceVersion
	secret = f.register("upgraded", f.member.Kubeconfig())
	f.Eventually(f.condition("upgraded", flotillav1.ConditionAPIsServed)).Should(Equal("True AllServed"))
	f.Expect(f.definition("NodePool").Annotations).NotTo(HaveKeyWithValue(flotillav1.AnnotationCRDRevision, "1"))
	f.Expect(member.Client.Get(ctx, client.ObjectKeyFromObject(old), old)).To(Succeed())
	f.Expect(old.UID).To(Equal(uid))
	f.Expect(old.ResourceVersion).To(Equal(version), "the schemas change under the objects, and nothing writes these")
	f.unregister(secret)
	f.Expect(client.IgnoreNotFound(member.Client.Delete(ctx, old))).To(Succeed())
}

func testClaimedElsewhere(t *testing.T, member *testenv.Cluster) {
	f := startSkewed(t, member, func(c *Config) { c.InstallCRDs = true; c.HubID = "second" })
	holder := preflight.Claim{HubID: "first", Instance: "x", Process: "y", Duration: time.Hour, Clock: f.pool.cfg.Clock}
	_, err := holder.Hold(context.Background(), f.member.Client, preflight.HoldOptions{})
	f.Expect(err).NotTo(HaveOccurred())
	f.remove("Redis")
	secret := f.register("foreign", f.member.Kubeconfig())
	f.Eventually(f.condition("foreign", flotillav1.ConditionClaimed)).Should(Equal("False ClaimedByAnotherHub"))
	f.Expect(f.definition("Redis")).To(BeNil())
	f.unregister(secret)
}

// TestPool_a_definition_that_is_gone_ends_the_session_though_it_is_listed has discovery come late, as on a busy API server.
func TestPool_a_definition_that_is_gone_ends_the_session_though_it_is_listed(t *testing.T) {
	t.Parallel()
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.InspectInterval, c.InstallCRDs = 200*time.Millisecond, true })
	server := clusterstest.Start(t)
	secret := f.register("late", server.Kubeconfig())
	f.Eventually(f.condition("late", flotillav1.ConditionReady)).Should(Equal("True Connected"))

	listed := &metav1.APIResourceList{
		GroupVersion: flotillav1.GroupVersion.String(), APIResources: []metav1.APIResource{{Name: "redises"}, {Name: "nodepools"}},
	}
	server.Misbehave(t, clusterstest.Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if req.URL.Path != "/apis/"+flotillav1.GroupVersion.String() {
			well.ServeHTTP(w, req)
			return
		}
		_ = json.NewEncoder(w).Encode(listed)
	}}, true)
	server.Remove(crdOf(t, "Redis"))
	f.Eventually(func() bool { return f.engaged.ended("late") }).Should(BeTrue(), "objects of a definition that is gone are not worked with")

	server.Put(crdOf(t, "Redis"))
	f.Eventually(f.condition("late", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count("late") }).Should(Equal(2), "they are read anew")
	f.unregister(secret)
}
