// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// right is one verb on one resource, or on one object of it where a rule says which; or on a path.
type right struct{ group, resource, name, verb string }

func (r right) String() string {
	return strings.TrimSuffix(strings.Join([]string{r.verb, strings.TrimSuffix(r.resource+"."+r.group, "."), r.name}, " "), " ")
}

// needs are the rights that a request has used.
func (r request) needs() []right {
	if r.ObjectRef.Resource == "" {
		path, _ := url.Parse(r.RequestURI)
		return []right{{resource: path.Path, verb: r.Verb}}
	}
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	verbs := []string{r.Verb}
	switch {
	case r.Verb == "patch" && r.ResponseStatus.Code == 201:
		// An apply that makes the object.
		verbs = append(verbs, "create")
	case r.Verb == "watch":
		// A server that does not stream lists is asked for one first.
		verbs = append(verbs, "list")
	}
	var rights []right
	for _, verb := range verbs {
		rights = append(rights, right{r.ObjectRef.APIGroup, resource, "", verb}, right{r.ObjectRef.APIGroup, resource, r.ObjectRef.Name, verb})
	}
	return rights
}

// passed says whether a request got past the question whether it is allowed. One that nobody knew, or that was turned away
// before that, has not been asked.
func (r request) passed() bool {
	code := r.ResponseStatus.Code
	return code >= 200 && code < 300 || code == 404 || code == 409
}

// shownElsewhere are rights that no request of the suite's manager needs, and the test that fails without them.
var shownElsewhere = map[string]string{
	// A check of who may write what, which admission asks for.
	"write identities.flotilla.dev": "TestMember_identities_are_for_the_hub",
	// Admission asks for it where an object is given an owner that has to wait for it.
	"update redises/finalizers.flotilla.dev":   "RightsOnFinalizersAreTaken",
	"update nodepools/finalizers.flotilla.dev": "RightsOnFinalizersAreTaken",
	// Simulated Pods do not fail to be created, their Secrets are not those of earlier versions, and their configuration stays.
	"list events.events.k8s.io": "TestMember_stolen_credential",
	"patch secrets":             "TestMember_stolen_credential",
	"delete configmaps":         "TestMember_stolen_credential",
	// Read after a conflict only, for which the writes of others have to meet.
	"get nodes": "TestLargePoolDrill/OthersWriteBesideIt",
	// The suite's manager serves no metrics.
	"create tokenreviews.authentication.k8s.io":        "TestMonitoringDrill",
	"create subjectaccessreviews.authorization.k8s.io": "TestMonitoringDrill",
}

// withoutRights is a time in which a scenario has taken rights from the hub in a member.
type withoutRights struct {
	member      string
	began, over time.Time
}

// rightsWereRight compares what the manifests let the manager do with all that it has done: a right that no scenario needed
// is one too many, and what was refused is a right that is missing. To take any of them away is therefore to have this fail.
func rightsWereRight(t *testing.T, f *fleet) {
	given := map[string]map[right]bool{
		"hub":    rightsIn(t, "dist/install.yaml", "flotilla-manager", "flotilla-registrations"),
		"member": rightsIn(t, "dist/member.yaml", "flotilla-hub"),
	}
	needed := map[string]map[right]string{"hub": {}, "member": {}}
	for _, cluster := range append([]string{"hub"}, f.memberNames()...) {
		asked := f.audit(t, cluster)
		asked.from = 0
		// An API server that has just started refuses for a moment what it grants later: it has not read the roles yet.
		granted, refused := map[right]bool{}, []request{}
		for _, r := range asked.read(t) {
			account := r.User.Username[strings.LastIndex(r.User.Username, ":")+1:]
			where := map[string]string{"flotilla-manager": "hub", "flotilla-hub": "member"}[account]
			for _, right := range r.needs() {
				if given[where][right] && needed[where][right] == "" {
					needed[where][right] = f.scenarioAt(r.Received)
				}
				granted[right] = granted[right] || r.passed()
			}
			if r.ResponseStatus.Code == 403 && !f.tookRights(cluster, r.Received) {
				refused = append(refused, r)
			}
		}
		for _, r := range refused {
			if !slices.ContainsFunc(r.needs(), func(right right) bool { return granted[right] }) {
				t.Errorf("%s refused %s to %s in %s", cluster, r, r.User.Username, f.scenarioAt(r.Received))
			}
		}
	}
	for where, rights := range given {
		for right := range rights {
			elsewhere := shownElsewhere[right.String()]
			if needed[where][right] == "" && elsewhere == "" {
				t.Errorf("on the %s nothing needed the right to %s", where, right)
			}
			t.Logf("%s: %s: needed by %s", where, right, cmp.Or(elsewhere, needed[where][right]))
		}
	}
	refused := regexp.MustCompile(`(?i)time=(\S+).*(is forbidden|cannot \w+ resource)`)
	for line := range strings.Lines(f.managerLog()) {
		// A namespace that is being deleted takes nothing new from anyone.
		if found := refused.FindStringSubmatch(line); found != nil && !strings.Contains(line, "because it is being terminated") {
			at, err := time.Parse(time.RFC3339Nano, found[1])
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(f.memberNames(), func(name string) bool { return strings.Contains(line, name) && f.tookRights(name, at) }) {
				t.Errorf("the log speaks of a right that is missing: %s", line)
			}
		}
	}
}

// rightsOnFinalizersTaken takes from the hub the right to change finalizers, without which its objects cannot own others.
func rightsOnFinalizersTaken(t *testing.T, f *fleet) {
	const member = "member-2"
	g := NewWithT(t)
	config := rest.CopyConfig(f.configs[member])
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:flotilla-system:flotilla-hub", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	hub, err := client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: f.hub.RESTMapper()})
	g.Expect(err).NotTo(HaveOccurred())
	owned := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "cache-more", Labels: map[string]string{flotillav1.LabelRedis: "cache"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.memberRedis(member), flotillav1.GroupVersion.WithKind("Redis"))},
		}},
		&nodev1.RuntimeClass{Handler: "runc", ObjectMeta: metav1.ObjectMeta{
			Name: flotillav1.RuntimeClassPrefix + "more", Labels: map[string]string{flotillav1.LabelNodePool: "web"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.memberPool(member), flotillav1.GroupVersion.WithKind("NodePool"))},
		}},
	}
	try := func(object client.Object) error {
		return hub.Create(f.ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
	for _, object := range owned {
		g.Expect(try(object)).To(Succeed())
	}
	f.takeRights(t, member, func(role *rbacv1.ClusterRole) {
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return strings.Contains(strings.Join(rule.Resources, " "), "/finalizers")
		})
	})
	for _, object := range owned {
		g.Eventually(func() error { return try(object) }, 20*time.Second, 100*time.Millisecond).Should(MatchError(ContainSubstring("cannot set blockOwnerDeletion")))
	}
}

// takeRights changes the hub's role in a member until the test ends.
func (f *fleet) takeRights(t *testing.T, member string, change func(*rbacv1.ClusterRole)) {
	t.Helper()
	g, role, began := NewWithT(t), &rbacv1.ClusterRole{}, time.Now()
	t.Cleanup(func() {
		f.prepareMember(t, member)
		f.rightsTaken = append(f.rightsTaken, withoutRights{member: member, began: began, over: time.Now()})
	})
	g.Expect(f.members[member].Get(f.ctx, client.ObjectKey{Name: "flotilla-hub"}, role)).To(Succeed())
	change(role)
	g.Expect(f.members[member].Update(f.ctx, role)).To(Succeed())
}

// tookRights says whether a scenario had taken rights in a cluster at a time. What was on its way then may be told later.
func (f *fleet) tookRights(cluster string, at time.Time) bool {
	return slices.ContainsFunc(f.rightsTaken, func(taken withoutRights) bool {
		return taken.member == cluster && at.After(taken.began) && at.Before(taken.over.Add(10*time.Second))
	})
}

// scenarioAt names the scenario that ran at a time.
func (f *fleet) scenarioAt(at time.Time) string {
	running := "the start"
	for _, scenario := range f.began {
		if at.After(scenario.at) {
			running = scenario.name
		}
	}
	return running
}

// rightsIn takes the rules of a manifest's roles apart.
func rightsIn(t *testing.T, manifest string, roles ...string) map[right]bool {
	t.Helper()
	objects, err := testenv.Objects(manifest)
	if err != nil {
		t.Fatal(err)
	}
	rights := map[right]bool{}
	for _, object := range objects {
		if !strings.HasSuffix(object.GetKind(), "Role") || !slices.Contains(roles, object.GetName()) {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			addRights(rights, rule)
		}
	}
	if len(rights) < 10 {
		t.Fatalf("%s gives %v only", manifest, rights)
	}
	return rights
}

func addRights(rights map[right]bool, rule rbacv1.PolicyRule) {
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			rights[right{resource: path, verb: verb}] = true
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				names := rule.ResourceNames
				if len(names) == 0 {
					names = []string{""}
				}
				for _, name := range names {
					rights[right{group, resource, name, verb}] = true
				}
			}
		}
	}
}
