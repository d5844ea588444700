// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// How the hub gets into a member: a token of the ServiceAccount flotilla-hub that is tied to a Secret of its own in the
// member. Deleting that Secret revokes the token within seconds, whatever its lifetime, and several can be valid side by
// side, so that one follows another without a gap.
//
// The manager does not make tokens, so one that ends is renewed by a person or a CronJob that runs `rotate`. A token for a
// year is asked for. A member that grants less than a month would fall silent when nobody looks: there, unless a lifetime
// was asked for, the token is one that does not end.

const (
	// serviceAccount is who the hub is in a member.
	serviceAccount = "flotilla-hub"
	// labelCredential marks the Secrets in a member that credentials are tied to.
	labelCredential = "flotilla.dev/hub-credential"
	// wantedLifetime is asked for, and shortLifetime is too short for somebody to remember.
	wantedLifetime = 365 * 24 * time.Hour
	shortLifetime  = 30 * 24 * time.Hour
	// lifetimeLeeway is what an API server may grant less without it mattering.
	lifetimeLeeway = time.Minute
)

// credential is a token of the hub in a member.
type credential struct {
	token string
	// expires is zero for a token that does not end.
	expires time.Time
	// secret is what the token is tied to in the member.
	secret *corev1.Secret
	note   string
}

// String never shows the token.
func (c credential) String() string {
	text := "a token of " + systemNamespace + "/" + serviceAccount
	if c.expires.IsZero() {
		text += " that does not end"
	} else {
		text += " until " + c.expires.UTC().Format(time.RFC3339)
	}
	return text + ", tied to Secret " + c.secret.Name + c.note
}

// lifetimeFlag is what --token-lifetime says: how long, and whether somebody said so. Zero is a token that does not end.
type lifetimeFlag struct {
	wanted time.Duration
	asked  bool
}

const lifetimeUsage = "How long the hub's token in the member lasts; 0 for one that does not end. By default a year, or, " +
	"where the member grants less than a month, one that does not end"

// mint makes a credential for a registration. When it fails nothing stays in the member.
func mint(ctx context.Context, member *site, name string, lifetime lifetimeFlag) (*credential, error) {
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
	return nil, faultf(fmt.Sprintf("pass --token-lifetime=%s and run kubectl flotilla rotate before each end, or --token-lifetime=0 for a token that does not end", granted),
		"%s grants tokens for %s, not for %s", member.called, granted, wanted)
}

// newTokenSecret makes the Secret that a token is tied to.
func newTokenSecret(ctx context.Context, member *site, name string, kind corev1.SecretType) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: systemNamespace, GenerateName: serviceAccount + "-token-",
			Labels:      map[string]string{labelCredential: "true"},
			Annotations: map[string]string{flotillav1.AnnotationClusterName: name},
		},
		Type: kind,
	}
	if kind == corev1.SecretTypeServiceAccountToken {
		secret.Annotations[corev1.ServiceAccountNameKey] = serviceAccount
	}
	if err := member.Create(ctx, secret); err != nil {
		return nil, member.explain("creating the Secret that the token is tied to", err)
	}
	return secret, nil
}

// mintBound asks for a token that ends.
func mintBound(ctx context.Context, member *site, name string, wanted time.Duration) (*credential, time.Duration, error) {
	secret, err := newTokenSecret(ctx, member, name, corev1.SecretTypeOpaque)
	if err != nil {
		return nil, 0, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(wanted / time.Second)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: serviceAccount}}
	made := &credential{secret: secret}
	if err := member.SubResource("token").Create(ctx, account, request); err != nil {
		_ = revoke(ctx, member, made)
		return nil, 0, member.explain("asking for a token of "+systemNamespace+"/"+serviceAccount, err)
	}
	made.token, made.expires = request.Status.Token, request.Status.ExpirationTimestamp.Time
	issued := claimsOf(made.token).issued()
	return made, made.expires.Sub(issued), nil
}

// mintLasting has the member make a token that does not end, which its token controller writes into the Secret.
func mintLasting(ctx context.Context, member *site, name, note string) (*credential, error) {
	secret, err := newTokenSecret(ctx, member, name, corev1.SecretTypeServiceAccountToken)
	if err != nil {
		return nil, err
	}
	made := &credential{secret: secret, note: note}
	came, err := poll(ctx, requestTimeout, func(ctx context.Context) (bool, error) {
		err := member.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		made.token = string(secret.Data[corev1.ServiceAccountTokenKey])
		return made.token != "", err
	})
	if err != nil || !came {
		_ = revoke(ctx, member, made)
		if err == nil {
			return nil, faultf("look at kube-controller-manager there, or pass --token-lifetime for a token that ends",
				"%s: no token came into Secret %s/%s", member.called, systemNamespace, secret.Name)
		}
		return nil, member.explain("waiting for the token", err)
	}
	return made, nil
}

// revoke takes a credential back. It goes on when the command was interrupted: a credential that nobody keeps must go.
func revoke(ctx context.Context, member *site, made *credential) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	err := client.IgnoreNotFound(member.Delete(ctx, made.secret))
	return member.explain(fmt.Sprintf("revoking a token: deleting Secret %s/%s", systemNamespace, made.secret.Name), err)
}

// credentialsOf lists the Secrets in a member that credentials of a registration are tied to.
func credentialsOf(ctx context.Context, member *site, name string) ([]corev1.Secret, error) {
	list := &corev1.SecretList{}
	err := member.List(ctx, list, client.InNamespace(systemNamespace), client.MatchingLabels{labelCredential: "true"})
	if err != nil {
		return nil, member.explain("listing the Secrets that tokens are tied to", err)
	}
	var of []corev1.Secret
	for i := range list.Items {
		if list.Items[i].Annotations[flotillav1.AnnotationClusterName] == name {
			of = append(of, list.Items[i])
		}
	}
	return of, nil
}

// claims are what a token says about itself. Nothing is verified: it is our own.
type claims struct {
	IssuedAt   int64 `json:"iat"`
	Kubernetes struct {
		Secret struct {
			Name string `json:"name"`
		} `json:"secret"`
	} `json:"kubernetes.io"`
	LegacySecret string `json:"kubernetes.io/serviceaccount/secret.name"`
}

func claimsOf(token string) claims {
	var said claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return said
	}
	if payload, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
		// What is no JSON says nothing.
		_ = json.Unmarshal(payload, &said)
	}
	return said
}

func (c claims) issued() time.Time { return time.Unix(c.IssuedAt, 0) }

// secret is the name of the Secret that the token is tied to, if any.
func (c claims) secret() string {
	if c.Kubernetes.Secret.Name != "" {
		return c.Kubernetes.Secret.Name
	}
	return c.LegacySecret
}

// endpointOf returns where the hub finds the member: the cluster of the user's context, embedded.
func (t *tool) endpointOf(contextName, server string) (*clientcmdapi.Cluster, error) {
	raw, err := t.memberConfig(contextName).RawConfig()
	if err != nil {
		return nil, fmt.Errorf("loading context %q: %w", contextName, err)
	}
	found, ok := raw.Contexts[contextName]
	if !ok || raw.Clusters[found.Cluster] == nil {
		return nil, faultf("kubectl config get-contexts lists those that there are", "context %q or its cluster does not exist", contextName)
	}
	theirs := raw.Clusters[found.Cluster]
	endpoint := &clientcmdapi.Cluster{
		Server: theirs.Server, TLSServerName: theirs.TLSServerName, ProxyURL: theirs.ProxyURL,
		InsecureSkipTLSVerify: theirs.InsecureSkipTLSVerify, CertificateAuthorityData: theirs.CertificateAuthorityData,
	}
	if len(endpoint.CertificateAuthorityData) == 0 && theirs.CertificateAuthority != "" {
		if endpoint.CertificateAuthorityData, err = os.ReadFile(theirs.CertificateAuthority); err != nil {
			return nil, fmt.Errorf("reading the certificate authority of context %q: %w", contextName, err)
		}
	}
	if server != "" {
		endpoint.Server = server
	}
	if parsed, err := url.Parse(endpoint.Server); err != nil || parsed.Scheme != "https" {
		return nil, faultf("pass the address by which the hub reaches the member with --server=https://...", "the server of context %q is not an https URL", contextName)
	}
	return endpoint, nil
}

// kubeconfigFor writes the kubeconfig of a registration.
func kubeconfigFor(name string, endpoint *clientcmdapi.Cluster, token string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = endpoint
	config.AuthInfos[serviceAccount] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: serviceAccount}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return content, nil
}

// acceptable says whether a hub can accept a kubeconfig; what only its configuration decides is left to it.
func acceptable(kubeconfig []byte) error {
	err := clusters.AcceptKubeconfig(kubeconfig, clusters.Policy{AllowSystemRoots: true, AllowProxyURL: true})
	if err != nil {
		return faultf("correct the context, or pass --server", "the hub would refuse the registration: %w", err)
	}
	return nil
}

// ignoreGone makes no error of what is not there any more.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
