// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestLogger_SecretsStayOutOfTheLog reads a registration as the manager does, at the verbosity that is allowed and at
// the next one, which shows that the bound is where it has to be.
func TestLogger_SecretsStayOutOfTheLog(t *testing.T) {
	const token, kubeconfig = "a-token-of-the-hub", "a-kubeconfig-with-a-token"
	encoded := base64.StdEncoding.EncodeToString([]byte(kubeconfig))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east"}, "data": {"kubeconfig": %q}}`, encoded)
	}))
	t.Cleanup(server.Close)

	logged := func(verbosity int) string {
		var out strings.Builder
		ctx := logr.NewContext(t.Context(), newLogger(LogConfig{Format: "text", Verbosity: verbosity}, &out))
		clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: token})
		if err != nil {
			t.Fatal(err)
		}
		secret, err := clientset.CoreV1().Secrets("flotilla-clusters").Get(ctx, "east", metav1.GetOptions{})
		if err != nil || string(secret.Data["kubeconfig"]) != kubeconfig {
			t.Fatalf("reading the registration: %v, %v", secret, err)
		}
		return out.String()
	}
	for _, secret := range []string{token, kubeconfig, encoded} {
		if text := logged(maxVerbosity); strings.Contains(text, secret) {
			t.Errorf("%q is in the log at verbosity %d:\n%s", secret, maxVerbosity, text)
		}
	}
	if text := logged(maxVerbosity + 1); !strings.Contains(text, encoded) {
		t.Errorf("the registration is not in the log at verbosity %d either, so the bound could be higher:\n%s", maxVerbosity+1, text)
	}
	if _, err := loadConfig([]string{"--hub-id=hub", fmt.Sprintf("--log-verbosity=%d", maxVerbosity)}); err != nil {
		t.Errorf("verbosity %d is refused: %v", maxVerbosity, err)
	}
	if _, err := loadConfig([]string{"--hub-id=hub", fmt.Sprintf("--log-verbosity=%d", maxVerbosity+1)}); err == nil || !strings.Contains(err.Error(), "log.verbosity") {
		t.Errorf("verbosity %d is accepted: %v", maxVerbosity+1, err)
	}
}
