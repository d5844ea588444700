// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// rotation is a new credential that is being proven while the old one goes on working.
type rotation struct {
	next    *credential
	at      time.Time
	retries retries
	running bool
}

// errOtherCluster says that a credential leads to another cluster than the session's.
var errOtherCluster = errors.New("the credential leads to another cluster")

// rotate proves the new credential: it must be let in, and to the same cluster.
func (m *member) rotate(ctx context.Context) {
	r, s := m.rotation, m.session
	r.running = true
	m.spawn(func() func() {
		l, uid, err := m.prove(ctx, r.next, s.uid)
		return func() {
			r.running = false
			if m.rotation != r || m.session != s {
				if l != nil {
					l.retire()
				}
				return
			}
			m.onProven(r, l, uid, err)
		}
	})
}

// prove tries a credential on a connection of its own.
func (m *member) prove(ctx context.Context, next *credential, expected types.UID) (*link, types.UID, error) {
	l, err := m.pool.newLink(next)
	if err != nil {
		return nil, "", err
	}
	uid, err := m.identify(ctx, l)
	if err == nil && uid != expected {
		err = errOtherCluster
	}
	if err != nil {
		l.retire()
		return nil, uid, err
	}
	return l, uid, nil
}

// identify asks through a link whether the member is ready and who it is.
func (m *member) identify(ctx context.Context, l *link) (types.UID, error) {
	api, err := m.pool.newMemberAPI(string(m.name), l)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := api.ready(ctx); err != nil {
		return "", fmt.Errorf("asking whether %q is ready: %w", m.name, err)
	}
	uid, err := api.identity(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the identity of %q: %w", m.name, err)
	}
	return uid, nil
}

// onProven puts a proven credential in use.
func (m *member) onProven(r *rotation, l *link, uid types.UID, err error) {
	now := m.pool.cfg.Clock.Now()
	result := rotationSucceeded
	if err != nil {
		result = rotationFailed
	}
	countRotation(m.pool, m.name, result)
	switch {
	case errors.Is(err, errOtherCluster):
		m.onOtherCluster(r, uid)
	case err != nil:
		// It may be the network, so it is tried again; the message is the same each time.
		r.at = now.Add(r.retries.next(now, false))
		v := explain(err)
		v.reason, v.message = flotillav1.ReasonRotationFailed, "The new credential was tried and did not work: "+v.message+"; the previous one stays in use"
		told := m.publication().verdicts[flotillav1.ConditionCredentialsAccepted] == v
		m.update(func(p *publication) { p.verdicts[flotillav1.ConditionCredentialsAccepted] = v })
		if !told {
			m.warning("CredentialsRejected", v.reason, v.message)
		}
	default:
		m.rotation = nil
		m.session.credential = r.next
		m.session.transport.swap(l)
		m.health.asked = true
		m.health.unauthorized = 0
		m.use(r.next)
		m.log.Info("Rotated the credential")
		m.normal("CredentialsRotated", "Rotate", "The new credential of the registration is in use")
	}
}

// onOtherCluster refuses a credential for another cluster, or begins a new incarnation when the registration asks for it.
func (m *member) onOtherCluster(r *rotation, uid types.UID) {
	m.rotation = nil
	if uid != m.current.replace {
		m.rejectRotation(refuseIdentity(flotillav1.ReasonIdentityChanged, fmt.Sprintf(
			"The registration leads to another cluster than before; annotate the Secret with %s: %q if that is meant", flotillav1.AnnotationReplace, uid)))
		return
	}
	m.log.Info("Replacing the cluster of a member", "uid", string(uid))
	m.disconnect()
	m.proven = false
	m.use(r.next)
	m.retries.reset()
	m.retryAt = m.pool.cfg.Clock.Now()
	m.setState(StatePending, flotillav1.ReasonSyncing, "The member is replaced by another cluster")
}
