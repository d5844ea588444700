// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// What keeps a thief from something. The name of a policy stands for itself.
const (
	nothing = "nothing"
	rights  = "rights"
)

// deed is something that the thief of a member credential tries. Nothing is stored.
type deed struct {
	what string
	// kept is what keeps the thief from it.
	kept string
	try  func(context.Context, client.Client) error
}

// stage is a namespace of the member with objects of the hub and of others.
type stage struct {
	namespace string
	owner     metav1.OwnerReference
	pool      metav1.OwnerReference
	node      string
}

func (s *stage) name(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: name}
}

func (s *stage) owned(name string) metav1.ObjectMeta {
	meta := s.name(name)
	meta.Labels = map[string]string{flotillav1.LabelRedis: "cache"}
	meta.OwnerReferences = []metav1.OwnerReference{s.owner}
	return meta
}

// set is a StatefulSet as the manager makes it, in what the policies look at.
func (s *stage) set(meta metav1.ObjectMeta) *appsv1.StatefulSet {
	labels := map[string]string{flotillav1.LabelRedis: "cache"}
	return &appsv1.StatefulSet{
		ObjectMeta: meta,
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "cache-headless",
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: new(false),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(999)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: "redis", Image: "registry.example.com/any:thing",
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
}

// newStage makes what the thief finds.
func newStage(t *testing.T) *stage {
	t.Helper()
	ctx, c := t.Context(), member.Client
	s := &stage{namespace: member.Namespace(t)}
	s.node = member.Node(t, s.namespace+"-node", map[string]string{"example.com/team": "web"}).Name
	redis := &flotillav1.Redis{ObjectMeta: s.name("cache")}
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	must(t, c.Create(ctx, redis))
	must(t, c.Create(ctx, pool))
	s.owner = *metav1.NewControllerRef(redis, flotillav1.GroupVersion.WithKind("Redis"))
	s.pool = *metav1.NewControllerRef(pool, flotillav1.GroupVersion.WithKind("NodePool"))

	others := s.set(s.name("database"))
	mine := s.set(s.owned("cache"))
	must(t, c.Create(ctx, others))
	must(t, c.Create(ctx, mine))
	pod := &corev1.Pod{ObjectMeta: s.owned("cache-0"), Spec: mine.Spec.Template.Spec}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(mine, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	must(t, c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: s.name("default")}))
	must(t, c.Create(ctx, pod))
	must(t, c.Create(ctx, &corev1.Pod{ObjectMeta: s.name("database-0"), Spec: mine.Spec.Template.Spec}))
	must(t, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: s.name("database")}))
	must(t, c.Create(ctx, &corev1.Secret{ObjectMeta: s.name("database")}))
	must(t, c.Create(ctx, &corev1.Secret{ObjectMeta: s.name("cache-auth")}))
	password := &corev1.Secret{ObjectMeta: s.name("web-auth"), StringData: map[string]string{"password": "secret"}}
	password.Labels = map[string]string{flotillav1.LabelRedis: "web", flotillav1.LabelRedisAuth: "true"}
	must(t, c.Create(ctx, password))
	for _, name := range []string{"data-cache-0", "database"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: s.name(name), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		if name != "database" {
			claim.Labels = map[string]string{flotillav1.LabelRedis: "cache"}
		}
		must(t, c.Create(ctx, claim))
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Handler: "runc"}
	must(t, c.Create(ctx, class))
	t.Cleanup(func() {
		_ = c.Delete(context.Background(), class)
		_ = c.Delete(context.Background(), pool)
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// creates tries to create an object.
func creates(object client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

// deletes tries to delete an object.
func deletes(object client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error { return c.Delete(ctx, object, client.DryRunAll) }
}

// merges tries a merge patch.
func merges(object client.Object, patch map[string]any) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		content, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		return c.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, content), client.DryRunAll)
	}
}

func reads(object client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	}
}

func lists(list client.ObjectList) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error { return c.List(ctx, list) }
}

type fields = map[string]any

// deeds are all that is tried, in the order of the table in docs/security.md.
func (s *stage) deeds() []deed {
	return append(append(s.allowed(), s.workloads()...), s.rest()...)
}

func (s *stage) allowed() []deed {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
	return []deed{
		{"read a Secret whose name it knows, in any namespace", nothing, reads(&corev1.Secret{ObjectMeta: s.name("database")})},
		{"read every Pod, Service, ConfigMap, claim and node", nothing, lists(&corev1.ConfigMapList{})},
		{"read every event", nothing, lists(&eventsv1.EventList{})},
		{"run an image of choice in any namespace, as an unprivileged Pod without an identity", nothing, creates(s.set(s.owned("thief")))},
		{"change or delete any Redis or NodePool, with what they own", nothing, deletes(&flotillav1.Redis{ObjectMeta: s.name("cache")})},
		{"restart the Pods of a Redis", nothing, deletes(&corev1.Pod{ObjectMeta: s.name("cache-0")})},
		{"delete the volumes of a Redis", nothing, deletes(&corev1.PersistentVolumeClaim{ObjectMeta: s.name("data-cache-0")})},
		{"drive Pods from nodes by taints, or draw them there by labels", nothing, merges(node, fields{
			"metadata": fields{"labels": fields{"example.com/team": "thief"}},
			"spec":     fields{"taints": []any{fields{"key": "example.com/thief", "effect": "NoExecute"}}},
		})},
		{"make namespaces", nothing, creates(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "thief"}})},
		{"take the hub's claim away", nothing, creates(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "flotilla-hub"}})},
	}
}

// podOf tries a StatefulSet with a change in its Pods.
func (s *stage) podOf(change func(*corev1.PodSpec)) func(context.Context, client.Client) error {
	set := s.set(s.owned("thief"))
	change(&set.Spec.Template.Spec)
	return creates(set)
}

func volume(source corev1.VolumeSource) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) { pod.Volumes = []corev1.Volume{{Name: "thief", VolumeSource: source}} }
}

func (s *stage) workloads() []deed {
	const pods, children, secrets = "flotilla-hub-pods", "flotilla-hub-children", "flotilla-hub-secrets"
	context := func(change func(*corev1.SecurityContext)) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) { change(pod.Containers[0].SecurityContext) }
	}
	service := func(change func(*corev1.Service)) *corev1.Service {
		service := &corev1.Service{ObjectMeta: s.owned("thief"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{flotillav1.LabelRedis: "cache"}, Ports: []corev1.ServicePort{{Port: 6379}},
		}}
		change(service)
		return service
	}
	token := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}
	marked := s.name("thief-auth")
	marked.Labels = map[string]string{flotillav1.LabelRedis: "thief", flotillav1.LabelRedisAuth: "true"}
	account := *marked.DeepCopy()
	account.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	return []deed{
		{"run a Pod as a ServiceAccount", pods, s.podOf(func(pod *corev1.PodSpec) { pod.ServiceAccountName = "clusterrole-aggregation-controller" })},
		{"mount the token of a ServiceAccount into a Pod", pods, s.podOf(func(pod *corev1.PodSpec) { pod.AutomountServiceAccountToken = nil })},
		{"project the token of a ServiceAccount into a Pod", pods, s.podOf(volume(token))},
		{"use the network of a node", pods, s.podOf(func(pod *corev1.PodSpec) { pod.HostNetwork = true })},
		{"see the processes of a node", pods, s.podOf(func(pod *corev1.PodSpec) { pod.HostPID = true })},
		{"share the memory of a node", pods, s.podOf(func(pod *corev1.PodSpec) { pod.HostIPC = true })},
		{"use a port of a node", pods, s.podOf(func(pod *corev1.PodSpec) {
			pod.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 22, HostPort: 22}}
		})},
		{"mount a folder of a node", pods, s.podOf(volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}))},
		{"mount the claim of somebody else", pods, s.podOf(volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "database"}}))},
		{"put a Pod on a node of choice past the scheduler", pods, s.podOf(func(pod *corev1.PodSpec) { pod.NodeName = s.node })},
		{"run a privileged container", pods, s.podOf(context(func(c *corev1.SecurityContext) { c.Privileged, c.AllowPrivilegeEscalation = new(true), nil }))},
		{"run a container that may gain privileges", pods, s.podOf(context(func(c *corev1.SecurityContext) { c.AllowPrivilegeEscalation = nil }))},
		{"run a container with a capability", pods, s.podOf(context(func(c *corev1.SecurityContext) { c.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"} }))},
		{"run a container as root", pods, s.podOf(context(func(c *corev1.SecurityContext) { c.RunAsUser, c.RunAsNonRoot = new(int64(0)), new(false) }))},
		{"run a Pod without seccomp", pods, s.podOf(func(pod *corev1.PodSpec) { pod.SecurityContext.SeccompProfile = nil })},
		{"run an init container", pods, s.podOf(func(pod *corev1.PodSpec) {
			pod.InitContainers = slices.Clone(pod.Containers)
			pod.InitContainers[0].Name = "init"
		})},
		{"run anything that is not owned by a Redis", children, creates(s.set(s.name("thief")))},
		{"change a StatefulSet of somebody else", children, merges(&appsv1.StatefulSet{ObjectMeta: s.name("database")}, fields{
			"metadata": fields{"ownerReferences": []any{s.owner}}, "spec": fields{"replicas": 0},
		})},
		{"delete a ConfigMap of somebody else", children, deletes(&corev1.ConfigMap{ObjectMeta: s.name("database")})},
		{"change a ConfigMap of somebody else", children, merges(&corev1.ConfigMap{ObjectMeta: s.name("database")}, fields{"data": fields{"a": "b"}})},
		{"make a Service for the Pods of somebody else", "flotilla-hub-services", creates(service(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "database"} }))},
		{"make a Service that leads out of the cluster", "flotilla-hub-services", creates(service(func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "thief.example.com"}
		}))},
		{"catch the traffic to an address by a Service", "flotilla-hub-services", creates(service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.7"} }))},
		{"stop drains by a budget for the Pods of somebody else", "flotilla-hub-budgets", creates(&policyv1.PodDisruptionBudget{
			ObjectMeta: s.owned("thief"), Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromString("100%")), Selector: &metav1.LabelSelector{}},
		})},
		{"delete a Pod of somebody else", "flotilla-hub-pod-deletions", deletes(&corev1.Pod{ObjectMeta: s.name("database-0")})},
		{"delete a claim of somebody else", "flotilla-hub-volumes", deletes(&corev1.PersistentVolumeClaim{ObjectMeta: s.name("database")})},
		{"have a claim of a Redis collected as the child of something", "flotilla-hub-volumes", merges(&corev1.PersistentVolumeClaim{ObjectMeta: s.name("data-cache-0")}, fields{
			"metadata": fields{"ownerReferences": []any{s.owner}},
		})},
		{"relabel a claim of a Redis", "flotilla-hub-volumes", merges(&corev1.PersistentVolumeClaim{ObjectMeta: s.name("data-cache-0")}, fields{
			"metadata": fields{"labels": fields{"app.kubernetes.io/instance": "thief"}},
		})},
		{"change the password of a Redis", secrets, merges(&corev1.Secret{ObjectMeta: s.name("web-auth")}, fields{"data": fields{"password": "Yg=="}})},
		{"change a Secret of somebody else", secrets, merges(&corev1.Secret{ObjectMeta: s.name("cache-auth")}, fields{"data": fields{"a": "Yg=="}})},
		{"have the password of a Redis collected as the child of something", secrets, merges(&corev1.Secret{ObjectMeta: s.name("web-auth")}, fields{
			"metadata": fields{"ownerReferences": []any{s.owner}},
		})},
		{"make the token of a ServiceAccount by a Secret", secrets, creates(&corev1.Secret{ObjectMeta: account, Type: corev1.SecretTypeServiceAccountToken})},
		{"make a Secret that is not a password of a Redis", secrets, creates(&corev1.Secret{ObjectMeta: s.name("thief")})},
		{"delete a Secret of somebody else", secrets, deletes(&corev1.Secret{ObjectMeta: s.name("database")})},
		{"delete a Secret of somebody else that is named like a password", secrets, deletes(&corev1.Secret{ObjectMeta: s.name("cache-auth")})},
	}
}

func (s *stage) rest() []deed {
	const nodes, namespaces = "flotilla-hub-nodes", "flotilla-hub-namespaces"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
	label := func(key string) func(context.Context, client.Client) error {
		return merges(node, fields{"metadata": fields{"labels": fields{key: "thief"}}})
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "flotilla-hub"}}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Handler: "runc"}
	return []deed{
		{"close a node for all Pods", nodes, merges(node, fields{"spec": fields{"unschedulable": true}})},
		{"take away the taints of the system", nodes, merges(node, fields{"spec": fields{"taints": []any{fields{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}}}})},
		{"change the labels of the system", nodes, label("kubernetes.io/hostname")},
		{"make a node one of the control plane", nodes, label("node-role.kubernetes.io/control-plane")},
		{"change the annotations of the system", nodes, merges(node, fields{"metadata": fields{"annotations": fields{"node.alpha.kubernetes.io/ttl": "1"}}})},
		{"have a node collected as the child of something", nodes, merges(node, fields{"metadata": fields{"ownerReferences": []any{s.pool}}})},
		{"delete a RuntimeClass of somebody else", "flotilla-hub-runtimeclasses", deletes(class)},
		{"make a RuntimeClass that is not of a NodePool", "flotilla-hub-runtimeclasses", creates(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "thief"}, Handler: "runc"})},
		{"make a namespace for privileged Pods", namespaces, creates(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "thief", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
		}})},
		{"make a namespace of the system", namespaces, creates(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-thief"}})},
		{"make a Lease that is not the claim", "flotilla-hub-claims", creates(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "thief"}})},
		{"list Secrets", rights, lists(&corev1.SecretList{})},
		{"make a Pod itself", rights, creates(&corev1.Pod{ObjectMeta: s.name("thief"), Spec: s.set(s.name("thief")).Spec.Template.Spec})},
		{"run a command in a Pod", rights, func(ctx context.Context, c client.Client) error {
			return c.SubResource("exec").Create(ctx, &corev1.Pod{ObjectMeta: s.name("cache-0")}, &corev1.Pod{})
		}},
		{"ask for the token of a ServiceAccount, its own included", rights, func(ctx context.Context, c client.Client) error {
			return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{}, client.DryRunAll)
		}},
		{"grant rights", rights, creates(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "thief"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flotilla-hub"},
		})},
		{"make or delete a node", rights, deletes(node)},
		{"delete a namespace, or change one", rights, deletes(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})},
		{"delete the StatefulSet or Services of a Redis", rights, deletes(&appsv1.StatefulSet{ObjectMeta: s.name("cache")})},
		{"bring a CRD, without `crd_installer.yaml`", rights, creates(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "thieves.example.com"}})},
		{"switch these policies off", rights, func(ctx context.Context, c client.Client) error {
			for _, object := range policies() {
				if err := c.Delete(ctx, object, client.DryRunAll); err != nil {
					return err
				}
			}
			return nil
		}},
		{"act as somebody else", rights, nil},
	}
}

// TestMember_stolen_credential tries what the thief of a member's credential would, and compares with what is written.
func TestMember_stolen_credential(t *testing.T) {
	config := member.AsHub(t)
	thief := clientFor(t, config)
	s := newStage(t)
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	deeds := s.deeds()
	for _, d := range deeds {
		t.Run(d.what, func(t *testing.T) {
			if d.try == nil {
				d.try = func(ctx context.Context, _ client.Client) error { return impersonate(ctx, t) }
			}
			// A policy is in force a moment after it is stored.
			var tried error
			_ = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
				tried = d.try(ctx, thief)
				return keptBy(tried) == d.kept, nil
			})
			if got := keptBy(tried); got != d.kept {
				t.Errorf("%s keeps the thief from it, not %s: %v", got, d.kept, tried)
			}
			row := fmt.Sprintf("| %s | %s |\n", d.what, written(d.kept))
			if !strings.Contains(string(page), row) {
				t.Errorf("docs/security.md lacks the row %s", row)
			}
		})
	}
	if rows := strings.Count(string(page), "| nothing |\n") + strings.Count(string(page), "| rights |\n") + strings.Count(string(page), "| `flotilla-hub-"); rows != len(deeds) {
		t.Errorf("docs/security.md has %d rows of deeds, and %d were tried", rows, len(deeds))
	}
}

func written(kept string) string {
	if strings.HasPrefix(kept, "flotilla-") {
		return "`" + kept + "`"
	}
	return kept
}

// keptBy reads from an error what has refused.
func keptBy(err error) string {
	switch {
	case err == nil:
		return nothing
	case !apierrors.IsForbidden(err):
		return "an error"
	}
	if _, after, found := strings.Cut(err.Error(), "ValidatingAdmissionPolicy '"); found {
		name, _, _ := strings.Cut(after, "'")
		return name
	}
	return rights
}

// impersonate tries to act as an administrator with a token of the hub's identity.
func impersonate(ctx context.Context, t *testing.T) error {
	config := hubToken(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: "admin", Groups: []string{"system:masters"}}
	return clientFor(t, config).List(ctx, &corev1.SecretList{})
}

// hubToken is the config of a real token of the hub's ServiceAccount.
func hubToken(t *testing.T) *rest.Config {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "flotilla-hub"}}
	request := &authenticationv1.TokenRequest{}
	if err := member.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("making a token of the hub's identity: %v", err)
	}
	config := rest.AnonymousClientConfig(member.Config)
	config.BearerToken = request.Status.Token
	return config
}

func clientFor(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
