// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures Flotilla beside a plain program for the same job and beside bare writes, in turns on the same
// clusters, and prints the ratios. docs/benchmarks.md says what the phases are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
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
	growth  string
	karmada string
	keep    bool
	smoke   bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "root of the repository")
	flag.IntVar(&o.members, "members", 4, "how many members the fleet has")
	flag.IntVar(&o.objects, "objects", 100, "how many objects are placed")
	flag.IntVar(&o.rounds, "rounds", 3, "how often every system has its turn")
	flag.StringVar(&o.phases, "phases", "", "phases to run, as in a,b,x or growth; empty runs all and writes docs/benchmarks.md")
	flag.StringVar(&o.systems, "systems", "flotilla,baseline,raw", "systems to measure")
	flag.StringVar(&o.growth, "growth", "100,1000,3000,10000", "how many members in memory growth has")
	flag.StringVar(&o.karmada, "karmada", "", "checkout of Karmada whose make has built its binaries; empty leaves it out")
	flag.BoolVar(&o.keep, "keep", false, "leave the fleet running, and take it up the next time")
	flag.BoolVar(&o.smoke, "smoke", false, "run a small fleet once, and fail when a count is above its limit")
	flag.Parse()
	if o.smoke {
		o.members, o.objects, o.rounds, o.phases = 2, 20, 1, "a,b,c,d,e,x"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// What client-go has to say is of no interest here.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := o.run(ctx)
	stop()
	if err != nil {
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
	logs := filepath.Join(dir, "results")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	sizes, err := numbers(o.growth)
	if err != nil {
		return err
	}
	began := time.Now()
	b := &bench{
		fleet: &Fleet{root: root, dir: filepath.Join(dir, "fleet")}, objects: o.objects, changes: 2 * o.objects, idle: time.Minute,
		rounds: o.rounds, phases: set(o.phases), say: newPrinter(os.Stdout),
	}
	if o.smoke {
		b.changes, b.idle = o.objects, 5*time.Second
	}
	// Without real members there is nothing else to measure.
	if !b.phases[phaseGrowth] || len(b.phases) > 1 {
		if !o.keep {
			defer func() { err = errors.Join(err, b.fleet.stop(context.WithoutCancel(ctx), o.members)) }()
		}
		err = o.measure(ctx, b, logs)
	}
	if err == nil && (len(b.phases) == 0 || b.phases[phaseGrowth]) {
		err = b.grow(ctx, filepath.Join(root, "bin"), sizes)
	}
	// What was measured before an error is worth seeing, too.
	return errors.Join(err, o.show(b, logs, began, sizes))
}

// show writes the results and prints the table.
func (o options) show(b *bench, logs string, began time.Time, sizes []int) error {
	if len(b.samples) == 0 {
		return nil
	}
	page, err := b.write(logs, began, sizes)
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	b.say.title("results")
	b.say.table(tabulate(b.samples))
	if o.smoke {
		return check(b.samples)
	}
	if len(b.phases) == 0 {
		return publish(b.fleet.root, page, svg(b.samples, sizes))
	}
	return nil
}

// measure starts the fleet and runs the rounds.
func (o options) measure(ctx context.Context, b *bench, logs string) error {
	if o.karmada != "" {
		b.fleet.more = karmada
	}
	if err := b.fleet.start(ctx, o.members); err != nil {
		return err
	}
	measured := set(o.systems)
	for _, system := range systems(b.fleet, filepath.Join(b.fleet.root, "bin"), logs) {
		if measured[system.name] {
			b.systems = append(b.systems, system)
		}
	}
	if o.karmada != "" {
		peer, err := newKarmada(ctx, b.fleet, o.karmada, logs)
		if err != nil {
			return fmt.Errorf("setting up Karmada: %w", err)
		}
		b.systems = append(b.systems, peer)
	}
	if err := b.watch(ctx); err != nil {
		return err
	}
	return b.run(ctx)
}

// set splits a list.
func set(list string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			set[name] = true
		}
	}
	return set
}

func numbers(list string) ([]int, error) {
	var numbers []int
	for text := range strings.SplitSeq(list, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", list, err)
		}
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers, nil
}
