// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package condition reads the conditions of members and of objects, and says what their reasons mean.
package condition

import (
	"regexp"
	"strings"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/docs"
)

// Joining are the conditions of a member, in the order in which it meets them before it is ready.
var Joining = []string{
	flotillav1.ConditionCredentialsAccepted, flotillav1.ConditionReachable, flotillav1.ConditionAPIsServed,
	flotillav1.ConditionClaimed, flotillav1.ConditionCachesSynced,
}

// Of returns a condition, or one that is Unknown when there is none.
func Of(conditions []metav1.Condition, kind string) metav1.Condition {
	if found := apimeta.FindStatusCondition(conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}

// Accepted returns the condition CredentialsAccepted of a member.
func Accepted(member *flotillav1.MemberCluster) metav1.Condition {
	return Of(member.Status.Conditions, flotillav1.ConditionCredentialsAccepted)
}

// FirstUnmet returns the condition of a member that the others wait for.
func FirstUnmet(member *flotillav1.MemberCluster) metav1.Condition {
	for _, kind := range Joining {
		if found := Of(member.Status.Conditions, kind); found.Status == metav1.ConditionFalse {
			return found
		}
	}
	return Of(member.Status.Conditions, flotillav1.ConditionReady)
}

// Since returns when a condition changed, or when its object was created if it does not have the condition yet.
func Since(c metav1.Condition, object metav1.Object) *metav1.Time {
	if c.LastTransitionTime.IsZero() {
		return new(object.GetCreationTimestamp())
	}
	return &c.LastTransitionTime
}

// meanings are the rows of docs/conditions.md, by reason.
var meanings = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (.+) \\|$").FindAllStringSubmatch(docs.Conditions, -1) {
		text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(match[2], "$1")
		found[match[1]] = strings.ReplaceAll(text, "`", "")
	}
	return found
})

// Meaning returns what a reason means and what the user can do.
func Meaning(reason string) string { return meanings()[reason] }
