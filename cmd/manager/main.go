// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs Flotilla on a hub cluster.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if slices.Contains(args, "--version") {
		_, err := fmt.Fprintln(out, theBuild())
		return err
	}
	cfg, err := loadConfig(args)
	if err != nil {
		return err
	}
	log := newLogger(cfg.Log, os.Stderr)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	log.Info("Starting", "build", theBuild().String(), "config", cfg)

	ctx := ctrl.SetupSignalHandler()
	mgr, err := newManager(cfg)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
