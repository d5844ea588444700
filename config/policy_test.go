// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// policies are those that confine the hub, to be deleted.
func policies() []client.Object {
	var found []client.Object
	for _, name := range []string{"flotilla-hub-secrets", "flotilla-hub-pods"} {
		meta := metav1.ObjectMeta{Name: name}
		found = append(found,
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta}, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta})
	}
	return found
}

// TestMember_policies_are_bound_and_fail_closed looks at all of them: one that is not bound does nothing.
func TestMember_policies_are_bound_and_fail_closed(t *testing.T) {
	bound, seen := map[string]bool{}, 0
	objects := objectsIn(t, memberBundle)
	for _, object := range objects {
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			binding := decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, object)
			bound[binding.Spec.PolicyName] = binding.Spec.ValidationActions[0] == admissionregistrationv1.Deny
		}
	}
	for _, object := range objects {
		if object.GetKind() != "ValidatingAdmissionPolicy" || !strings.HasPrefix(object.GetName(), "flotilla-hub-") {
			continue
		}
		seen++
		policy := decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, object)
		if !bound[policy.Name] || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s: bound to deny: %v, failure policy %s", policy.Name, bound[policy.Name], *policy.Spec.FailurePolicy)
		}
	}
	if seen < 10 {
		t.Errorf("saw %d policies only", seen)
	}
}

// TestMember_policies_leave_alone_what_others_put_there changes objects of the hub's that somebody in the member has given
// what the hub itself may not: it must go on with what is its own.
func TestMember_policies_leave_alone_what_others_put_there(t *testing.T) {
	config := member.AsHub(t)
	hub := clientFor(t, config)
	s := newStage(t)
	set := s.set(s.owned("meddled"))
	pod := &set.Spec.Template.Spec
	pod.ServiceAccountName, pod.AutomountServiceAccountToken, pod.HostNetwork = "team", nil, true
	pod.SecurityContext.SeccompProfile = nil
	pod.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log"}}}}
	pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "registry.example.com/sidecar:1"})
	pod.InitContainers = []corev1.Container{{Name: "init", Image: "registry.example.com/init:1"}}
	must(t, member.Client.Create(t.Context(), set))

	if err := merges(set, fields{"spec": fields{"replicas": 3}})(t.Context(), hub); err != nil {
		t.Errorf("the hub cannot scale it: %v", err)
	}
	patch := fields{"spec": fields{"template": fields{"spec": fields{"serviceAccountName": "other", "deprecatedServiceAccount": nil}}}}
	if err := merges(set, patch)(t.Context(), hub); keptBy(err) != "flotilla-hub-pods" {
		t.Errorf("the hub puts another ServiceAccount there: %v", err)
	}
	service := &corev1.Service{ObjectMeta: s.owned("meddled"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{flotillav1.LabelRedis: "cache"}, Ports: []corev1.ServicePort{{Port: 6379}}, ExternalIPs: []string{"198.51.100.7"},
	}}
	must(t, member.Client.Create(t.Context(), service))
	if err := merges(service, fields{"metadata": fields{"labels": fields{"a": "b"}}})(t.Context(), hub); err != nil {
		t.Errorf("the hub cannot change the Service: %v", err)
	}
	// A claim that a person has restored has no label of ours.
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: s.name("data-restored-0")}
	restored := &unstructured.Unstructured{Object: fields{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": fields{"namespace": s.namespace, "name": "data-restored-0"},
		"spec": fields{"accessModes": []any{"ReadWriteOnce"}, "resources": fields{"requests": fields{"storage": "1Gi"}}},
	}}
	must(t, member.Client.Create(t.Context(), restored))
	if err := merges(claim, fields{"metadata": fields{"annotations": fields{flotillav1.AnnotationInitialized: "true"}}})(t.Context(), hub); err != nil {
		t.Errorf("the hub cannot mark the claim: %v", err)
	}
	if err := deletes(claim)(t.Context(), hub); keptBy(err) != "flotilla-hub-volumes" {
		t.Errorf("the hub deletes a claim without its label: %v", err)
	}
}

// TestMember_installer_brings_own_definitions_only gives the hub the rights of crd_installer.yaml.
func TestMember_installer_brings_own_definitions_only(t *testing.T) {
	hub := clientFor(t, member.AsHub(t))
	installer, err := member.Apply(t.Context(), "config/member/crd_installer.yaml")
	must(t, err)
	t.Cleanup(func() {
		for _, object := range installer {
			_ = member.Client.Delete(context.Background(), object)
		}
	})
	definitions, err := testenv.CRDs()
	must(t, err)
	for _, definition := range definitions {
		foreign := definition.DeepCopy()
		foreign.Name, foreign.Spec.Group = foreign.Spec.Names.Plural+".example.com", "example.com"
		foreign.Annotations = nil
		if err := creates(foreign)(t.Context(), hub); keptBy(err) != "flotilla-hub-definitions" {
			t.Errorf("the hub brings %s: %v", foreign.Name, err)
		}
		if definition.Spec.Names.Kind == "MemberCluster" {
			continue
		}
		if err := merges(definition, fields{"metadata": fields{"labels": fields{"a": "b"}}})(t.Context(), hub); err != nil {
			t.Errorf("the hub cannot upgrade %s: %v", definition.Name, err)
		}
		webhook := fields{"spec": fields{"conversion": fields{"strategy": "Webhook", "webhook": fields{
			"conversionReviewVersions": []any{"v1"}, "clientConfig": fields{"url": "https://thief.example.com"},
		}}}}
		if err := merges(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition.Name}}, webhook)(t.Context(), hub); keptBy(err) != "flotilla-hub-definitions" {
			t.Errorf("the hub has objects of %s converted elsewhere: %v", definition.Name, err)
		}
	}
}

// TestMember_identities_are_for_the_hub has others change the annotations by which the hub knows what is its own.
func TestMember_identities_are_for_the_hub(t *testing.T) {
	config := member.AsHub(t)
	s := newStage(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"flotilla.dev"}, Resources: []string{"redises", "nodepools"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}},
	}}
	must(t, member.Client.Create(t.Context(), role))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tenant"}},
	}
	must(t, member.Client.Create(t.Context(), binding))
	t.Cleanup(func() {
		_ = member.Client.Delete(context.Background(), role)
		_ = member.Client.Delete(context.Background(), binding)
	})
	tenant, hub := clientFor(t, member.User(t, "tenant")), clientFor(t, config)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
	cache := &flotillav1.Redis{ObjectMeta: s.name("cache")}
	annotated := func(key string) fields { return fields{"metadata": fields{"annotations": fields{key: "x"}}} }

	for _, key := range []string{flotillav1.AnnotationHub, flotillav1.AnnotationHubUID, flotillav1.AnnotationPlacedFrom, flotillav1.AnnotationNodeRecord} {
		object := client.Object(cache)
		if key == flotillav1.AnnotationNodeRecord {
			object = node
		}
		if err := merges(object, annotated(key))(t.Context(), tenant); keptBy(err) != "flotilla-identities" {
			t.Errorf("a tenant sets %s: %v", key, err)
		}
		for who, c := range map[string]client.Client{"the hub": hub, "an administrator": member.Client} {
			if err := merges(object, annotated(key))(t.Context(), c); err != nil {
				t.Errorf("%s cannot set %s: %v", who, key, err)
			}
		}
	}
	forged := &flotillav1.Redis{ObjectMeta: s.name("forged")}
	forged.Annotations = map[string]string{flotillav1.AnnotationHub: "hub"}
	if err := creates(forged)(t.Context(), tenant); keptBy(err) != "flotilla-identities" {
		t.Errorf("a tenant makes a copy: %v", err)
	}
	// A kubelet writes the annotations of its node with the status.
	if err := tenant.Status().Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"flotilla.dev/node-record":"{}"}}}`)), client.DryRunAll); keptBy(err) != "flotilla-identities" {
		t.Errorf("a kubelet forges the record: %v", err)
	}

	// What carries an identity can be changed otherwise, and by everybody who could before.
	for _, object := range []client.Object{cache, node} {
		key := flotillav1.AnnotationHub
		if object == node {
			key = flotillav1.AnnotationNodeRecord
		}
		patch := []byte(`{"metadata":{"annotations":{"` + key + `":"x"}}}`)
		must(t, member.Client.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", patch)))
		if err := merges(object, annotated("example.com/note"))(t.Context(), tenant); err != nil {
			t.Errorf("a tenant cannot annotate a %T: %v", object, err)
		}
		if err := merges(object, fields{"metadata": fields{"annotations": fields{key: nil}}})(t.Context(), tenant); keptBy(err) != "flotilla-identities" {
			t.Errorf("a tenant takes the identity off a %T: %v", object, err)
		}
	}
	if err := tenant.Status().Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"conditions":[]}}`)), client.DryRunAll); err != nil {
		t.Errorf("a kubelet cannot tell its status: %v", err)
	}
	if err := deletes(cache)(t.Context(), tenant); err != nil {
		t.Errorf("a tenant cannot delete a copy: %v", err)
	}
}

// TestMember_policies_mirror_the_keys_that_a_schema_refuses compares the patterns of the policy for nodes with those of the
// schema of NodePool.
func TestMember_policies_mirror_the_keys_that_a_schema_refuses(t *testing.T) {
	policy, err := os.ReadFile("member/confine_cluster.yaml")
	must(t, err)
	definitions, err := testenv.CRDs()
	must(t, err)
	patterns := map[string]bool{}
	for _, definition := range definitions {
		if definition.Spec.Names.Kind != "NodePool" {
			continue
		}
		spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		rules := slices.Concat(spec.Properties["labels"].XValidations, spec.Properties["annotations"].XValidations)
		taints, err := yaml.Marshal(spec.Properties["taints"])
		must(t, err)
		text := string(taints)
		for _, rule := range rules {
			text += rule.Rule + "\n"
		}
		for part := range strings.SplitSeq(text, "'") {
			if strings.HasPrefix(part, "^([-a-z0-9.]+[.])?") {
				patterns[part] = true
			}
		}
	}
	if len(patterns) < 4 {
		t.Errorf("found the patterns %v only", patterns)
	}
	for pattern := range patterns {
		if !strings.Contains(string(policy), pattern) {
			t.Errorf("the policy for nodes lacks %s", pattern)
		}
	}
}
