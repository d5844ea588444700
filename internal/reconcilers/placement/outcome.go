// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// report stores the outcome of the pass in the Table, for roll-up and hub passes.
func (p *copyPass) report(outcome fleet.Outcome) fleet.Outcome {
	outcome.Generation, outcome.MadeIn, outcome.LostAt = p.hubObject.GetGeneration(), p.madeIn, p.lostAt
	return p.Table.Set(p.key, p.name, outcome)
}

// refuse reports that the spec cannot be applied until something changes. A retry would not help.
func (p *copyPass) refuse(reason, message string) (time.Duration, error) {
	p.reportWithEvent(fleet.Outcome{Reason: reason, Message: message})
	return 0, nil
}

// refuseExcess reports for chosen members that the record of the hub object is full. A hub pass follows when a member
// is removed from it.
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
		r.say(hubObject, corev1.EventTypeWarning, flotillav1.ReasonTooManyClusters, actionPlace, text.Names(news), tooManyClusters)
	}
}

// tooManyClusters contains flotillav1.MaxPlacedIn.
const tooManyClusters = "No copy is created: the object is placed in 10000 clusters, which is the maximum"

// reportWithEvent reports an outcome, with an event if its reason is new.
func (p *copyPass) reportWithEvent(outcome fleet.Outcome) {
	outcome.Message = sanitize.Clip(outcome.Message)
	if before := p.report(outcome); before.Reason != outcome.Reason {
		p.say(p.hubObject, corev1.EventTypeWarning, outcome.Reason, actionPlace, p.name, outcome.Message)
	}
}

// failed distinguishes a member that refuses a write from one that does not answer. A refusal is reported and retried
// later.
func (p *copyPass) failed(err error) (time.Duration, error) {
	result := fleet.SentUnknown
	if fleet.Outdated(err) || fleet.Refused(err) && !apierrors.IsInternalError(err) {
		result = fleet.SentNothing
	}
	p.Table.Answered(p.key, p.name, result, "")
	if !fleet.Refused(err) {
		return 0, fmt.Errorf("writing to cluster %q: %w", p.name, err)
	}
	reason := flotillav1.ReasonApplyFailed
	if fleet.Undeclared(err) {
		reason = flotillav1.ReasonVersionSkew
	}
	if _, err := p.refuse(reason, err.Error()); err != nil {
		return 0, err
	}
	return fleet.RefusedDelay, nil
}
