// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// state is how a member, or a copy in one, is shown. Each has a colour and a letter of its own, and worse ones come first.
type state int

const (
	stateRefused state = iota
	stateUnreachable
	stateNotReady
	stateJoining
	stateUnwell
	stateEnding
	stateReady
	states
)

// stateNames and stateLetters are of the states.
var (
	stateNames   = [states]string{"refused", "unreachable", "not ready", "not seen yet", "objects not ready", "credential ends soon", "ready"}
	stateLetters = [states]string{"R", "U", "N", "?", "!", "E", ""}
)

// String returns the name.
func (s state) String() string { return stateNames[s] }

// Letter is what a tile shows.
func (s state) Letter() string { return stateLetters[s] }

// urgencyUnwell is the urgency of a ready member with objects that are not.
const urgencyUnwell = 2

// stateOf returns the state of a member.
func stateOf(member *flotillav1.MemberCluster, urgency int) state {
	is := func(condition string, status metav1.ConditionStatus) bool {
		return apimeta.IsStatusConditionPresentAndEqual(member.Status.Conditions, condition, status)
	}
	switch {
	case is(flotillav1.ConditionReady, metav1.ConditionTrue) && urgency == urgencyUnwell:
		return stateUnwell
	case is(flotillav1.ConditionReady, metav1.ConditionTrue) && isEnding(member):
		return stateEnding
	case is(flotillav1.ConditionReady, metav1.ConditionTrue):
		return stateReady
	case is(flotillav1.ConditionCredentialsAccepted, metav1.ConditionFalse), is(flotillav1.ConditionClaimed, metav1.ConditionFalse):
		return stateRefused
	case is(flotillav1.ConditionReachable, metav1.ConditionFalse):
		return stateUnreachable
	case is(flotillav1.ConditionReady, metav1.ConditionFalse):
		return stateNotReady
	}
	return stateJoining
}

// isEnding reports whether the credential of a member ends soon or has ended.
func isEnding(member *flotillav1.MemberCluster) bool {
	accepted := apimeta.FindStatusCondition(member.Status.Conditions, flotillav1.ConditionCredentialsAccepted)
	return accepted != nil && (accepted.Reason == flotillav1.ReasonExpiresSoon || accepted.Reason == flotillav1.ReasonExpired)
}

// copyState returns the state of a copy by the entry of its cluster.
func copyState(ready metav1.ConditionStatus) state {
	switch ready {
	case metav1.ConditionTrue:
		return stateReady
	case metav1.ConditionFalse:
		return stateNotReady
	}
	return stateJoining
}
