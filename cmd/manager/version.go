// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// version and commit are set by `make build` and `make image` at link time.
var version, commit string

// build describes what the binary was built from.
type build struct {
	version, commit, goVersion string
}

func (b build) String() string {
	return fmt.Sprintf("flotilla-manager %s (commit %s, %s, %s/%s)", b.version, b.commit, b.goVersion, runtime.GOOS, runtime.GOARCH)
}

// theBuild returns the values set at link time or else those that the toolchain records, as with `go install`.
func theBuild() build {
	b := build{version: version, commit: commit, goVersion: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.version = cmp.Or(b.version, info.Main.Version)
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				b.commit = cmp.Or(b.commit, setting.Value)
			}
		}
	}
	b.version, b.commit = cmp.Or(b.version, "unknown"), cmp.Or(b.commit, "unknown")
	return b
}

func init() {
	b := theBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "flotilla_build_info",
		Help:        "Always 1; the labels describe what the manager was built from.",
		ConstLabels: prometheus.Labels{"version": b.version, "commit": b.commit, "go_version": b.goVersion},
	})
	info.Set(1)
	ctrlmetrics.Registry.MustRegister(info)
}
