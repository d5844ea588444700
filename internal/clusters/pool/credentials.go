// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// credentials are the credentials of a member. What the registration asks for, what the member has accepted, and what is in
// use are three things: each outlives the end of a session.
type credentials struct {
	// requested is the one that the registration asks for, nil if that is refused; proven is the last one that the member
	// has accepted, nil before it did.
	requested, proven *registration.Credential
	// credential is the one in use: the proven one if there is one, or else the requested one. tried is that of the last
	// attempt to connect.
	credential, tried *registration.Credential
	// rejected is why the current content of the registration is not in use while an earlier credential is.
	rejected *verdict.Verdict
	// rotation is the progress of putting the pending credential in use.
	rotation *rotation
	expiry   expiry
}

// expiry records which stage of expiry has been reported for which credential.
type expiry struct {
	fingerprint string
	reported    registration.Stage
}

// pending returns the requested credential if it is to replace a proven one, and otherwise nil. One that was rejected is not
// tried again.
func (c *credentials) pending() *registration.Credential {
	if c.requested == nil || c.proven == nil || c.rejected != nil || c.requested.Fingerprint() == c.proven.Fingerprint() {
		return nil
	}
	return c.requested
}

// candidate returns the credential for the next attempt to connect. While one is to replace a proven one, they take turns:
// either may have stopped working, or not work yet.
func (c *credentials) candidate() *registration.Credential {
	next := c.credential
	if pending := c.pending(); pending != nil && c.tried != pending {
		next = pending
	}
	c.tried = next
	return next
}

// acceptance returns condition CredentialsAccepted for the credential in use, including that it expires soon or has
// expired. Expiry is only reported: the member decides, by its own clock, whether the credential is still valid.
func (c *credentials) acceptance(now time.Time, registered *registration.Registration) verdict.Verdict {
	if c.credential == nil {
		return registered.Accepted()
	}
	ends := c.credential.Expires().UTC().Format(time.RFC3339)
	switch c.credential.Stage(now) {
	case registration.StageEndsSoon:
		return verdict.Good(flotillav1.ReasonExpiresSoon, fmt.Sprintf("The credential in use ends at %s; put a new one in the registration", ends))
	case registration.StageEnded:
		return verdict.Verdict{
			Status: "False", Reason: flotillav1.ReasonExpired,
			Message: fmt.Sprintf("The credential in use ended at %s; put a new one in the registration", ends),
		}
	default:
		return registered.Accepted()
	}
}

// expiryDue returns when the next stage of expiry of the credential in use is to be reported; zero when there is none.
func (c *credentials) expiryDue() time.Time {
	switch {
	case c.credential == nil || c.credential.Expires().IsZero():
		return time.Time{}
	case c.expiry.fingerprint != c.credential.Fingerprint() || c.expiry.reported == registration.StageValid:
		return c.credential.WarnAt()
	case c.expiry.reported == registration.StageEndsSoon:
		return c.credential.Expires()
	default:
		return time.Time{}
	}
}

// accepted returns condition CredentialsAccepted for the current registration.
func (m *member) accepted() verdict.Verdict {
	return m.acceptance(m.pool.cfg.Clock.Now(), &m.current)
}

// use makes next the credential of new connections, whether or not the member has accepted it yet.
func (m *member) use(next *registration.Credential) {
	m.credential = next
	metrics.ObserveExpiry(m.pool, m.name, next.Expires())
	m.update(func(p *publication) {
		p.endpoint, p.credentials = next.Endpoint(), next.Status()
		p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
	})
}

// reportExpiry reports that the credential expires soon or has expired, once per stage. A restart does not repeat the
// event.
func (m *member) reportExpiry() {
	c := m.credential
	m.expiry = expiry{fingerprint: c.Fingerprint(), reported: c.Stage(m.pool.cfg.Clock.Now())}
	v := m.accepted()
	m.update(func(p *publication) {
		if before, known := p.verdicts[flotillav1.ConditionCredentialsAccepted]; !known || before.YieldsToExpiry() {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = v
		}
	})
	if m.recorded.credentialReason == v.Reason && m.recorded.expires.Equal(c.Expires()) {
		return
	}
	m.log.Info("Credential is near its end", "reason", v.Reason, "expires", c.Expires())
	event := "CredentialsExpireSoon"
	if m.expiry.reported == registration.StageEnded {
		event = "CredentialsExpired"
	}
	m.warning(event, "Watch", v.Message)
}
