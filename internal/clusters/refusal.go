// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// verdict is what one condition of a MemberCluster says.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// good is a condition that is met.
func good(reason, message string) verdict {
	return verdict{status: metav1.ConditionTrue, reason: reason, message: message}
}

// refusal is why a member is not engaged: the state it is in, and the condition that says so.
type refusal struct {
	state           State
	condition       string
	reason, message string
	// final says that only a change of the registration can help; everything else is tried again.
	final bool
}

// Error implements error.
func (r *refusal) Error() string { return r.reason + ": " + r.message }

// verdict is the condition that says why.
func (r *refusal) verdict() verdict {
	return verdict{status: metav1.ConditionFalse, reason: r.reason, message: r.message}
}

// refuseCredential refuses the content of a registration.
func refuseCredential(reason, message string) *refusal {
	return &refusal{
		state: StateInvalid, condition: flotillav1.ConditionCredentialsAccepted, reason: reason, message: message, final: true,
	}
}

// refuseIdentity refuses a registration for the cluster that it leads to.
func refuseIdentity(reason, message string) *refusal {
	return &refusal{state: StateInvalid, condition: flotillav1.ConditionCredentialsAccepted, reason: reason, message: message}
}

// refuseMember refuses a member for what it serves, allows or belongs to.
func refuseMember(condition, reason, message string) *refusal {
	return &refusal{state: StateIncompatible, condition: condition, reason: reason, message: message}
}
