// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"net/http"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// HeldError answers a write to a member that may not be written now. Nothing was sent.
type HeldError struct {
	// Reason is ReasonFrozen, ReasonPaused, or why the hub does not hold the member.
	Reason string
}

// Error implements error.
func (e *HeldError) Error() string { return "nothing is written to the member now: " + e.Reason }

// ownKey marks the context of the pool's own writes: the claim, and what offboarding takes back.
type ownKey struct{}

// asOwn marks writes that the pool makes before a member is claimed and after it has left.
func asOwn(ctx context.Context) context.Context { return context.WithValue(ctx, ownKey{}, true) }

const (
	claimPath  = "/apis/coordination.k8s.io/v1/namespaces/" + claimNamespace + "/leases/" + claimName
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// isWrite says whether a request changes something in the member that a hold is to keep as it is. Asking for one's own
// rights changes nothing, and the claim says that the hub lives.
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

// refuseRequest answers a request that is not sent.
func refuseRequest(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}

// permit says whether a write may be sent now. It stands below every client of the member, so that no reconciler can
// forget to ask, and looks at what is wanted, which the Snapshot follows a moment later.
func (m *member) permit(ctx context.Context) error {
	m.mu.Lock()
	paused, memberLabels, shown := m.wanted.paused, m.wanted.labels, m.published.snapshot
	m.mu.Unlock()
	switch {
	case m.pool.frozen.Load().covers(memberLabels):
		return &HeldError{Reason: flotillav1.ReasonFrozen}
	case paused:
		return &HeldError{Reason: flotillav1.ReasonPaused}
	case ctx.Value(ownKey{}) != nil:
		return nil
	case shown.Paused, shown.State == StateGone:
		return &HeldError{Reason: "NotClaimed"}
	default:
		return nil
	}
}

// held says whether the registration or the freeze switch forbid writes, as far as the actor has shown it.
func (m *member) held() bool { return m.current.paused || !m.thawed }

// onFreeze shows whether the member is frozen, and tells when that has changed.
func (m *member) onFreeze() {
	switched := m.pool.frozen.Load()
	frozen := switched.covers(m.current.labels)
	m.update(func(p *publication) {
		p.snapshot.Frozen = frozen
		delete(p.verdicts, flotillav1.ConditionFrozen)
		if frozen {
			p.verdicts[flotillav1.ConditionFrozen] = good(flotillav1.ReasonFrozen, switched.message)
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

// reportFrozen keeps the condition exactly while the member is frozen. Unlike what the member shows, it is known from the
// start.
func reportFrozen(object *flotillav1.MemberCluster, wanted publication, now time.Time) {
	v, frozen := wanted.verdicts[flotillav1.ConditionFrozen]
	if !frozen {
		apimeta.RemoveStatusCondition(&object.Status.Conditions, flotillav1.ConditionFrozen)
		return
	}
	apimeta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: flotillav1.ConditionFrozen, Status: v.status, Reason: v.reason, Message: v.message,
		ObservedGeneration: object.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}
