// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// rotation is a new credential that is being verified while the old one stays in use.
type rotation struct {
	next *registration.Credential
	// of is the session that the credential is for.
	of *session
	// at is when it is tried next; zero means at once.
	at      time.Time
	retries retries
	running bool
}

// rotating returns the rotation that the credentials and the session call for, or nil.
func (m *member) rotating() *rotation {
	next := m.pending()
	switch {
	case m.session == nil, next == nil:
		m.rotation = nil
	case m.rotation == nil, m.rotation.next != next, m.rotation.of != m.session:
		m.rotation = &rotation{next: next, of: m.session}
	}
	return m.rotation
}

// rotate verifies the new credential: it must be accepted, and by the same cluster.
func (m *member) rotate(ctx context.Context) {
	r, s, to := m.rotation, m.session, m.session.access
	r.running = true
	var l *transport.Link
	abandon := func() {
		if l != nil {
			l.Retire()
		}
	}
	m.spawn(func() func() {
		proven, uid, err := m.prove(ctx, r.next, to.uid)
		l = proven
		return func() {
			r.running = false
			if m.rotation != r || m.session != s {
				abandon()
				return
			}
			m.onProven(r, l, uid, err)
		}
	}, abandon)
}

// prove tries a credential on a separate connection.
func (m *member) prove(ctx context.Context, next *registration.Credential, expected types.UID) (*transport.Link, types.UID, error) {
	l, err := transport.NewLink(next, m.pool.cfg.Clock, m.pool.cfg.Limits)
	if err != nil {
		return nil, "", err
	}
	uid, err := m.identify(ctx, l)
	if err == nil && uid != expected {
		err = errAnotherCluster
	}
	if err != nil {
		l.Retire()
		return nil, uid, err
	}
	return l, uid, nil
}

// identify checks through a link that the member is ready, and returns its UID.
func (m *member) identify(ctx context.Context, l *transport.Link) (types.UID, error) {
	api, err := m.pool.newMemberAPI(string(m.name), l)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := api.Ready(ctx); err != nil {
		return "", fmt.Errorf("asking whether %q is ready: %w", m.name, err)
	}
	uid, err := api.Identity(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the identity of %q: %w", m.name, err)
	}
	return uid, nil
}

// onProven handles the outcome of a rotation. A credential that works is put in use.
func (m *member) onProven(r *rotation, l *transport.Link, uid types.UID, err error) {
	now := m.pool.cfg.Clock.Now()
	result := metrics.RotationSucceeded
	if err != nil {
		result = metrics.RotationFailed
	}
	metrics.CountRotation(m.pool, m.name, result)
	switch {
	case errors.Is(err, errAnotherCluster):
		m.rejectOrReplace(r, uid)
	case err != nil:
		// The network may be at fault, so retry. An unchanged verdict is not reported again.
		r.at = now.Add(r.retries.next(now, false))
		v := verdict.Explain(err)
		v.Reason, v.Message = flotillav1.ReasonRotationFailed, "The new credential was tried and did not work: "+v.Message+"; the previous one stays in use"
		published := m.publication().verdicts[flotillav1.ConditionCredentialsAccepted] == v
		m.update(func(p *publication) { p.verdicts[flotillav1.ConditionCredentialsAccepted] = v })
		if !published {
			m.warning("CredentialsRejected", v.Reason, v.Message)
		}
	default:
		m.session.credential, m.proven = r.next, r.next
		m.session.transport.Swap(l)
		m.health.asked = true
		m.health.unauthorized = 0
		m.use(r.next)
		m.log.Info("Rotated the credential")
		m.normal("CredentialsRotated", "Rotate", "The new credential of the registration is in use")
	}
}

// rejectOrReplace rejects a credential for another cluster, or starts a new incarnation when the registration allows
// that cluster as a replacement.
func (m *member) rejectOrReplace(r *rotation, uid types.UID) {
	if uid != m.current.Replace {
		m.rejectRotation(verdict.RefuseIdentity(flotillav1.ReasonIdentityChanged, fmt.Sprintf(
			"The registration leads to another cluster than before; annotate the Secret with %s: %q if that is meant", flotillav1.AnnotationReplace, uid)))
		return
	}
	m.log.Info("Replacing the cluster of a member", "uid", string(uid))
	m.reconnect(m.pool.cfg.Clock.Now())
	m.proven = nil
	m.use(r.next)
	m.setState(clusters.StatePending, flotillav1.ReasonSyncing, "The member is replaced by another cluster")
}
