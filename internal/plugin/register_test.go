// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

func TestRegister_what_cannot_be_a_member_is_refused_and_leaves_nothing(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		name, show string
		args       []string
		want       []string
	}{
		{
			name: "a cluster that does not answer", show: "register-unreachable", args: []string{"--member-context", "unreachable"},
			want: []string{`the member (context "unreachable")`, "connection refused", "check the server of the context and your network"},
		},
		{
			name: "a credential that has ended", show: "register-unauthorised", args: []string{"--member-context", "expired"},
			want: []string{`the member (context "expired")`, "log in again"},
		},
		{
			name: "a user without rights", args: []string{"--member-context", "nobody"},
			want: []string{`the member (context "nobody")`, "your user lacks that right there"},
		},
		{
			name: "a user who may look and not write", args: []string{"--member-context", "viewer"},
			want: []string{`the member (context "viewer"): trying to apply`, "your user lacks that right there"},
		},
		{
			name: "the hub itself", args: []string{"--member-context", "hub"},
			want: []string{"leads to the hub itself", "choose the context of another cluster"},
		},
		{
			name: "a context that does not exist", args: []string{"--member-context", "missing"},
			want: []string{`context "missing"`, "get-contexts"},
		},
		{
			name: "plain HTTP", args: []string{"--member-context", "us-1-admin", "--server", "http://10.0.0.1"},
			want: []string{"not an https URL", "--server"},
		},
		{
			name: "a metadata service", args: []string{"--member-context", "us-1-admin", "--server", "https://169.254.169.254"},
			want: []string{"the hub would refuse the registration", "EndpointNotAllowed"},
		},
		{
			name: "no context", want: []string{"--member-context is missing"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			got := w.fails(test.want, append([]string{"register", "us-2"}, test.args...)...)
			w.wantNothing("us-2", us1)
			if test.show != "" {
				show(t, test.show, "register us-2 "+strings.Join(test.args, " "), got)
			}
		})
	}
}

func TestRegister_without_a_manager_is_taken_back(t *testing.T) {
	w := newWorld(t)
	got := w.fails([]string{"no manager took the registration", "make sure that the manager runs"},
		"register", "us-2", "--member-context", "us-1-admin", "--timeout", "1s")
	if !strings.Contains(got.err, "the credential is revoked") {
		t.Errorf("it says\n%s", got.err)
	}
	w.wantNothing("us-2", us1)
}

func TestRegister_what_fails_halfway_is_taken_back(t *testing.T) {
	w := newWorld(t)
	// This user may do everything that register does but ask for a token.
	got := w.fails([]string{"asking for a token", "your user lacks that right there"}, "register", "us-2", "--member-context", "halfway")
	if !strings.Contains(got.err, "the rights of the hub in the member are removed") {
		t.Errorf("it says\n%s", got.err)
	}
	w.wantNothing("us-2", us1)
}

func TestRegister_prints_what_works_without_the_hub(t *testing.T) {
	w := newWorld(t)
	got := w.must("--context", "unreachable", "register", "us-2", "--member-context", "us-1-admin", "--labels", "region=us", "-o", "yaml")
	t.Cleanup(func() { cleanAccess(t) })
	secret := &corev1.Secret{}
	if err := yaml.UnmarshalStrict([]byte(got.out), secret); err != nil {
		t.Fatal(err)
	}
	if secret.Namespace != flotillav1.RegistrationNamespace || secret.Name != "us-2" || secret.Labels[flotillav1.LabelCluster] != "true" || secret.Labels["region"] != "us" {
		t.Errorf("the registration has metadata %v", secret.ObjectMeta)
	}
	if _, err := registration.Accept(secret, site.Policy); err != nil {
		t.Error(err)
	}
	token := tokenOf(t, secret)
	if strings.Contains(got.err, token) {
		t.Error("what goes with the registration shows the token")
	}
	made := credentials(t, us1, "us-2")
	if len(made) != 1 || secretOf(t, token) != made[0].Name {
		t.Errorf("the token is tied to %q, and the member has %d Secrets for it", secretOf(t, token), len(made))
	}
}

// tokenOf reads the token of a registration.
func tokenOf(t *testing.T, secret *corev1.Secret) string {
	t.Helper()
	config, err := clientcmd.Load(secret.Data[flotillav1.KeyKubeconfig])
	if err != nil {
		t.Fatal(err)
	}
	return config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token
}

// secretOf returns the Secret that a token is bound to.
func secretOf(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token has %d parts", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Kubernetes struct {
			Secret struct {
				Name string `json:"name"`
			} `json:"secret"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims.Kubernetes.Secret.Name
}

// cleanAccess removes what registering puts into us-1 besides schemas.
func cleanAccess(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	objects, err := manifests.Member()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if manifests.IsRights(object) {
			_ = us1.Client.Delete(ctx, object)
		}
	}
	if err := us1.Client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(flotillav1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
}

func TestRegister_takes_arguments_that_it_understands_only(t *testing.T) {
	w := newWorld(t)
	for name, args := range map[string][]string{
		"a bad name":              {"register", "EU_1", "--member-context", "us-1-admin"},
		"bad labels":              {"register", "eu-2", "--member-context", "us-1-admin", "--labels", "region"},
		"a bad kind":              {"register", "eu-2", "--member-context", "us-1-admin", "--kinds", "Pod"},
		"a bad output":            {"register", "eu-2", "--member-context", "us-1-admin", "-o", "table"},
		"no name":                 {"register"},
		"a bad flag":              {"register", "eu-2", "--context-of-member", "us-1-admin"},
		"a hub that is not there": {"--context", "unreachable", "register", "eu-2", "--member-context", "us-1-admin"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.fails(nil, args...)
			w.wantNothing("eu-2", us1)
		})
	}
}

func TestRegister_a_lifetime_that_the_member_does_not_grant(t *testing.T) {
	w := newWorld(t)
	ensure(t, us1, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flotillav1.SystemNamespace}})
	// An API server grants ten minutes at least, so a lifetime below that cannot be had.
	w.fails([]string{"token"}, "register", "us-2", "--member-context", "us-1-admin", "--token-lifetime", "1m")
	w.wantNothing("us-2", us1)
}
