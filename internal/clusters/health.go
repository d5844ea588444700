// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Health is the health policy. Zero fields take their defaults.
type Health struct {
	// Interval is how long after the last traffic a probe is due, give or take 20 %; 10 s.
	Interval time.Duration
	// Timeout is the deadline of a probe; 5 s.
	Timeout time.Duration
	// Retry is how long after a failure the next probe is due; 1 s.
	Retry time.Duration
	// Failures in a row, over at least Patience, make a member unreachable; 3 and 10 s. Refused connections fail at once,
	// and without the patience an API server that restarts would count as an outage.
	Failures int
	Patience time.Duration
	// AwayTimeout is the deadline of a probe while the member is away; 3 s.
	AwayTimeout time.Duration
	// AwayInterval is the interval of probes once the member has been away for AwayEager; 10 s and 2 min.
	AwayInterval, AwayEager time.Duration
}

// withDefaults fills in what is not set.
func (h Health) withDefaults() Health {
	setDefault(&h.Interval, 10*time.Second)
	setDefault(&h.Timeout, 5*time.Second)
	setDefault(&h.Retry, time.Second)
	setDefault(&h.Failures, 3)
	setDefault(&h.Patience, 10*time.Second)
	setDefault(&h.AwayTimeout, 3*time.Second)
	setDefault(&h.AwayInterval, 10*time.Second)
	setDefault(&h.AwayEager, 2*time.Minute)
	return h
}

// setDefault sets a value that is zero.
func setDefault[T comparable](value *T, to T) {
	var zero T
	if *value == zero {
		*value = to
	}
}

// recoveries is how many good probes in a row bring a member back.
const recoveries = 2

// unauthorizedLimit is how many 401s in a row mean that the credential is refused.
const unauthorizedLimit = 2

// health is what the probes of a member say together. It belongs to the member's actor.
type health struct {
	policy Health

	failures     int
	firstFailure time.Time
	unauthorized int
	goods        int
	// away is StateUnreachable or StateAuthFailed, or empty while the member is there.
	away      State
	awaySince time.Time
	lastProbe time.Time
	lastGood  time.Time
	// asked says that someone wants a probe now.
	asked bool
}

// observe takes in the outcome of a probe or of an attempt to connect and returns whether away changed.
func (h *health) observe(now time.Time, err error) bool {
	before := h.away
	h.lastProbe = now
	if err == nil {
		h.failures, h.unauthorized = 0, 0
		h.goods++
		h.lastGood = now
		if h.goods >= recoveries {
			h.away = ""
		}
		return h.away != before
	}
	h.goods = 0
	if h.failures == 0 {
		h.firstFailure = now
	}
	h.failures++
	if isUnauthorized(err) {
		h.unauthorized++
	} else {
		h.unauthorized = 0
	}
	switch {
	case h.unauthorized >= unauthorizedLimit:
		h.away = StateAuthFailed
	case h.unauthorized > 0:
	case h.failures >= h.policy.Failures && now.Sub(h.firstFailure) >= h.policy.Patience:
		h.away = StateUnreachable
	}
	if before == "" && h.away != "" {
		h.awaySince = now
	}
	return h.away != before
}

// due is when the next probe is due, given when the member was last heard of.
func (h *health) due(lastTraffic time.Time) time.Time {
	retry := h.lastProbe.Add(h.policy.Retry)
	switch {
	case h.away != "" && h.goods == 0 && h.lastProbe.Sub(h.awaySince) >= h.policy.AwayEager:
		return h.lastProbe.Add(h.policy.AwayInterval)
	case h.asked || h.failures > 0 || h.away != "":
		return retry
	}
	heard := h.lastGood
	if lastTraffic.After(heard) {
		heard = lastTraffic
	}
	// The spread is taken from the time itself, so that the answer is the same until something is heard.
	spread := time.Duration(rand.New(rand.NewPCG(uint64(heard.UnixNano()), 1)).Int64N(int64(h.policy.Interval)*2/5 + 1))
	return heard.Add(h.policy.Interval*4/5 + spread)
}

// timeout is the deadline of the next probe.
func (h *health) timeout() time.Duration {
	if h.away != "" {
		return h.policy.AwayTimeout
	}
	return h.policy.Timeout
}

// statusError is an answer of a member that is not 200.
type statusError int

// Error implements error.
func (e statusError) Error() string {
	return fmt.Sprintf("the answer is %d %s", int(e), http.StatusText(int(e)))
}

// isUnauthorized says whether the member refuses the credential.
func isUnauthorized(err error) bool {
	var status statusError
	return apierrors.IsUnauthorized(err) || (errors.As(err, &status) && status == http.StatusUnauthorized)
}

// isForbidden says whether the member refuses the act.
func isForbidden(err error) bool {
	var status statusError
	return apierrors.IsForbidden(err) || (errors.As(err, &status) && status == http.StatusForbidden)
}

// explain turns an error of a call to a member into a verdict. The message depends only on the sort of error: ports,
// addresses and times would make status change with each try.
func explain(err error) verdict {
	var (
		unknownAuthority x509.UnknownAuthorityError
		hostname         x509.HostnameError
		invalid          x509.CertificateInvalidError
		verification     *tls.CertificateVerificationError
		record           tls.RecordHeaderError
		dns              *net.DNSError
		network          net.Error
		status           statusError
		api              apierrors.APIStatus
	)
	failed := func(reason, message string) verdict {
		return verdict{status: "False", reason: reason, message: message}
	}
	switch {
	case errors.As(err, &unknownAuthority):
		return failed(flotillav1.ReasonTLSFailed, "The certificate of the API server is not signed by the authority in the registration; put the right one there")
	case errors.As(err, &hostname):
		return failed(flotillav1.ReasonTLSFailed, "The certificate of the API server is for another name; correct the server or set tls-server-name")
	case errors.As(err, &invalid), errors.As(err, &verification):
		return failed(flotillav1.ReasonTLSFailed, "The certificate of the API server is not valid; renew it in the member")
	case errors.As(err, &record):
		return failed(flotillav1.ReasonTLSFailed, "The API server does not speak TLS; correct the server of the registration")
	case errors.Is(err, errAddressDenied):
		return failed(flotillav1.ReasonEndpointNotAllowed, "The name of the server, or of its proxy, leads to an address that may not be dialled; register another one")
	case isUnauthorized(err):
		return failed(flotillav1.ReasonUnauthorized, "The member refuses the credential; put a new one in the registration")
	case errors.As(err, &dns):
		return failed(flotillav1.ReasonProbeFailed, "The name of the API server cannot be resolved; correct the server of the registration or the name service")
	case errors.Is(err, syscall.ECONNREFUSED):
		return failed(flotillav1.ReasonProbeFailed, "The API server refuses connections; check that it runs")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout(), apierrors.IsTimeout(err):
		return failed(flotillav1.ReasonTimeout, "The API server does not answer in time; check it and the network to it")
	case errors.Is(err, errAnswerTooLarge):
		return failed(flotillav1.ReasonProbeFailed, "The API server answers with more than is read; check what answers there")
	case errors.As(err, &status):
		return failed(flotillav1.ReasonProbeFailed, fmt.Sprintf("The API server answers %d %s; check it", int(status), http.StatusText(int(status))))
	case errors.As(err, &api):
		return failed(flotillav1.ReasonProbeFailed, fmt.Sprintf("The API server answers %d %s; check it", api.Status().Code, http.StatusText(int(api.Status().Code))))
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF):
		return failed(flotillav1.ReasonProbeFailed, "The API server cannot be reached; check it and the network to it")
	default:
		// The HTTP client makes a net.Error of all that happens on the way, so that there was an answer.
		return failed(flotillav1.ReasonProbeFailed, "The API server answers, but not as one does; check what answers there")
	}
}

// retries paces attempts to connect to a member that is not engaged.
type retries struct {
	backoff wait.Backoff
	// since is when the attempts began to fail; zero while they do not.
	since time.Time
}

const (
	// For eagerRetries after the first failure attempts are at most awayRetry apart, so that a member that comes back soon
	// is engaged soon; recheckEager likewise paces members that lack something which GitOps may just be bringing.
	eagerRetries = 2 * time.Minute
	awayRetry    = 10 * time.Second
	recheckEager = 5 * time.Second
	recheckLater = 30 * time.Second
)

// next returns how long to wait after a failure.
func (r *retries) next(now time.Time, refused bool) time.Duration {
	if r.since.IsZero() {
		r.since = now
		r.backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 32, Cap: 5 * time.Minute}
	}
	eager := now.Sub(r.since) < eagerRetries
	switch {
	case refused && eager:
		return wait.Jitter(recheckEager, 0.2)
	case refused:
		return wait.Jitter(recheckLater, 0.2)
	case eager && r.backoff.Duration >= awayRetry:
		return wait.Jitter(awayRetry, 0.2)
	default:
		return r.backoff.Step()
	}
}

// reset makes the next attempt the first one.
func (r *retries) reset() { *r = retries{} }
