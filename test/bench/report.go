// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// busy is how many cores other work may take before the times mean little.
const busy = 0.25

// settings say what was measured, where.
type settings struct {
	Date     string   `json:"date"`
	Version  string   `json:"version"`
	Machine  string   `json:"machine"`
	Versions string   `json:"versions"`
	Members  int      `json:"members"`
	Objects  int      `json:"objects"`
	Rounds   int      `json:"rounds"`
	Commands []string `json:"commands"`
	// OtherCores is what other work took over the phases. It is in the samples as well.
	OtherCores spread `json:"-"`
}

// results is the file of a run.
type results struct {
	Settings settings `json:"settings"`
	Samples  []sample `json:"samples"`
}

func (b *bench) settings(began time.Time) settings {
	s := settings{
		Date: began.UTC().Format(time.DateOnly), Version: commandOutput(filepath.Join(b.fleet.root, "bin", "manager"), "--version"),
		Machine: fmt.Sprintf("%s, %d cores, %s, %s", cpuModel(), runtime.NumCPU(), memory(), commandOutput("uname", "-sr")),
		Versions: fmt.Sprintf("%s, etcd that syncs to disk, %s, multicluster-runtime v0.24.1",
			commandOutput(filepath.Join(b.fleet.root, "bin", "kube-apiserver"), "--version"), runtime.Version()),
		Members: len(b.fleet.members), Objects: b.objects, Rounds: b.rounds,
	}
	for _, system := range b.systems {
		if system.isRaw() {
			continue
		}
		for _, process := range system.processes {
			s.Commands = append(s.Commands, process.shown())
		}
	}
	var others []float64
	for _, sample := range b.samples {
		if other, measured := sample.Values["other cores"]; measured {
			others = append(others, other)
		}
	}
	s.OtherCores = spreadOf(others)
	return s
}

// write writes the results as JSON and as a page, and returns the page.
func (b *bench) write(dir string, began time.Time, sizes []int) (page string, err error) {
	r := results{Settings: b.settings(began), Samples: b.samples}
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	page = r.markdown(sizes)
	stem := filepath.Join(dir, began.Format("20060102-150405"))
	err = errors.Join(
		os.WriteFile(stem+".json", content, 0o600),
		os.WriteFile(stem+".md", []byte(page), 0o600),
		os.WriteFile(stem+".svg", []byte(svg(b.samples, sizes)), 0o600),
	)
	b.say.line("\nall figures of all rounds are in %s.json", stem)
	return page, err
}

// markdown is the generated part of docs/benchmarks.md.
func (r results) markdown(sizes []int) string {
	var b strings.Builder
	s := r.Settings
	fmt.Fprintf(&b, "%s. %s. %s. %s.\n%d members, %d objects, %d rounds; medians with (min–max) over the rounds. Commands:\n\n", s.Date, s.Version, s.Machine, s.Versions, s.Members, s.Objects, s.Rounds)
	for _, command := range s.Commands {
		fmt.Fprintf(&b, "    %s\n", command)
	}
	fmt.Fprintf(&b, "\nOther work took %s cores.", s.OtherCores.text(""))
	if s.OtherCores.Median > busy {
		b.WriteString(" **The machine was busy: the times are not final, the counts are.**")
	}
	b.WriteString("\n\n")
	writeMarkdownTable(&b, grid(tabulate(r.Samples)))
	if growth := growthTable(r.Samples, sizes); growth != "" {
		b.WriteString("\n### Growth\n\n" + growth + "\n![growth](benchmarks-growth.svg)\n")
	}
	for _, sample := range r.Samples {
		if sample.Problem != "" {
			fmt.Fprintf(&b, "\n- %s, %s, round %d: %s", sample.System, sample.Phase, sample.Round, strings.ReplaceAll(firstLine(sample.Problem), "|", "\\|"))
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeMarkdownTable(b *strings.Builder, cells [][]string) {
	for i, row := range cells {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
}

func growthTable(samples []sample, sizes []int) string {
	figures := []string{"start-up s", "start-up CPU s", "heap MiB", "heap KiB a copy", "RSS MiB", "goroutines", "transition CPU ms", "writes a transition", "settled s"}
	var b strings.Builder
	fmt.Fprintf(&b, "| members | %s |\n|%s\n", strings.Join(figures, " | "), strings.Repeat("---|", len(figures)+1))
	measured := false
	for _, members := range sizes {
		cells := []string{fmt.Sprint(members)}
		for _, name := range figures {
			found := spreadOf(byRound(samples, flotilla, growthPhase(members), name).all())
			measured = measured || found.Rounds > 0
			cells = append(cells, figure(found.Median))
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	if !measured {
		return ""
	}
	return b.String()
}

// Marks of the generated part of the page.
const (
	generatedBegins = "<!-- what follows is written by make bench -->\n"
	generatedEnds   = "<!-- what make bench writes ends here -->\n"
)

// publish replaces the generated part of docs/benchmarks.md.
func publish(root, page, picture string) error {
	file := filepath.Join(root, "docs", "benchmarks.md")
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := bytes.Cut(content, []byte(generatedBegins))
	_, after, ends := bytes.Cut(rest, []byte(generatedEnds))
	if !begins || !ends {
		return fmt.Errorf("%s has no generated part", file)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(generatedBegins + "\n" + page + "\n" + generatedEnds)
	b.Write(after)
	return errors.Join(
		os.WriteFile(file, b.Bytes(), 0o644),
		os.WriteFile(filepath.Join(root, "docs", "benchmarks-growth.svg"), []byte(picture), 0o644),
	)
}

func commandOutput(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func cpuModel() string {
	content, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(content)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() string {
	content, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(line, "MemTotal:"); found {
			return fmt.Sprintf("%.0f GiB", number(strings.Fields(rest)[0])/(1<<20))
		}
	}
	return "memory unknown"
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
