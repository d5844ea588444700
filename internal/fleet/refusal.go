// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RefusedDelay is the delay before a refused write is retried: its cause, such as a quota, a webhook or a role, may be gone
// without an event that says so.
const RefusedDelay = 5 * time.Minute

// Refused reports whether an API server has understood and refused a request, so that repeating it has the same result.
func Refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || Outdated(err) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code <= 500
	}
}

// Outdated reports whether a write was refused because the object has changed since it was read: a precondition failed.
// An apply with the UID of an object that was replaced fails as invalid and not as a conflict.
func Outdated(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return found && cause.Field == "metadata.uid"
}

// Undeclared reports whether an API server has refused to apply a field that its schema lacks. Usually the field is known
// to be missing, unless the member's CRD cannot be read or was replaced a moment ago.
func Undeclared(err error) bool { return strings.Contains(err.Error(), "field not declared in schema") }
