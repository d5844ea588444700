// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// The credential of the hub in a member is a token of its ServiceAccount, bound to a Secret of its own. Deleting that Secret
// revokes the token within seconds, whatever its lifetime. Several tokens can be valid at a time, so that one replaces
// another without a gap.
//
// The manager does not make tokens: a person or a CronJob renews them with rotate. The requested lifetime is a year. If the
// member grants less than a month, and no lifetime was requested, the token does not end: a member whose token ends before
// the next renewal would be lost.

const (
	// labelCredential marks the Secrets in a member that credentials are tied to.
	labelCredential = "flotilla.dev/hub-credential"
	// wantedLifetime is the lifetime that is requested, and shortLifetime the least that leaves time to renew the token.
	wantedLifetime = 365 * 24 * time.Hour
	shortLifetime  = 30 * 24 * time.Hour
	// lifetimeLeeway is how much less an API server may grant.
	lifetimeLeeway = time.Minute
)

// credential is a token of the hub in a member.
type credential struct {
	token string
	// expires is zero for a token that does not end.
	expires time.Time
	// secret is what the token is bound to in the member.
	secret *corev1.Secret
	note   string
}

// String never shows the token.
func (c credential) String() string {
	text := "a token of " + flotillav1.SystemNamespace + "/" + flotillav1.HubServiceAccount
	if c.expires.IsZero() {
		text += " that does not end"
	} else {
		text += " until " + c.expires.UTC().Format(time.RFC3339)
	}
	return text + ", tied to Secret " + c.secret.Name + c.note
}

// lifetimeFlag is the value of --token-lifetime, and whether it was given. Zero is a token that does not end.
type lifetimeFlag struct {
	wanted time.Duration
	asked  bool
}

const lifetimeUsage = "How long the hub's token in the member lasts; 0 for one that does not end. By default a year, or, " +
	"where the member grants less than a month, one that does not end"

// mint makes a credential for a registration. When it fails, nothing stays in the member.
func mint(ctx context.Context, member *site.Site, name string, lifetime lifetimeFlag) (*credential, error) {
	if lifetime.asked && lifetime.wanted == 0 {
		return mintLasting(ctx, member, name, "")
	}
	wanted := lifetime.wanted
	if !lifetime.asked {
		wanted = wantedLifetime
	}
	made, granted, err := mintBound(ctx, member, name, wanted)
	if err != nil || granted >= wanted-lifetimeLeeway || (!lifetime.asked && granted >= shortLifetime) {
		return made, err
	}
	if err := revoke(ctx, member, made); err != nil {
		return nil, err
	}
	if !lifetime.asked {
		return mintLasting(ctx, member, name, fmt.Sprintf(" (the member grants tokens that end for %s only)", granted))
	}
	return nil, console.Faultf(fmt.Sprintf("pass --token-lifetime=%s and run kubectl flotilla rotate before each end, or --token-lifetime=0 for a token that does not end", granted),
		"%s grants tokens for %s, not for %s", member.Called, granted, wanted)
}

// newTokenSecret creates the Secret that a token is bound to.
func newTokenSecret(ctx context.Context, member *site.Site, name string, kind corev1.SecretType) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: flotillav1.SystemNamespace, GenerateName: flotillav1.HubServiceAccount + "-token-",
			Labels:      map[string]string{labelCredential: "true"},
			Annotations: map[string]string{flotillav1.AnnotationClusterName: name},
		},
		Type: kind,
	}
	if kind == corev1.SecretTypeServiceAccountToken {
		secret.Annotations[corev1.ServiceAccountNameKey] = flotillav1.HubServiceAccount
	}
	if err := member.Create(ctx, secret); err != nil {
		return nil, member.Explain("creating the Secret that the token is tied to", err)
	}
	return secret, nil
}

// mintBound requests a token that ends.
func mintBound(ctx context.Context, member *site.Site, name string, wanted time.Duration) (*credential, time.Duration, error) {
	secret, err := newTokenSecret(ctx, member, name, corev1.SecretTypeOpaque)
	if err != nil {
		return nil, 0, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(wanted / time.Second)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.SystemNamespace, Name: flotillav1.HubServiceAccount}}
	made := &credential{secret: secret}
	if err := member.SubResource("token").Create(ctx, account, request); err != nil {
		_ = revoke(ctx, member, made)
		return nil, 0, member.Explain("asking for a token of "+flotillav1.SystemNamespace+"/"+flotillav1.HubServiceAccount, err)
	}
	made.token, made.expires = request.Status.Token, request.Status.ExpirationTimestamp.Time
	issued, _ := registration.TokenLifetime(made.token)
	return made, made.expires.Sub(issued), nil
}

// mintLasting makes a token that does not end, which the token controller of the member writes into the Secret.
func mintLasting(ctx context.Context, member *site.Site, name, note string) (*credential, error) {
	secret, err := newTokenSecret(ctx, member, name, corev1.SecretTypeServiceAccountToken)
	if err != nil {
		return nil, err
	}
	made := &credential{secret: secret, note: note}
	came, err := site.Wait(ctx, site.RequestTimeout, func(ctx context.Context) (bool, error) {
		err := member.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		made.token = string(secret.Data[corev1.ServiceAccountTokenKey])
		return made.token != "", err
	})
	if err != nil || !came {
		_ = revoke(ctx, member, made)
		if err == nil {
			return nil, console.Faultf("look at kube-controller-manager there, or pass --token-lifetime for a token that ends",
				"%s: no token came into Secret %s/%s", member.Called, flotillav1.SystemNamespace, secret.Name)
		}
		return nil, member.Explain("waiting for the token", err)
	}
	return made, nil
}

// revoke revokes a credential, also after an interruption.
func revoke(ctx context.Context, member *site.Site, made *credential) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), site.RequestTimeout)
	defer cancel()
	err := client.IgnoreNotFound(member.Delete(ctx, made.secret))
	return member.Explain(fmt.Sprintf("revoking a token: deleting Secret %s/%s", flotillav1.SystemNamespace, made.secret.Name), err)
}

// isOf reports whether a credential was made for the member of that name.
func isOf(credential *corev1.Secret, member string) bool {
	return credential.Annotations[flotillav1.AnnotationClusterName] == member
}

// Unused lists the Secrets in a member that credentials are bound to which register or rotate made, and which the registration
// does not hold. It returns nothing if the registration cannot be read or holds a credential that is not one of them.
func Unused(ctx context.Context, member *site.Site, secret *corev1.Secret) ([]string, error) {
	config := load(secret.Data[flotillav1.KeyKubeconfig])
	if config == nil {
		return nil, nil
	}
	held := claimsOf(currentToken(config)).secret()
	if held == "" {
		return nil, nil
	}
	made, err := credentials(ctx, member)
	var unused []string
	for i := range made {
		if made[i].Name != held {
			unused = append(unused, made[i].Name)
		}
	}
	return unused, err
}

// credentials lists the Secrets in a member that the credentials of register and rotate are bound to.
func credentials(ctx context.Context, member *site.Site) ([]corev1.Secret, error) {
	list := &corev1.SecretList{}
	err := member.List(ctx, list, client.InNamespace(flotillav1.SystemNamespace), client.MatchingLabels{labelCredential: "true"})
	if err != nil {
		return nil, member.Explain("listing the Secrets that tokens are tied to", err)
	}
	return list.Items, nil
}

// revokeAll revokes those credentials in a member that are chosen, and returns how many there were.
func revokeAll(ctx context.Context, member *site.Site, chosen func(*corev1.Secret) bool, doing func(string)) (int, error) {
	made, err := credentials(ctx, member)
	if err != nil {
		return 0, err
	}
	revoked := 0
	for i := range made {
		if !chosen(&made[i]) {
			continue
		}
		doing("revoking " + made[i].Name)
		if err := revoke(ctx, member, &credential{secret: &made[i]}); err != nil {
			return revoked, err
		}
		revoked++
	}
	return revoked, nil
}

// claims are the claims of a token. They are not verified, because register and rotate made the token.
type claims struct {
	Kubernetes struct {
		Secret struct {
			Name string `json:"name"`
		} `json:"secret"`
	} `json:"kubernetes.io"`
	LegacySecret string `json:"kubernetes.io/serviceaccount/secret.name"`
}

func claimsOf(token string) claims {
	var found claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return found
	}
	if payload, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
		// Without JSON there are no claims.
		_ = json.Unmarshal(payload, &found)
	}
	return found
}

// secret returns the name of the Secret that the token is bound to, if any.
func (c claims) secret() string {
	return cmp.Or(c.Kubernetes.Secret.Name, c.LegacySecret)
}
