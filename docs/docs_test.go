// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = ".."

// pages are the README and what is beside this file, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, path := range append(paths, filepath.Join(root, "README.md")) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(raw)
	}
	return texts
}

// definedTests are the names of all tests in the repository.
func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	definition := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		raw, err := os.ReadFile(path)
		for _, match := range definition.FindAllStringSubmatch(string(raw), -1) {
			names[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// The tables of behaviours say which test shows each of them.
func TestPages_name_tests_that_exist(t *testing.T) {
	mention := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)")
	defined, mentioned := definedTests(t), map[string]int{}
	for path, text := range pages(t) {
		for _, match := range mention.FindAllStringSubmatch(text, -1) {
			mentioned[path]++
			if !defined[match[1]] {
				t.Errorf("%s names %s, which does not exist", path, match[1])
			}
		}
	}
	for _, path := range []string{"nodepool.md", "redis.md"} {
		if mentioned[path] < 15 {
			t.Errorf("%s names only %d tests", path, mentioned[path])
		}
	}
}

func TestPages_link_to_what_exists(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^][)#:*]+)?(#[^)]+)?\)`)
	texts := pages(t)
	for path, text := range texts {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			to, anchor := path, match[2]
			if match[1] != "" {
				to = filepath.Join(filepath.Dir(path), match[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", path, match[0], err)
				continue
			}
			if target, known := texts[to]; known && anchor != "" && !anchors(target)[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", path, match[0], to)
			}
		}
	}
}

// anchors are what the headings of a page are linked by.
func anchors(text string) map[string]bool {
	heading, dropped := regexp.MustCompile(`(?m)^#+ +(.+)$`), regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		found["#"+strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")] = true
	}
	return found
}

// The page on installing has a table of what the chart can be told.
func TestInstall_names_every_value_of_the_chart(t *testing.T) {
	values, err := os.ReadFile(filepath.Join(root, "charts", "flotilla", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^(\w+):`).FindAllStringSubmatch(string(values), -1)
	if len(names) < 5 {
		t.Fatalf("the chart has the values %v", names)
	}
	page := pages(t)["install.md"]
	for _, name := range names {
		if !strings.Contains(page, "`"+name[1]+"`") && !strings.Contains(page, "`"+name[1]+".") {
			t.Errorf("install.md does not name the value %s", name[1])
		}
	}
}
