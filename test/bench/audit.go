// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// requests counts what an API server was asked.
type requests struct {
	// writes are those of the system and of the driver: what a change costs includes the change. Leases and events are apart.
	writes, leases, events int
	// reads are the gets and lists of the system, relists the watches and lists with which it read a kind from scratch.
	reads, relists, conflicts int
}

func (r *requests) add(o requests) {
	r.writes, r.leases, r.events = r.writes+o.writes, r.leases+o.leases, r.events+o.events
	r.reads, r.relists, r.conflicts = r.reads+o.reads, r.relists+o.relists, r.conflicts+o.conflicts
}

// auditMark is a place in the audit log of a cluster.
type auditMark struct{ file *os.File }

func (c *Cluster) auditLog() string { return filepath.Join(c.dir, "logs", "audit.log") }

// mark returns the end of the audit log.
func (c *Cluster) mark() (*auditMark, error) {
	file, err := os.Open(c.auditLog())
	if err != nil {
		return nil, fmt.Errorf("opening the audit log of %q: %w", c.name, err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the audit log of %q: %w", c.name, err), file.Close())
	}
	return &auditMark{file: file}, nil
}

// requestsSince counts the requests after a mark that the system with such a user agent made.
func (c *Cluster) requestsSince(mark *auditMark, agent string) (requests, error) {
	defer func() { _ = mark.file.Close() }()
	count, err := countRequests(mark.file, agent)
	if err != nil {
		return count, fmt.Errorf("reading the audit log of %q: %w", c.name, err)
	}
	before, err := mark.file.Stat()
	if err != nil {
		return count, err
	}
	// The API server begins a new file at 100 MiB, and renames the one that was full.
	after, err := os.Open(c.auditLog())
	if err != nil {
		return count, fmt.Errorf("opening the audit log of %q: %w", c.name, err)
	}
	defer func() { _ = after.Close() }()
	if info, err := after.Stat(); err != nil || os.SameFile(before, info) {
		return count, err
	}
	more, err := countRequests(after, agent)
	count.add(more)
	return count, err
}

// audited is a request in the audit log.
type audited struct {
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	ObjectRef  struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

func countRequests(log io.Reader, agent string) (requests, error) {
	var count requests
	lines := bufio.NewReaderSize(log, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return count, err
		}
		if !bytes.Contains(line, []byte(agent)) && !bytes.Contains(line, []byte(driverAgent)) {
			continue
		}
		request := audited{}
		if err := json.Unmarshal(line, &request); err != nil {
			return count, err
		}
		count.count(request, agent)
	}
}

func (r *requests) count(request audited, agent string) {
	own := strings.HasPrefix(request.UserAgent, agent)
	if !own && request.UserAgent != driverAgent {
		return
	}
	resource := request.ObjectRef.Resource
	switch request.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		switch {
		case request.Stage != "ResponseComplete" || strings.HasPrefix(resource, "selfsubject"):
		case resource == "leases":
			r.leases++
		case resource == "events":
			r.events++
		default:
			r.writes++
			if own && request.ResponseStatus.Code == 409 {
				r.conflicts++
			}
		}
	case "get", "list":
		if !own || request.Stage != "ResponseComplete" || resource == "leases" || resource == "" {
			return
		}
		r.reads++
		if request.Verb == "list" {
			r.relists++
		}
	case "watch":
		if own && request.Stage == "ResponseStarted" && strings.Contains(request.RequestURI, "sendInitialEvents=true") {
			r.relists++
		}
	}
}
