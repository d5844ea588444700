// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Of returns the registration in a Secret, or false if no convention recognises it.
func Of(secret *corev1.Secret) (*Registration, bool) {
	for _, by := range Conventions() {
		selector, err := labels.Parse(by.Selector())
		if err == nil && selector.Matches(labels.Set(secret.Labels)) && by.Recognises(secret) {
			r := by.Read(secret)
			return &r, true
		}
	}
	return nil, false
}

// Accept returns the credential in a registration Secret. It accepts or refuses the Secret as the pool does, so that
// command-line tools trust a registration no more than the pool. The error is a *verdict.Refusal if the pool refuses the
// Secret.
func Accept(secret *corev1.Secret, policy Policy) (*Credential, error) {
	r, found := Of(secret)
	if !found {
		return nil, fmt.Errorf("the Secret %s/%s is not a registration", secret.Namespace, secret.Name)
	}
	accepted, refused := r.Credential(&Rules{Policy: policy})
	if refused != nil {
		return nil, refused
	}
	return accepted, nil
}
