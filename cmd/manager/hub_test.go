// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// hubBehindLine is a server that answers with a stream which never ends, behind a line, and the manager's way to it.
func hubBehindLine(t *testing.T) (line *testenv.Line, hub *http.Client, host string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	line = testenv.NewLine(t, strings.TrimPrefix(server.URL, "https://"))
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: "https://" + line.Addr(), CertificateAuthorityData: authority}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub"}},
		CurrentContext: "hub",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	config, err := hubRESTConfig(kubeconfig, func(err error) { t.Errorf("the process ends: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	if hub, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	return line, hub, config.Host
}

func TestHub_dead_connection_is_found_out_long_before_the_renew_deadline(t *testing.T) {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	line, hub, host := hubBehindLine(t)
	stream, err := hub.Get(host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	line.Drop(t)
	began := time.Now()
	_, err = io.ReadAll(stream.Body)
	if err == nil || !strings.Contains(err.Error(), "connection lost") {
		t.Errorf("the stream ended with %v", err)
	}
	if took := time.Since(began); took > renewDeadline-leaseTimeout-hubDialTimeout {
		t.Errorf("it took %v to find out; renewing the Lease ends after %v", took, renewDeadline)
	}
	began = time.Now()
	if _, err := hub.Get(host); err == nil {
		t.Error("the line drops everything, and yet there was an answer")
	}
	if took := time.Since(began); took > leaseTimeout {
		t.Errorf("it took %v to give up connecting; a request may take %v", took, leaseTimeout)
	}
}

func TestHub_watch_is_open_again_soon_after_an_outage(t *testing.T) {
	line, hub, host := hubBehindLine(t)
	line.Refuse()
	if _, err := hub.Get(host); err == nil {
		t.Fatal("the line refuses connections, and yet there was an answer")
	}
	opened := make(chan error, 1)
	go func() {
		resp, err := hub.Get(host + "?watch=true")
		if err == nil {
			err = resp.Body.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("the watch is not held while the hub is away: %v", err)
	case <-time.After(2 * watchRetry):
	}
	line.Restore(t)
	select {
	case err := <-opened:
		if err != nil {
			t.Errorf("the watch failed although the hub is back: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the watch is not open although the hub is back")
	}
}

func TestHub_outage_of_45_seconds_leaves_time_for_an_attempt_to_renew_the_lease(t *testing.T) {
	const outage = 45 * time.Second
	// The hub goes away just before an attempt, which is when the deadline begins.
	last := (renewDeadline - 1).Truncate(retryPeriod)
	if last <= outage {
		t.Errorf("the last attempt before the deadline comes after %v", last)
	}
	if exit := retryPeriod + renewDeadline; exit >= leaseDuration {
		t.Errorf("the process may hold a Lease for %v that lasts %v", exit, leaseDuration)
	}
}
