// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
)

// TestPlugin is the life of a fleet: what a step does is there in the next one.
func TestPlugin(t *testing.T) {
	s := &story{world: newWorld(t)}
	s.startManager()
	for _, step := range []struct {
		name string
		run  func(*story, *testing.T)
	}{
		{"register_makes_a_member", (*story).register},
		{"register_refuses_what_is_registered", (*story).registerTwice},
		{"status_shows_the_fleet", (*story).status},
		{"status_watches", (*story).statusWatch},
		{"expiries_come_soonest_first", (*story).expiries},
		{"rotate_replaces_the_credential_and_revokes_the_old_one", (*story).rotate},
		{"rotate_keeps_both_when_the_hub_does_not_take_the_new_one", (*story).rotateRefused},
		{"rotate_prints_for_a_repository", (*story).rotatePrinted},
		{"rotate_to_a_token_that_does_not_end", (*story).rotateLasting},
		{"rotate_of_a_member_that_was_renamed", (*story).rotateRenamed},
		{"rotate_says_what_it_cannot_revoke", (*story).rotateForeign},
		{"objects_are_placed", (*story).objects},
		{"rollout_shows_and_pauses_a_change", (*story).rollout},
		{"tree_follows_an_object_to_the_nodes", (*story).tree},
		{"why_names_the_deepest_cause", (*story).why},
		{"diff_tries_a_change_everywhere", (*story).diff},
		{"diff_and_doctor_see_an_older_schema", (*story).diffOlderSchema},
		{"doctor_finds_what_is_wrong", (*story).doctor},
		{"prune_deletes_what_it_is_told_to", (*story).prune},
		{"completion_knows_the_fleet", (*story).complete},
		{"detach_is_refused_while_the_hub_is_there", (*story).detachRefused},
		{"unregister_lets_go_and_revokes", (*story).unregister},
		{"rbac_gives_what_a_kind_needs_in_some_namespaces", (*story).rbac},
		{"unregister_has_revoked_the_credential", (*story).stayRevoked},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			s.t = t
			step.run(s, t)
		}) {
			t.Fatal("the steps build on each other")
		}
	}
}

// story is what the steps share.
type story struct {
	*world
	// revoked is the token of a member that was unregistered.
	revoked string
}

func (s *story) register(t *testing.T) {
	show(t, "register", "register eu-1 --member-context eu-1-admin --labels region=eu",
		s.must("register", "eu-1", "--member-context", "eu-1-admin", "--labels", "region=eu"))
	s.must("register", "us-1", "--member-context", "us-1-admin", "--labels", "region=us", "--token-lifetime", "24h", "--allowed-namespaces", "shop,*")
	member := s.member("us-1")
	if !apimeta.IsStatusConditionTrue(member.Status.Conditions, flotillav1.ConditionReady) {
		t.Errorf("the member is not ready: %v", member.Status.Conditions)
	}
	if member.Labels["region"] != "us" {
		t.Errorf("the member has labels %v", member.Labels)
	}
	left := time.Until(member.Status.Credentials.ExpirationTime.Time)
	if left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the credential ends in %s", left)
	}
	// The hub works with the rights of config/member and no others.
	if got := condition.Of(member.Status.Conditions, flotillav1.ConditionAPIsServed); got.Reason != flotillav1.ReasonAllServed {
		t.Errorf("APIsServed: %s: %s", got.Reason, got.Message)
	}
}

func (s *story) registerTwice(t *testing.T) {
	before := inventory(t, us1)
	show(t, "register-again", "register us-1 --member-context us-1-admin",
		s.fails([]string{`"us-1" is already registered`, "rotate us-1"}, "register", "us-1", "--member-context", "us-1-admin"))
	s.fails([]string{`registered as "us-1" already`, "unregister us-1"}, "register", "us-2", "--member-context", "us-1-admin")
	s.fails([]string{`claimed by hub "hub"`, "unregister it there"}, "register", "us-2", "--member-context", "us-1-admin", "-o", "yaml")
	if after := inventory(t, us1); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("the member has\n%s\nand had\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	s.fails([]string{`claimed by hub "hub"`}, "--context", "us-1-admin", "register", "eu-2", "--member-context", "eu-1-admin", "--registration-namespace", "default")
}

func (s *story) status(t *testing.T) {
	show(t, "status", "status", s.must("status"))
	wide := s.must("status", "-o", "wide").out
	for _, want := range []string{"ENDPOINT", "region=eu", "127.0.0.1:"} {
		if !strings.Contains(wide, want) {
			t.Errorf("the wide status lacks %q:\n%s", want, wide)
		}
	}
	var list struct {
		Kind  string
		Items []struct {
			Kind     string
			Metadata metav1.ObjectMeta
		}
	}
	if err := json.Unmarshal([]byte(s.must("status", "-o", "json").out), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "List" || len(list.Items) != 2 || list.Items[0].Kind != "MemberCluster" || list.Items[0].Metadata.Name != "eu-1" {
		t.Errorf("the JSON is %+v", list)
	}
	if names := s.must("status", "-o", "name").out; names != "membercluster/eu-1\nmembercluster/us-1\n" {
		t.Errorf("the names are %q", names)
	}
	if yaml := s.must("status", "-o", "yaml").out; !strings.Contains(yaml, "kind: MemberCluster") {
		t.Errorf("the YAML is\n%s", yaml)
	}
	s.fails([]string{"json, yaml, name, wide"}, "status", "-o", "table")
	s.fails([]string{"cannot be sorted", "name, since, credential"}, "status", "--sort", "size")
	s.fails([]string{"is not a selector", "region=eu"}, "status", "-l", "=")
	if got := s.must("status", "-l", "region=us").out; strings.Contains(got, "eu-1") || !strings.Contains(got, "us-1") {
		t.Errorf("of one region it shows\n%s", got)
	}
	s.fails([]string{"the cluster cannot be reached"}, "status", "--context", "unreachable")
}

func (s *story) statusWatch(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	screen, ended := &screen{}, make(chan int)
	go func() { ended <- s.runInto(ctx, strings.NewReader(""), screen, io.Discard, "status", "--watch") }()
	s.eventually("the fleet shows", func() (bool, error) { return strings.Contains(screen.String(), "us-1"), nil })
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.RegistrationNamespace, Name: "broken", Labels: map[string]string{flotillav1.LabelCluster: "true"}}}
	ensure(t, hubServer, secret)
	s.eventually("the broken registration shows", func() (bool, error) { return strings.Contains(screen.String(), "KeyMissing"), nil })
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("watching ended with exit code %d and showed\n%s", code, screen)
	}
	if err := hubServer.Client.Delete(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
	s.eventually("the broken registration goes", func() (bool, error) {
		err := hubServer.Client.Get(context.Background(), client.ObjectKey{Name: "broken"}, &flotillav1.MemberCluster{})
		return apierrors.IsNotFound(err), err
	})
}

func (s *story) expiries(t *testing.T) {
	show(t, "expiries", "expiries", s.must("expiries"))
	for _, item := range read[itemList[expiryItem]](t, s.must("expiries", "-o", "json")).Items {
		if item.Member == "us-1" && item.Ends == nil {
			t.Errorf("a script reads %+v", item)
		}
	}
	got := s.fails([]string{"the credentials of us-1 end within 48h", "kubectl flotilla rotate"}, "expiries", "--within", "48h")
	if us, eu := strings.Index(got.out, "us-1"), strings.Index(got.out, "eu-1"); us < 0 || eu < us {
		t.Errorf("it shows\n%s", got.out)
	}
}

// registration reads the Secret of a member.
func (s *story) registration(name string) *corev1.Secret {
	s.t.Helper()
	secret := &corev1.Secret{}
	if err := hubServer.Client.Get(context.Background(), client.ObjectKey{Namespace: flotillav1.RegistrationNamespace, Name: name}, secret); err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// authenticates asks a member whether it accepts a token.
func authenticates(t *testing.T, token string) bool {
	t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := eu1.Client.Create(context.Background(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Authenticated
}

func (s *story) rotate(t *testing.T) {
	old := tokenOf(t, s.registration("eu-1"))
	if !authenticates(t, old) {
		t.Fatal("the credential does not work before")
	}
	show(t, "rotate", "rotate eu-1 --member-context eu-1-admin", s.must("rotate", "eu-1", "--member-context", "eu-1-admin"))
	s.eventually("the old credential is revoked", func() (bool, error) { return !authenticates(t, old), nil })
	if fresh := tokenOf(t, s.registration("eu-1")); fresh == old || !authenticates(t, fresh) {
		t.Error("the registration does not hold a new credential that works")
	}
	if kept := credentials(t, eu1, "eu-1"); len(kept) != 1 {
		t.Errorf("%d credentials are left", len(kept))
	}
	if !apimeta.IsStatusConditionTrue(s.member("eu-1").Status.Conditions, flotillav1.ConditionReady) {
		t.Error("the member is not ready")
	}
	s.fails([]string{"is not member", "--member-context"}, "rotate", "eu-1", "--member-context", "us-1-admin")
	s.fails([]string{`no member is called "eu-9"`, "eu-1, us-1"}, "rotate", "eu-9", "--member-context", "us-1-admin")
	s.fails([]string{"--member-context is missing"}, "rotate", "eu-1")
}

func (s *story) rotateRefused(t *testing.T) {
	// The hub refuses a registration that names a proxy, so it goes on with the credential that it has.
	secret := s.registration("eu-1")
	good := secret.DeepCopy()
	content := strings.Replace(string(secret.Data[flotillav1.KeyKubeconfig]), "    server:", "    proxy-url: http://127.0.0.1:9\n    server:", 1)
	secret.Data[flotillav1.KeyKubeconfig] = []byte(content)
	if err := hubServer.Client.Update(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
	s.fails([]string{"ProxyNotAllowed", "both credentials stay valid"}, "rotate", "eu-1", "--member-context", "eu-1-admin", "--timeout", "2s")
	if kept := credentials(t, eu1, "eu-1"); len(kept) != 2 {
		t.Errorf("%d credentials are left", len(kept))
	}
	s.fails([]string{"nothing was revoked"}, "rotate", "eu-1", "--member-context", "eu-1-admin", "--revoke-old")
	good.ResourceVersion = ""
	if err := hubServer.Client.Update(context.Background(), good); err != nil {
		t.Fatal(err)
	}
	s.eventually("the hub accepts the registration again", func() (bool, error) {
		return apimeta.IsStatusConditionTrue(s.member("eu-1").Status.Conditions, flotillav1.ConditionCredentialsAccepted), nil
	})
	s.must("rotate", "eu-1", "--member-context", "eu-1-admin", "--revoke-old")
	if kept := credentials(t, eu1, "eu-1"); len(kept) != 1 || secretOf(t, tokenOf(t, good)) != kept[0].Name {
		t.Errorf("the credentials left are %v", kept)
	}
}

func (s *story) rotatePrinted(t *testing.T) {
	before := s.registration("eu-1")
	before.Labels["kustomize.toolkit.fluxcd.io/name"] = "members"
	if err := hubServer.Client.Update(context.Background(), before); err != nil {
		t.Fatal(err)
	}
	got := s.must("rotate", "eu-1", "--member-context", "eu-1-admin", "-o", "json")
	printed := &corev1.Secret{}
	if err := json.Unmarshal([]byte(got.out), printed); err != nil {
		t.Fatal(err)
	}
	if after := s.registration("eu-1"); after.ResourceVersion != before.ResourceVersion {
		t.Error("the registration was written")
	}
	if !authenticates(t, tokenOf(t, before)) || !authenticates(t, tokenOf(t, printed)) {
		t.Error("one of the two credentials does not work")
	}
	if got := s.run("doctor", "eu-1", "--member-context", "eu-1=eu-1-admin"); !strings.Contains(got.out, "credentials that the registration does not hold are valid in the member: Secrets "+secretOf(t, tokenOf(t, printed))) {
		t.Errorf("doctor says\n%s", got.out)
	}
	if printed.ResourceVersion != "" || printed.UID != "" || printed.Labels["region"] != "eu" || printed.Labels["kustomize.toolkit.fluxcd.io/name"] != "" {
		t.Errorf("the registration has metadata %v", printed.ObjectMeta)
	}
}

// fillTokens plays the token controller, which a test's control plane lacks: it gives the Secret a token that ends.
func (s *story) fillTokens(ctx context.Context) {
	for ctx.Err() == nil {
		for _, secret := range credentials(s.t, eu1, "eu-1") {
			if secret.Type != corev1.SecretTypeServiceAccountToken || len(secret.Data) > 0 {
				continue
			}
			request := &authenticationv1.TokenRequest{}
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.SystemNamespace, Name: flotillav1.HubServiceAccount}}
			if err := eu1.Client.SubResource("token").Create(ctx, account, request); err != nil {
				continue
			}
			secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(request.Status.Token)}
			_ = eu1.Client.Update(ctx, &secret)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *story) rotateLasting(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		s.fillTokens(ctx)
	}()
	got := s.must("rotate", "eu-1", "--member-context", "eu-1-admin", "--token-lifetime", "0")
	stop()
	<-filled
	if !strings.Contains(got.err, "that does not end") {
		t.Errorf("it says\n%s", got.err)
	}
	if kept := credentials(t, eu1, "eu-1"); len(kept) != 1 || kept[0].Type != corev1.SecretTypeServiceAccountToken {
		t.Errorf("the credentials left are %v", kept)
	}
	s.must("rotate", "eu-1", "--member-context", "eu-1-admin")
}

func (s *story) rotateRenamed(t *testing.T) {
	old := tokenOf(t, s.registration("eu-1"))
	for _, secret := range credentials(t, eu1, "eu-1") {
		secret.Annotations[flotillav1.AnnotationClusterName] = "its-former-name"
		if err := eu1.Client.Update(context.Background(), &secret); err != nil {
			t.Fatal(err)
		}
	}
	s.must("rotate", "eu-1", "--member-context", "eu-1-admin")
	s.eventually("the old credential is revoked", func() (bool, error) { return !authenticates(t, old), nil })
	if left := credentials(t, eu1, "its-former-name"); len(left) > 0 {
		t.Errorf("the credentials left are %v", left)
	}
}

func (s *story) rotateForeign(t *testing.T) {
	ctx := context.Background()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.SystemNamespace, Name: flotillav1.HubServiceAccount}}
	if err := eu1.Client.SubResource("token").Create(ctx, account, request); err != nil {
		t.Fatal(err)
	}
	secret := s.registration("eu-1")
	replaced := strings.Replace(string(secret.Data[flotillav1.KeyKubeconfig]), tokenOf(t, secret), request.Status.Token, 1)
	secret.Data[flotillav1.KeyKubeconfig] = []byte(replaced)
	if err := hubServer.Client.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	got := s.must("rotate", "eu-1", "--member-context", "eu-1-admin")
	if !strings.Contains(got.err, "neither register nor rotate made the credential before") {
		t.Errorf("it says\n%s", got.err)
	}
	if got := s.must("rotate", "eu-1", "--member-context", "eu-1-admin"); strings.Contains(got.err, "neither") {
		t.Errorf("it says\n%s", got.err)
	}
}

func (s *story) unregister(t *testing.T) {
	s.revoked = tokenOf(t, s.registration("eu-1"))
	s.fails([]string{"is not member"}, "unregister", "eu-1", "--member-context", "us-1-admin")
	show(t, "unregister", "unregister eu-1 --member-context eu-1-admin", s.must("unregister", "eu-1", "--member-context", "eu-1-admin"))
	if there := inventory(t, eu1); len(there) > 0 {
		t.Errorf("the member has %s", strings.Join(there, ", "))
	}
	lease := &coordinationv1.Lease{}
	err := eu1.Client.Get(context.Background(), client.ObjectKey{Namespace: flotillav1.SystemNamespace, Name: flotillav1.ClaimLease}, lease)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the claim is there (%v)", err)
	}
	got := s.must("unregister", "us-1", "--drain")
	if !strings.Contains(got.err, "kubectl delete -n flotilla-system serviceaccount flotilla-hub") {
		t.Errorf("it says\n%s", got.err)
	}
	s.fails([]string{`no member is called "eu-1"`, "no member is registered here"}, "unregister", "eu-1")
	cleanAccess(t)
}

// stayRevoked is a step of its own, late: an API server remembers for ten seconds that a token was good.
func (s *story) stayRevoked(t *testing.T) {
	s.eventually("the credential is revoked", func() (bool, error) { return !authenticates(t, s.revoked), nil })
}
