// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// Verdict is the content of one condition of a MemberCluster.
type Verdict struct {
	Status          metav1.ConditionStatus
	Reason, Message string
}

// Good returns the verdict of a condition that is true.
func Good(reason, message string) Verdict {
	return Verdict{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// YieldsToExpiry reports whether the expiry of the credential replaces this verdict on it. Refusals for other reasons are
// not replaced.
func (v Verdict) YieldsToExpiry() bool {
	switch v.Reason {
	case flotillav1.ReasonUnauthorized, flotillav1.ReasonExpiresSoon, flotillav1.ReasonExpired:
		return true
	default:
		return v.Status == "True"
	}
}

// Refusal is the error of a member that is not engaged. It holds the resulting state and condition.
type Refusal struct {
	State           clusters.State
	Condition       string
	Reason, Message string
	// Final is true if only a change of the registration can help. Other refusals are retried.
	Final bool
}

// Error implements error.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Verdict returns the content of the condition.
func (r *Refusal) Verdict() Verdict {
	return Verdict{Status: metav1.ConditionFalse, Reason: r.Reason, Message: r.Message}
}

// RefuseCredential refuses the content of a registration.
func RefuseCredential(reason, message string) *Refusal {
	return &Refusal{
		State: clusters.StateInvalid, Condition: flotillav1.ConditionCredentialsAccepted, Reason: reason, Message: message, Final: true,
	}
}

// RefuseIdentity refuses a registration because of the cluster that it leads to.
func RefuseIdentity(reason, message string) *Refusal {
	return &Refusal{State: clusters.StateInvalid, Condition: flotillav1.ConditionCredentialsAccepted, Reason: reason, Message: message}
}

// RefuseMember refuses a member because of what it serves or allows, or which hub it belongs to.
func RefuseMember(condition, reason, message string) *Refusal {
	return &Refusal{State: clusters.StateIncompatible, Condition: condition, Reason: reason, Message: message}
}

// RefuseLimit refuses a member that exceeds a limit.
func RefuseLimit(format string, args ...any) *Refusal {
	return RefuseMember(flotillav1.ConditionCachesSynced, flotillav1.ReasonLimitExceeded, fmt.Sprintf(format, args...))
}
