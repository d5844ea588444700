// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs Flotilla on a hub cluster.
package main

import (
	"context"
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
	reserveMemory()
	cfg, err := loadConfig(args)
	if err != nil {
		return err
	}
	log := newLogger(cfg.Log, os.Stderr)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	log.Info("Starting", "build", theBuild().String(), "config", cfg)
	if unknown := unknownVariables(os.Environ()); len(unknown) > 0 {
		log.Info("Ignoring environment variables that set no key", "variables", unknown)
	}

	ctx, end := context.WithCancelCause(ctrl.SetupSignalHandler())
	mgr, err := newManager(cfg, end)
	if err != nil {
		return err
	}
	return start(ctx, mgr)
}

// start runs a manager until its context ends. It returns an error if the process ends because the hub was restored.
func start(ctx context.Context, mgr interface{ Start(context.Context) error }) error {
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, errHubRestored) {
		return cause
	}
	return nil
}
