// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// What tools of people share with the pool is here: they must not trust a registration more than the pool does.

// acceptDialTimeout is how long connecting may take.
const acceptDialTimeout = 5 * time.Second

// AcceptKubeconfig says why the pool would refuse a kubeconfig, by its bytes alone.
func AcceptKubeconfig(kubeconfig []byte, policy Policy) error {
	if _, refused := parseCredential(kubeconfig, &rules{policy: policy}); refused != nil {
		return refused
	}
	return nil
}

// RegistrationConfig returns how to reach the member of a registration. It is made of accepted values only, so no program
// is run and no file is read that the registration names, and the connection has the address policy of the pool.
func RegistrationConfig(secret *corev1.Secret, policy Policy) (*rest.Config, error) {
	by, found := conventionOf(secret)
	if !found {
		return nil, fmt.Errorf("the Secret %s/%s is not a registration", secret.Namespace, secret.Name)
	}
	content, missing := by.content(secret)
	if missing != "" {
		return nil, fmt.Errorf("the Secret %s/%s has no key %q", secret.Namespace, secret.Name, missing)
	}
	accepted, refused := by.parse(content, &rules{policy: policy})
	if refused != nil {
		return nil, refused
	}
	tlsConfig, err := accepted.tlsConfig()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig: tlsConfig, TLSHandshakeTimeout: acceptDialTimeout, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{Timeout: acceptDialTimeout, Control: policy.control}).DialContext,
	}
	if accepted.proxy != nil {
		transport.Proxy = http.ProxyURL(accepted.proxy)
	}
	config := &rest.Config{Host: accepted.server.String(), Transport: transport, BearerToken: string(accepted.token.reveal())}
	return config, nil
}

// conventionOf returns the convention by which a Secret is a registration.
func conventionOf(secret *corev1.Secret) (convention, bool) {
	for _, name := range Conventions() {
		by := conventions[name]
		selector, err := labels.Parse(by.selector)
		if err == nil && selector.Matches(labels.Set(secret.Labels)) && (by.recognises == nil || by.recognises(secret)) {
			return by, true
		}
	}
	return convention{}, false
}

// Right is something that the manager asks a member for before it works there. Without it the kind is off, or the member
// is refused when Kind is empty.
type Right struct{ Verb, Group, Resource, Subresource, Namespace, Kind string }

// RequiredRights lists what the manager asks a member for.
func RequiredRights(paused bool) []Right {
	var rights []Right
	for _, r := range requiredRights(paused) {
		rights = append(rights, Right{Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Kind: r.kind})
	}
	return rights
}

// CompareDefinition says how a member's CustomResourceDefinition of a kind of ours relates to the one of this build: the
// fields of spec that it lacks, and its revision beside ours.
func CompareDefinition(theirs *apiextensionsv1.CustomResourceDefinition) (lacks []MissingField, revision, ours int64, err error) {
	for _, own := range definitions() {
		if own.object.Name == theirs.Name {
			state := stateOf(own, theirs)
			return state.lacks, state.revision, state.ours, nil
		}
	}
	return nil, 0, 0, errors.New("no definition of ours is called " + theirs.Name)
}

// DefinitionNames are the names of the CustomResourceDefinitions that a member needs.
func DefinitionNames() []string {
	var names []string
	for _, own := range definitions() {
		names = append(names, own.object.Name)
	}
	return names
}
