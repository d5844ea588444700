// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// redisPort is where every Redis of the suite listens.
const redisPort = 6379

// forward connects to a port of a Pod through the API server: given clusters need not have addresses that this machine
// reaches. Each connection is a session of its own, so that it ends when its Pod does.
func forward(c cluster, namespace, pod string, port int) (net.Conn, error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward to %q: %w", pod, err)
	}
	base, err := url.Parse(c.config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of %q: %w", c.name, err)
	}
	target := base.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward")
	session, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("forwarding to %q: %w", pod, err)
	}
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	problems, err := session.CreateStream(headers)
	if err != nil {
		_ = session.Close()
		return nil, fmt.Errorf("forwarding to %q: %w", pod, err)
	}
	_ = problems.Close()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := session.CreateStream(headers)
	if err != nil {
		_ = session.Close()
		return nil, fmt.Errorf("forwarding to %q: %w", pod, err)
	}
	near, far := net.Pipe()
	go func() {
		// The Pod says here that nothing listens.
		if problem, _ := io.ReadAll(problems); len(strings.TrimSpace(string(problem))) > 0 {
			_ = session.Close()
		}
	}()
	go pump(far, data, session)
	go pump(data, far, session)
	return near, near.SetDeadline(time.Time{})
}

// pump copies one direction and ends the session after it.
func pump(to io.WriteCloser, from io.Reader, session io.Closer) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = session.Close()
}
