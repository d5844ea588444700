// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// membership is a member with its registration.
type membership struct {
	hub    *site.Site
	member *flotillav1.MemberCluster
	secret *corev1.Secret
	// site is the member itself; nil without a context that leads there.
	site *site.Site
}

// membershipOf reads the membership of a cluster.
func (t *tool) membershipOf(ctx context.Context, name, contextName string) (m membership, err error) {
	if m.hub, err = t.Hub(); err != nil {
		return m, err
	}
	if m.member, err = m.hub.Member(ctx, name); err != nil {
		return m, err
	}
	if m.secret, err = m.hub.Registration(ctx, m.member); err != nil || contextName == "" {
		return m, err
	}
	if m.site, err = t.ByContext(contextName); err != nil {
		return m, err
	}
	return m, m.site.MustBe(ctx, m.member)
}

// endpointOf returns the cluster of a context for members, with the files that it names embedded.
func (t *tool) endpointOf(contextName, server string) (*clientcmdapi.Cluster, error) {
	raw, err := t.MemberConfig(contextName).RawConfig()
	if err != nil {
		return nil, fmt.Errorf("loading context %q: %w", contextName, err)
	}
	found, ok := raw.Contexts[contextName]
	if !ok || raw.Clusters[found.Cluster] == nil {
		return nil, console.Faultf("kubectl config get-contexts lists those that there are", "context %q or its cluster does not exist", contextName)
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
	endpoint.Server = cmp.Or(server, endpoint.Server)
	return endpoint, nil
}

// kubeconfigFor encodes the kubeconfig of a registration.
func kubeconfigFor(name string, endpoint *clientcmdapi.Cluster, token string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = endpoint
	config.AuthInfos[flotillav1.HubServiceAccount] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: flotillav1.HubServiceAccount}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return content, nil
}

// registrationSecret returns the Secret that registers a member.
func registrationSecret(metadata metav1.ObjectMeta, kind corev1.SecretType, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metadata, Type: kind, Data: map[string][]byte{flotillav1.KeyKubeconfig: kubeconfig},
	}
}

// acceptable returns an error if no hub accepts a registration. The configuration of a hub may refuse more. where is where
// the user can correct it.
func acceptable(secret *corev1.Secret, where string) error {
	_, err := registration.Accept(secret, site.Policy)
	if refused := (*verdict.Refusal)(nil); errors.As(err, &refused) {
		what, remedy, _ := strings.Cut(refused.Message, "; ")
		return console.Faultf(remedy+" ("+where+")", "the hub would refuse the registration: %s: %s", refused.Reason, what)
	}
	return err
}
