// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// report puts the outcome of the pass where roll-up and hub passes see it.
func (p *copyPass) report(outcome fleet.Outcome) fleet.Outcome {
	outcome.Generation, outcome.MadeIn, outcome.LostAt = p.hubObject.GetGeneration(), p.madeIn, p.lostAt
	return p.Table.Set(p.key, p.name, outcome)
}

// refuse says that the copy cannot be made what it should be until something changes. A retry would not help.
func (p *copyPass) refuse(reason, message string) (time.Duration, error) {
	p.tell(fleet.Outcome{Reason: reason, Message: message})
	return 0, nil
}

// refuseExcess says of chosen members that the record of the hub object has no room for them. There is a hub pass when one
// leaves it.
func (r *Reconciler) refuseExcess(hubObject fleet.Object, names []string) {
	var news []string
	for _, name := range names {
		before := r.Table.Set(r.key(hubObject), name, fleet.Outcome{
			Generation: hubObject.GetGeneration(), Reason: flotillav1.ReasonTooManyClusters, Message: tooManyClusters,
		})
		if before.Reason != flotillav1.ReasonTooManyClusters {
			news = append(news, name)
		}
	}
	if len(news) > 0 {
		r.say(hubObject, corev1.EventTypeWarning, flotillav1.ReasonTooManyClusters, actionPlace, fleet.Join(news), tooManyClusters)
	}
}

// tooManyClusters names flotillav1.MaxPlacedIn.
const tooManyClusters = "No copy is made: the object is placed in 10000 clusters, and no more can be recorded"

// tell reports an outcome, with an event when its reason is news.
func (p *copyPass) tell(outcome fleet.Outcome) {
	outcome.Message = fleet.Clip(outcome.Message)
	if before := p.report(outcome); before.Reason != outcome.Reason {
		p.say(p.hubObject, corev1.EventTypeWarning, outcome.Reason, actionPlace, p.name, outcome.Message)
	}
}

// failed tells a member that refuses from one that does not answer. A refusal is shown, and tried again much later.
func (p *copyPass) failed(err error) (time.Duration, error) {
	if !refused(err) {
		return 0, fmt.Errorf("writing to cluster %q: %w", p.name, err)
	}
	reason := flotillav1.ReasonApplyFailed
	if strings.Contains(err.Error(), undeclared) {
		reason = flotillav1.ReasonVersionSkew
	}
	if _, err := p.refuse(reason, err.Error()); err != nil {
		return 0, err
	}
	return refusedDelay, nil
}

// undeclared is how an API server refuses to apply a field that its schema lacks. That is known before, unless the
// member's CRD may not be read or has just been replaced.
const undeclared = "field not declared in schema"

// refused reports whether an API server has understood and refused a request, so that the same one is refused again.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || outdated(err) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code <= 500
	}
}

// outdated reports whether a write was refused because the object is not the one that was read: a precondition failed.
// An apply that names the UID of an object that another has replaced is not a conflict but invalid.
func outdated(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return found && cause.Field == "metadata.uid"
}
