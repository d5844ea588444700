// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import "time"

// job is work of a member that its goroutine decides on, and starts.
type job int

const (
	// jobConnect is an attempt to connect.
	jobConnect job = iota
	// jobProbe checks whether the member answers.
	jobProbe
	// jobRenew renews the claim.
	jobRenew
	// jobUnpause checks and claims a member that was not claimed when it was connected.
	jobUnpause
	// jobCatchUp checks whether the caches show what happened during an outage.
	jobCatchUp
	// jobSweep looks for silent watches.
	jobSweep
	// jobInspect checks the CustomResourceDefinitions for changes.
	jobInspect
	// jobRotate tries a new credential beside the session.
	jobRotate
	// jobReportExpiry reports that the credential expires soon or has expired.
	jobReportExpiry
	// jobConfirm checks that the registration is gone.
	jobConfirm
	// jobOffboard removes Flotilla's finalizers and the claim from the member.
	jobOffboard
	jobs
)

// agenda records which jobs of a member are running, and when each is due next.
type agenda struct {
	running [jobs]bool
	due     [jobs]time.Time
}

// task is a job that is due at a given time; zero means at once.
type task struct {
	job job
	at  time.Time
}

// situation is all that decides what a member does next.
type situation struct {
	now time.Time
	// over and leaves are those of the member; lost means that the registration has vanished.
	over, leaves, lost bool
	// held means that the registration or the freeze switch forbids writes.
	held bool

	// running and due are the agenda, with the times that follow from something else.
	running [jobs]bool
	due     [jobs]time.Time

	// expires is when the next stage of expiry of the credential is to be reported; zero when there is none. rotates means
	// that a new credential is to be put in use.
	expires time.Time
	rotates bool

	// connected means that there is a session; attempting that there will be. retryAt is when the next attempt starts; zero
	// when none is scheduled.
	connected, attempting bool
	retryAt               time.Time

	// away means that the member does not answer; returning that the claim has not been held since it answers again; behind
	// that its caches have not caught up.
	away, returning, behind bool
	// claimed means that this hub holds the claim; permitted is how long that permits writes.
	claimed   bool
	permitted time.Duration
}

// tasks returns the jobs that are to be done and are not running, with their times. It is a pure function.
func (s *situation) tasks() []task {
	var tasks []task
	add := func(which job, wanted bool, at time.Time) {
		if wanted && !s.running[which] {
			tasks = append(tasks, task{which, at})
		}
	}
	switch {
	case s.over, s.running[jobOffboard]:
		return nil
	case s.leaves:
		// Jobs that may be writing the claim would create it again after its release.
		add(jobOffboard, !s.running[jobRenew] && !s.running[jobUnpause], time.Time{})
		return tasks
	}
	add(jobReportExpiry, !s.expires.IsZero(), s.expires)
	add(jobConfirm, s.lost, s.due[jobConfirm])
	if !s.connected {
		add(jobConnect, !s.attempting && !s.retryAt.IsZero(), s.retryAt)
		return tasks
	}
	add(jobProbe, true, s.due[jobProbe])
	// The claim is renewed during a freeze too, and while the registration is lost: an expired claim would indicate that the
	// hub is gone.
	add(jobRenew, !s.away && s.claimed, s.renewal())
	add(jobUnpause, !s.away && !s.held && !s.claimed, s.due[jobUnpause])
	add(jobCatchUp, !s.away && !s.returning && s.behind, s.due[jobCatchUp])
	add(jobSweep, true, s.due[jobSweep])
	add(jobInspect, !s.away, s.due[jobInspect])
	add(jobRotate, s.rotates, s.due[jobRotate])
	return tasks
}

// renewal returns when the claim is renewed: before the permission ends, which goes by the wall clock too, and that may have
// leapt. A member that returns has no permission yet.
func (s *situation) renewal() time.Time {
	if ends := s.now.Add(s.permitted); !s.returning && ends.Before(s.due[jobRenew]) {
		return ends
	}
	return s.due[jobRenew]
}
