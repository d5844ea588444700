// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// request is what an API server has noted of a request of the manager.
type request struct {
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	Stage      string    `json:"stage"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	// Answered is when the stage was over.
	Answered  time.Time `json:"stageTimestamp"`
	SourceIPs []string  `json:"sourceIPs"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

// String names the request in failures.
func (r request) String() string { return r.Verb + " " + r.RequestURI }

// write says whether the request changed something that is not the hub's claim.
func (r request) write() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) &&
		r.ResponseStatus.Code < 300 && !notOurs(r.ObjectRef.Resource)
}

// relist says whether the request read a whole kind. Of one object a list is asked to learn how far the member is.
func (r request) relist() bool {
	switch r.Verb {
	case "list":
		return !strings.Contains(r.RequestURI, "limit=1&") && !strings.HasSuffix(r.RequestURI, "limit=1")
	case "watch":
		return strings.Contains(r.RequestURI, "sendInitialEvents=true")
	}
	return false
}

// audit is a position in what an API server notes.
type audit struct {
	path string
	from int64
}

// audit starts noting what the manager asks of a cluster.
func (f *fleet) audit(t *testing.T, cluster string) audit {
	t.Helper()
	path := filepath.Join(f.clusterDir(cluster), "logs", "audit.log")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return audit{path: path, from: info.Size()}
}

// requests returns what the manager has asked since and that fits.
func (a audit) requests(t *testing.T, fits func(request) bool) []string {
	t.Helper()
	var found []string
	for _, r := range a.read(t) {
		if fits(r) {
			found = append(found, r.String())
		}
	}
	return found
}

// read returns what the manager has asked since.
func (a audit) read(t *testing.T) []request {
	t.Helper()
	file, err := os.Open(a.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []request
	for line := range bytes.Lines(content) {
		r := request{}
		// A watch is noted when it begins and again when it ends; the last line may still be written.
		if json.Unmarshal(line, &r) != nil || (r.Verb == "watch" && r.Stage != "ResponseStarted") {
			continue
		}
		found = append(found, r)
	}
	return found
}
