// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// auditPolicy has everything counted that comes from outside. Watches are written when they begin and when they end.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver"]
- level: Metadata
`

// Audited is a request as the API server saw it.
type Audited struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// IsList reports whether a collection was listed, by a list or by a watch that begins with one.
func (a Audited) IsList() bool {
	return (a.Verb == "list" && a.Stage == "ResponseComplete") ||
		(a.Verb == "watch" && a.Stage == "ResponseStarted" && strings.Contains(a.RequestURI, "sendInitialEvents=true"))
}

// IsResume reports whether a watch was opened that goes on where an earlier one ended.
func (a Audited) IsResume() bool {
	return a.Verb == "watch" && a.Stage == "ResponseStarted" && !strings.Contains(a.RequestURI, "sendInitialEvents=true")
}

// IsWrite reports whether the request was to change something and has been answered.
func (a Audited) IsWrite() bool {
	switch a.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return a.Stage == "ResponseComplete" && !strings.HasPrefix(a.ObjectRef.Resource, "selfsubject")
	default:
		return false
	}
}

// AuditMark is a place in the audit log: its end now.
func (c *Cluster) AuditMark(t testing.TB) int64 {
	t.Helper()
	info, err := os.Stat(c.auditLog())
	if err != nil {
		t.Fatalf("looking at the audit log: %v", err)
	}
	return info.Size()
}

// AuditedSince returns the requests after a mark that keep returns true for. The log is complete up to any answer that
// was received, except that a request is written a moment after its answer.
func (c *Cluster) AuditedSince(t testing.TB, mark int64, keep func(Audited) bool) []Audited {
	t.Helper()
	file, err := os.Open(c.auditLog())
	if err != nil {
		t.Fatalf("opening the audit log: %v", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.NewSectionReader(file, mark, 1<<62))
	if err != nil {
		t.Fatalf("reading the audit log: %v", err)
	}
	var kept []Audited
	for line := range bytes.Lines(content) {
		request := Audited{}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // It is still being written.
		}
		if err := json.Unmarshal(line, &request); err != nil {
			t.Fatalf("reading the audit log: %v in %q", err, line)
		}
		if keep(request) {
			kept = append(kept, request)
		}
	}
	return kept
}

// auditLog is the file of the audit log.
func (c *Cluster) auditLog() string { return filepath.Join(c.dir, "audit.log") }

// audit has the API server keep an audit log in the folder of the cluster.
func (c *Cluster) audit(server *envtest.APIServer) error {
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	server.Configure().Set("audit-policy-file", policy).Set("audit-log-path", c.auditLog())
	return nil
}
