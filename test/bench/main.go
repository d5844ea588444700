// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures Flotilla beside a plain program for the same job and beside bare writes, in turns on the same
// clusters, and prints the ratios. docs/benchmarks.md says what the phases are.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options are the settings of a run.
type options struct {
	root    string
	members int
	objects int
	rounds  int
	phases  string
	systems string
	keep    bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "root of the repository")
	flag.IntVar(&o.members, "members", 4, "how many members the fleet has")
	flag.IntVar(&o.objects, "objects", 100, "how many objects are placed")
	flag.IntVar(&o.rounds, "rounds", 3, "how often every system has its turn")
	flag.StringVar(&o.phases, "phases", "", "phases to run, as in a,b,x; empty runs all")
	flag.StringVar(&o.systems, "systems", "", "systems to measure, as in flotilla,baseline; empty measures all")
	flag.BoolVar(&o.keep, "keep", false, "leave the fleet running, and take it up the next time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// What client-go has to say is of no interest here.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) (err error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".bench")
	results := filepath.Join(dir, "results")
	if err := os.MkdirAll(results, 0o700); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	began := time.Now()
	fleet, err := startFleet(ctx, root, filepath.Join(dir, "fleet"), o.members)
	if !o.keep {
		defer func() { err = errors.Join(err, fleet.stop(context.WithoutCancel(ctx), o.members)) }()
	}
	if err != nil {
		return err
	}
	b := &bench{
		fleet: fleet, objects: o.objects, changes: 2 * o.objects, idle: time.Minute, rounds: o.rounds,
		phases: chosen(o.phases, "a,b,c,d,e,f,g,x"), say: newPrinter(os.Stdout),
	}
	names := chosen(o.systems, strings.Join([]string{flotilla, baseline, raw}, ","))
	for _, system := range systems(fleet, filepath.Join(root, "bin"), results) {
		if names[system.name] {
			b.systems = append(b.systems, system)
		}
	}
	if err := b.watch(ctx); err != nil {
		return err
	}
	runErr := b.run(ctx)
	file := filepath.Join(results, began.Format("20060102-150405")+".json")
	content, err := json.MarshalIndent(b.samples, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	b.say.title("results")
	b.say.table(tabulate(b.samples))
	b.say.line("\nall figures of all rounds are in %s", file)
	return runErr
}

func chosen(list, all string) map[string]bool {
	if list == "" {
		list = all
	}
	set := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		set[strings.TrimSpace(name)] = true
	}
	return set
}
