// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"crypto/x509"
	"errors"
	"net"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"

	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// Explain adds to an error of the cluster what was being done, and what the user can do. Errors that have a remedy already
// are returned as they are.
func (s *Site) Explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if known := (*console.Fault)(nil); errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return console.Faultf(s.remedyFor(err), "%s: %s: %w", s.Called, doing, err)
}

// remedyFor returns what the user can do about an error of the cluster.
func (s *Site) remedyFor(err error) string {
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var network net.Error
	var stray *strayError
	switch {
	case errors.As(err, &stray):
		return "what answers there is not the API server itself, but for example the login page of a proxy: correct the server in the kubeconfig, or " + s.remedy
	case verdict.IsUnauthorized(err):
		return "the cluster does not accept your credential: log in again, or " + s.remedy
	case verdict.IsForbidden(err):
		return "your user lacks that right there: have it granted, or " + s.remedy
	case apimeta.IsNoMatchError(err), discovery.IsGroupDiscoveryFailedError(err):
		return "the cluster does not serve Flotilla's kinds: install Flotilla if it is the hub (install.yaml or the Helm chart), run kubectl flotilla upgrade-member if it is a member, or " + s.remedy
	case errors.As(err, &authority), errors.As(err, &hostname):
		return "the certificate of the server is not that of the context: correct the kubeconfig, or " + s.remedy
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return "the cluster cannot be reached from here: check the server of the context and your network, or " + s.remedy
	}
	return "try again when that is solved"
}
