// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

var (
	// ErrAddressDenied is returned when dialing a name that resolves to a denied address.
	ErrAddressDenied = errors.New("the address may not be dialled")
	// ErrAnswerTooLarge is returned when reading a response beyond its limit.
	ErrAnswerTooLarge = errors.New("the answer is larger than allowed")
)

// StatusError is the status code of a response other than 200.
type StatusError int

// Error implements error.
func (e StatusError) Error() string {
	return fmt.Sprintf("the answer is %d %s", int(e), http.StatusText(int(e)))
}

// IsUnauthorized reports whether the member rejects the credential.
func IsUnauthorized(err error) bool {
	var status StatusError
	return apierrors.IsUnauthorized(err) || (errors.As(err, &status) && status == http.StatusUnauthorized)
}

// IsForbidden reports whether the member denies permission.
func IsForbidden(err error) bool {
	var status StatusError
	return apierrors.IsForbidden(err) || (errors.As(err, &status) && status == http.StatusForbidden)
}

// Explain converts an error of a call to a member to a verdict. The message depends only on the class of the error:
// ports, addresses and times would change the status with each attempt.
func Explain(err error) Verdict {
	var (
		unknownAuthority x509.UnknownAuthorityError
		hostname         x509.HostnameError
		invalid          x509.CertificateInvalidError
		verification     *tls.CertificateVerificationError
		record           tls.RecordHeaderError
		dns              *net.DNSError
		network          net.Error
		status           StatusError
		api              apierrors.APIStatus
	)
	failed := func(reason, message string) Verdict {
		return Verdict{Status: "False", Reason: reason, Message: message}
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
	case errors.Is(err, ErrAddressDenied):
		return failed(flotillav1.ReasonEndpointNotAllowed, "The name of the server, or of its proxy, leads to an address that may not be dialled; register another one")
	case IsUnauthorized(err):
		return failed(flotillav1.ReasonUnauthorized, "The member refuses the credential; put a new one in the registration")
	case errors.As(err, &dns):
		return failed(flotillav1.ReasonProbeFailed, "The name of the API server cannot be resolved; correct the server of the registration or the name service")
	case errors.Is(err, syscall.ECONNREFUSED):
		return failed(flotillav1.ReasonProbeFailed, "The API server refuses connections; check that it runs")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout(), apierrors.IsTimeout(err):
		return failed(flotillav1.ReasonTimeout, "The API server does not answer in time; check it and the network to it")
	case errors.Is(err, ErrAnswerTooLarge):
		return failed(flotillav1.ReasonProbeFailed, "The API server answers with more than is read; check what answers there")
	case errors.As(err, &status):
		return failed(flotillav1.ReasonProbeFailed, fmt.Sprintf("The API server answers %d %s; check it", int(status), http.StatusText(int(status))))
	case errors.As(err, &api):
		return failed(flotillav1.ReasonProbeFailed, fmt.Sprintf("The API server answers %d %s; check it", api.Status().Code, http.StatusText(int(api.Status().Code))))
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF):
		return failed(flotillav1.ReasonProbeFailed, "The API server cannot be reached; check it and the network to it")
	default:
		// The HTTP client wraps all transport errors in a net.Error, so there was a response.
		return failed(flotillav1.ReasonProbeFailed, "Something answers at the address, but does not answer like an API server; check what it is")
	}
}
