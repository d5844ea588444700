// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"net/http"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// ownKey marks the context of the pool's own writes: the claim, and the cleanup during offboarding.
type ownKey struct{}

// asOwn marks writes of the pool, which are permitted even before a member is claimed and after it is gone.
func asOwn(ctx context.Context) context.Context { return context.WithValue(ctx, ownKey{}, true) }

const (
	claimPath  = "/apis/coordination.k8s.io/v1/namespaces/" + preflight.ClaimNamespace + "/leases/" + preflight.ClaimName
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// isWrite reports whether a request is a write that pausing or freezing must prevent. Access reviews change nothing,
// and renewing the claim only shows that the hub is alive.
func isWrite(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	case http.MethodPost:
		return req.URL.Path != reviewPath
	case http.MethodPut:
		return req.URL.Path != claimPath
	default:
		return true
	}
}

// permit returns an error when a request must not be sent now, and otherwise how long it may take; zero means that it is
// not limited. Reads are always permitted. It is enforced below every client of the member, so that no reconciler can
// bypass it. It checks the wanted state, which the Snapshot reflects with a short delay.
func (m *member) permit(req *http.Request) (left time.Duration, err error) {
	if !isWrite(req) {
		return 0, nil
	}
	state := m.writeState()
	switch {
	case m.pool.frozen.Load().covers(state.wanted.Labels):
		return 0, &clusters.HeldError{Reason: flotillav1.ReasonFrozen}
	case state.wanted.Paused:
		return 0, &clusters.HeldError{Reason: flotillav1.ReasonPaused}
	case req.Context().Value(ownKey{}) != nil:
		return 0, nil
	case state.shown.Paused, state.shown.State == clusters.StateGone:
		return 0, &clusters.HeldError{Reason: "NotClaimed"}
	}
	if left = state.permission.Left(m.pool.cfg.Clock.Now()); left == 0 {
		return 0, &clusters.HeldError{Reason: "NotClaimed"}
	}
	if leading := m.pool.cfg.Leading; leading != nil {
		left = min(left, leading())
	}
	if left == 0 {
		return 0, clusters.ErrNotLeading
	}
	return left, nil
}

// held reports whether the registration or the freeze switch forbids writes, as last observed by the actor.
func (m *member) held() bool { return m.current.Paused || !m.thawed }

// onFreeze publishes whether the member is frozen, and records an event when that changed.
func (m *member) onFreeze() {
	switched := m.pool.frozen.Load()
	frozen := switched.covers(m.current.Labels)
	m.update(func(p *publication) {
		p.snapshot.Frozen = frozen
		delete(p.verdicts, flotillav1.ConditionFrozen)
		if frozen {
			p.verdicts[flotillav1.ConditionFrozen] = verdict.Good(flotillav1.ReasonFrozen, switched.message)
		}
	})
	switch {
	case frozen && m.thawed:
		m.warning(flotillav1.ReasonFrozen, "Freeze", "Nothing is written to the member: "+switched.message)
	case !frozen && !m.thawed:
		m.normal("Unfrozen", "Freeze", "The member is written again")
	}
	m.thawed = !frozen
}

// reportFrozen sets condition Frozen while the member is frozen, and removes it otherwise. Unlike the other
// conditions, it is known from the start.
func reportFrozen(object *flotillav1.MemberCluster, wanted publication, now time.Time) {
	v, frozen := wanted.verdicts[flotillav1.ConditionFrozen]
	if !frozen {
		apimeta.RemoveStatusCondition(&object.Status.Conditions, flotillav1.ConditionFrozen)
		return
	}
	apimeta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: flotillav1.ConditionFrozen, Status: v.Status, Reason: v.Reason, Message: v.Message,
		ObservedGeneration: object.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}
