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

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// ask asks an API server for its version.
func (s *site) ask(ctx context.Context) (string, error) {
	through, err := rest.HTTPClientFor(s.config)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	base, _, err := rest.DefaultServerUrlFor(s.config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base.String(), "/")+"/version", nil)
	if err != nil {
		return "", err
	}
	response, err := through.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	info := version.Info{}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&info); err != nil || response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the answer to /version is %s", response.Status)
	}
	return info.GitVersion, nil
}

// version asks for the version of a cluster.
func (s *site) version(ctx context.Context) (string, error) {
	answer, err := s.ask(ctx)
	if err != nil {
		return "", s.explain("asking for its version", err)
	}
	return answer, nil
}
