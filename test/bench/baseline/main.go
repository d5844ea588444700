// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command baseline is what a team would write first for the same job: NodePools placed in every member, and their numbers
// added up on the hub, with multicluster-runtime and its kubeconfig provider as they come. It has no waves, no record of
// what it placed, no health of members, and nothing that keeps one member from holding up the others.
package main

import (
	"flag"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	kubeconfigFile := flag.String("hub", "", "path of the hub's kubeconfig")
	namespace := flag.String("namespace", "baseline", "namespace of the kubeconfig Secrets and of the Lease")
	profiling := flag.String("profiling", "0", "address of /debug/pprof; 0 disables it")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	log := ctrl.Log.WithName("baseline")
	ctx := ctrl.SetupSignalHandler()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfigFile)
	if err != nil {
		log.Error(err, "Loading the hub's kubeconfig")
		os.Exit(1)
	}
	mgr, err := newManager(ctx, config, *namespace, *profiling)
	if err != nil {
		log.Error(err, "Setting up")
		os.Exit(1)
	}
	if err := mgr.Start(ctx); err != nil {
		log.Error(err, "Running")
		os.Exit(1)
	}
}
