// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// warnShare is the part of its lifetime, one in so many, at the end of which a credential is said to end soon.
	warnShare = 5
	// warnBefore is when that is said about a credential whose beginning is not known.
	warnBefore = 7 * 24 * time.Hour
)

// stage is how near the end of a credential is.
type stage int

const (
	stageValid stage = iota
	stageEndsSoon
	stageEnded
)

// expiry is what has been told about the end of which credential.
type expiry struct {
	fingerprint string
	told        stage
}

// warnAt is when the credential begins to end soon. It must have an end.
func (c *credential) warnAt() time.Time {
	if c.issued.IsZero() || !c.issued.Before(c.expires) {
		return c.expires.Add(-warnBefore)
	}
	return c.expires.Add(-c.expires.Sub(c.issued) / warnShare)
}

// stage says how near the end is. A credential that does not say when it ends is always valid.
func (c *credential) stage(now time.Time) stage {
	switch {
	case c.expires.IsZero() || now.Before(c.warnAt()):
		return stageValid
	case now.Before(c.expires):
		return stageEndsSoon
	default:
		return stageEnded
	}
}

// accepted is the verdict on a registration whose credential is in use, and near its end or past it. That it has ended is
// only said: whether it is still good for anything is the member's to decide, by its own clock.
func (m *member) accepted() verdict {
	if m.credential == nil {
		return m.current.accepted()
	}
	ends := m.credential.expires.UTC().Format(time.RFC3339)
	switch m.credential.stage(m.pool.cfg.Clock.Now()) {
	case stageEndsSoon:
		return good(flotillav1.ReasonExpiresSoon, fmt.Sprintf("The credential in use ends at %s; put a new one in the registration", ends))
	case stageEnded:
		return verdict{
			status: "False", reason: flotillav1.ReasonExpired,
			message: fmt.Sprintf("The credential in use ended at %s; put a new one in the registration", ends),
		}
	default:
		return m.current.accepted()
	}
}

// use puts a credential in use, whether or not the member has accepted it yet.
func (m *member) use(next *credential) {
	m.credential = next
	observeExpiry(m.pool, m.name, next.expires)
	m.update(func(p *publication) {
		p.endpoint, p.credentials = next.endpoint(), next.status()
		p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
	})
}

// expiryTasks lists when there is something new to tell about the end of the credential in use.
func (m *member) expiryTasks() []task {
	c := m.credential
	if c == nil || c.expires.IsZero() {
		return nil
	}
	switch {
	case m.expiry.fingerprint != c.fingerprint || m.expiry.told == stageValid:
		return []task{{c.warnAt(), m.tellExpiry}}
	case m.expiry.told == stageEndsSoon:
		return []task{{c.expires, m.tellExpiry}}
	default:
		return nil
	}
}

// tellExpiry says that the credential ends soon, or has ended, once for each: not again after a restart.
func (m *member) tellExpiry(context.Context) {
	c := m.credential
	m.expiry = expiry{fingerprint: c.fingerprint, told: c.stage(m.pool.cfg.Clock.Now())}
	v := m.accepted()
	m.update(func(p *publication) {
		if before, known := p.verdicts[flotillav1.ConditionCredentialsAccepted]; !known || before.yieldsToExpiry() {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = v
		}
	})
	if m.recorded.credentialReason == v.reason && m.recorded.expires.Equal(c.expires) {
		return
	}
	m.log.Info("Credential is near its end", "reason", v.reason, "expires", c.expires)
	event := "CredentialsExpireSoon"
	if m.expiry.told == stageEnded {
		event = "CredentialsExpired"
	}
	m.warning(event, "Watch", v.message)
}

// yieldsToExpiry says whether the end of the credential is the better answer than this verdict on it. A refusal of
// something else is not hidden.
func (v verdict) yieldsToExpiry() bool {
	switch v.reason {
	case flotillav1.ReasonUnauthorized, flotillav1.ReasonExpiresSoon, flotillav1.ReasonExpired:
		return true
	default:
		return v.status == "True"
	}
}
