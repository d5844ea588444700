// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"go/ast"
	goparser "go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
)

// contentReasons are the refusals that the content of a registration alone provokes.
var contentReasons = []string{
	flotillav1.ReasonParseError, flotillav1.ReasonKeyMissing, flotillav1.ReasonContextInvalid,
	flotillav1.ReasonCredentialMissing, flotillav1.ReasonCAMissing, flotillav1.ReasonExecNotAllowed, flotillav1.ReasonAuthProviderNotAllowed,
	flotillav1.ReasonFileReferenceNotAllowed, flotillav1.ReasonInsecureTLSNotAllowed, flotillav1.ReasonBasicAuthNotAllowed,
	flotillav1.ReasonImpersonationNotAllowed, flotillav1.ReasonProxyNotAllowed, flotillav1.ReasonHTTPNotAllowed,
	flotillav1.ReasonEndpointNotAllowed, flotillav1.ReasonInvalidName, flotillav1.ReasonSelfRegistration,
}

// shownElsewhere are the reasons of a MemberCluster that no registration brings about by itself, and why.
var shownElsewhere = map[string]string{
	flotillav1.ReasonConnected: "what every registration wants", flotillav1.ReasonAccepted: "likewise", flotillav1.ReasonProbeSucceeded: "likewise",
	flotillav1.ReasonAllServed: "likewise", flotillav1.ReasonHeld: "likewise", flotillav1.ReasonSynced: "likewise",
	flotillav1.ReasonNotYetProbed: "passes", flotillav1.ReasonSyncing: "passes", flotillav1.ReasonDraining: "passes",
	flotillav1.ReasonAllRemoved:       "shown by drained",
	flotillav1.ReasonVersionSkew:      "about an object, not about a registration",
	flotillav1.ReasonSyncTimeout:      "a member that answers all but its lists",
	flotillav1.ReasonWatchStalled:     "a member that goes silent while it is watched",
	flotillav1.ReasonLimitExceeded:    "a member with a million objects",
	flotillav1.ReasonRenewalFailed:    "a member whose claim cannot be renewed any more",
	flotillav1.ReasonRegistrationGone: "a registration that is gone",
	flotillav1.ReasonFrozen:           "a ConfigMap, not a registration",
	flotillav1.ReasonOrphaned:         "about an object, not about a registration",
}

// memberClusterReasons reads the constants Reason* of the MemberCluster's conditions.
func memberClusterReasons(t *testing.T) []string {
	t.Helper()
	file, err := goparser.ParseFile(gotoken.NewFileSet(), "../../../api/v1alpha1/membercluster_conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(value.Names[0].Name, "Reason") {
				continue
			}
			reason, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// TestRegistrations_show_every_reason fails for a reason that is new and has no file to reproduce it.
func TestRegistrations_show_every_reason(t *testing.T) {
	shown := map[string]bool{}
	for _, pattern := range []string{"../../../test/fleet/testdata/registrations/*.yaml", environmentFolder + "/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("finding %s: %v", pattern, err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".yaml"), "-by-alias")
			shown[strings.ReplaceAll(name, "-", "")] = true
		}
	}
	reasons := memberClusterReasons(t)
	for _, reason := range reasons {
		if hasFile, elsewhere := shown[strings.ToLower(reason)], shownElsewhere[reason] != ""; hasFile == elsewhere {
			t.Errorf("%s has a file: %t; is said to be shown elsewhere: %t", reason, hasFile, elsewhere)
		}
	}
	for reason := range shownElsewhere {
		if !slices.Contains(reasons, reason) {
			t.Errorf("%s is no reason any more", reason)
		}
	}
}

// refusedRegistrations reads test/fleet/testdata/registrations, by the reason that the name of each file promises.
func refusedRegistrations(t *testing.T) map[*corev1.Secret]string {
	t.Helper()
	files, err := filepath.Glob("../../../test/fleet/testdata/registrations/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	registrations := map[*corev1.Secret]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{}
		if err := yaml.UnmarshalStrict(content, secret); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		promised := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(name, "argo-cd-"), "cluster-api-"), "-", "")
		i := slices.IndexFunc(contentReasons, func(reason string) bool { return strings.EqualFold(reason, promised) })
		if i < 0 {
			t.Fatalf("%s is not named after a reason", file)
		}
		registrations[secret] = contentReasons[i]
	}
	for _, reason := range contentReasons {
		found := false
		for _, shown := range registrations {
			found = found || shown == reason
		}
		if !found {
			t.Errorf("no file shows %s", reason)
		}
	}
	return registrations
}

// allConventions has a pool understand every convention.
func allConventions(config *Config) { config.Sources[0].Conventions = registration.Conventions() }

func TestPool_refuses_every_bad_content(t *testing.T) {
	ctx := context.Background()
	f := startPool(t, hubCluster.Namespace(t), allConventions)
	registrations := refusedRegistrations(t)
	for secret := range registrations {
		secret.Namespace = f.namespace
		f.Expect(hubCluster.Client.Create(ctx, secret)).To(Succeed())
	}
	for secret, reason := range registrations {
		name := strings.TrimSuffix(secret.Name, "-kubeconfig")
		f.Eventually(f.condition(name, flotillav1.ConditionCredentialsAccepted)).Should(Equal("False "+reason), name)
		f.Eventually(f.condition(name, flotillav1.ConditionReady)).Should(Equal("False "+reason), name)
		f.Eventually(func() []string { return f.notes(name) }).Should(ConsistOf(HavePrefix(reason+": ")), name)
	}
	f.Expect("/tmp/flotilla-executed-a-registration").NotTo(BeAnExistingFile())
	f.Expect(hubCluster.Client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(f.namespace))).To(Succeed())
	f.Eventually(func() int { return len(f.pool.Snapshots()) }).Should(BeZero())
}

// TestPool_tells_each_refusal_of_one_member has a registration go from one mistake to another: the API keeps only the first
// of several events that differ in nothing but the note.
func TestPool_tells_each_refusal_of_one_member(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := startPool(t, hubCluster.Namespace(t))
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "two-mistakes", Labels: map[string]string{flotillav1.LabelCluster: "true"}},
		Data:       map[string][]byte{"kubeconfig": []byte("no: [kubeconfig")},
	}
	f.Expect(hubCluster.Client.Create(ctx, secret)).To(Succeed())
	parse, missing := HavePrefix(flotillav1.ReasonParseError+": "), HavePrefix(flotillav1.ReasonKeyMissing+": ")
	f.Eventually(func() []string { return f.notes("two-mistakes") }).Should(ConsistOf(parse))
	secret.Data = map[string][]byte{"another": []byte("key")}
	f.Expect(hubCluster.Client.Update(ctx, secret)).To(Succeed())
	f.Eventually(func() []string { return f.notes("two-mistakes") }).Should(ConsistOf(parse, missing))
}

// notes reads what events say about a member that is refused.
func (f *fixture) notes(name string) []string {
	list := &eventsv1.EventList{}
	if err := hubCluster.Client.List(context.Background(), list); err != nil {
		return []string{err.Error()}
	}
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "MemberCluster" && e.Regarding.Name == name && e.Reason == "ClusterRefused" {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

func TestPool_understands_conventions_of_others(t *testing.T) {
	ctx := context.Background()
	f := startPool(t, hubCluster.Namespace(t), allConventions)
	config, err := json.Marshal(map[string]any{"tlsClientConfig": map[string]string{
		"caData":   base64.StdEncoding.EncodeToString(memberOne.Config.CAData),
		"certData": base64.StdEncoding.EncodeToString(memberOne.Config.CertData),
		"keyData":  base64.StdEncoding.EncodeToString(memberOne.Config.KeyData),
	}})
	f.Expect(err).NotTo(HaveOccurred())
	clusterAPI := map[string]string{registration.LabelClusterAPIName: "of-cluster-api", "region": "eu"}
	ignored := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "of-cluster-api-ca", Labels: clusterAPI},
		Data:       map[string][]byte{"value": memberOne.Kubeconfig()},
	}
	f.Expect(hubCluster.Client.Create(ctx, ignored)).To(Succeed())
	for name, secret := range map[string]*corev1.Secret{
		"of-cluster-api": {
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "of-cluster-api-kubeconfig", Labels: clusterAPI},
			Data:       map[string][]byte{"value": memberOne.Kubeconfig()},
		},
		"of-argo-cd": {
			ObjectMeta: metav1.ObjectMeta{
				Namespace: f.namespace, Name: "cluster-1.2.3.4-5", Labels: map[string]string{registration.LabelArgoCDSecretType: "cluster", "region": "eu"},
			},
			Data: map[string][]byte{"name": []byte("of-argo-cd"), "server": []byte(memberOne.Config.Host), "config": config},
		},
	} {
		f.Expect(hubCluster.Client.Create(ctx, secret)).To(Succeed())
		f.Eventually(f.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"), name)
		object := &flotillav1.MemberCluster{}
		f.Expect(hubCluster.Client.Get(ctx, client.ObjectKey{Name: name}, object)).To(Succeed())
		f.Expect(object.Labels).To(Equal(map[string]string{"region": "eu"}))
		f.Expect(f.pool.Snapshots()).To(HaveLen(1), "other Secrets of Cluster API are ignored")
		f.Expect(hubCluster.Client.Delete(ctx, secret)).To(Succeed())
		f.Eventually(func() int { return len(f.pool.Snapshots()) }).Should(BeZero())
	}
}
