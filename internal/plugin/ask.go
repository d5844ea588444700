// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// greeting is what an API server says about itself: its version, and its clock to the second.
type greeting struct {
	version string
	at      time.Time
}

// ask asks an API server for its version.
func (s *site) ask(ctx context.Context) (greeting, error) {
	through, err := rest.HTTPClientFor(s.config)
	if err != nil {
		return greeting{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	base, _, err := rest.DefaultServerUrlFor(s.config)
	if err != nil {
		return greeting{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base.String(), "/")+"/version", nil)
	if err != nil {
		return greeting{}, err
	}
	response, err := through.Do(request)
	if err != nil {
		return greeting{}, err
	}
	defer func() { _ = response.Body.Close() }()
	info := version.Info{}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&info); err != nil || response.StatusCode != http.StatusOK {
		return greeting{}, fmt.Errorf("the answer to /version is %s", response.Status)
	}
	at, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		at = time.Time{}
	}
	return greeting{version: info.GitVersion, at: at}, nil
}

// version asks for the version of a cluster.
func (s *site) version(ctx context.Context) (string, error) {
	answer, err := s.ask(ctx)
	if err != nil {
		return "", s.explain("asking for its version", err)
	}
	return answer.version, nil
}
