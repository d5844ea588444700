// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// Watching returns a client of the hub for watches. Its requests have no deadline, because a watch has no end: a list needs
// a context with one.
func (a *Access) Watching() (client.WithWatch, error) {
	config, called, err := a.hubConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = 0
	through, _, err := connect(config, called, hubRemedy)
	if err != nil {
		return nil, err
	}
	watching, err := client.NewWithWatch(config, client.Options{HTTPClient: through, Scheme: Scheme()})
	if err != nil {
		return nil, console.Faultf(hubRemedy, "%s: %w", called, err)
	}
	return watching, nil
}
