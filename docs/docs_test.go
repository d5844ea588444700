// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = ".."

// pages are those beside this file, the decisions, and those at the root, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "decisions/*.md", filepath.Join(root, "*.md")} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			texts[path] = read(t, path)
		}
	}
	return texts
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
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
				to = strings.TrimPrefix(filepath.Join(filepath.Dir(path), match[1]), "../docs/")
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
	values := read(t, filepath.Join(root, "charts", "flotilla", "values.yaml"))
	names := regexp.MustCompile(`(?m)^(\w+):`).FindAllStringSubmatch(values, -1)
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

func TestPages_name_targets_that_exist(t *testing.T) {
	defined := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, filepath.Join(root, "Makefile")), -1) {
		defined[match[1]] = true
	}
	// In a sentence a command is in backquotes, in an example it begins the line.
	mention := regexp.MustCompile("(?m)(?:`|^)make ([a-z0-9-]+(?: [a-z0-9-]+)*)")
	mentioned := 0
	for path, text := range pages(t) {
		for _, match := range mention.FindAllStringSubmatch(text, -1) {
			for target := range strings.FieldsSeq(match[1]) {
				mentioned++
				if !defined[target] {
					t.Errorf("%s names make %s, which does not exist", path, target)
				}
			}
		}
	}
	if mentioned < 50 {
		t.Errorf("the pages name only %d targets", mentioned)
	}
}

// The table of areas says for every folder with code whose it is and which tests prove it.
func TestArchitecture_has_an_area_for_every_folder(t *testing.T) {
	_, table, _ := strings.Cut(pages(t)["architecture.md"], "### Areas\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var areas []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(table, -1) {
		for _, path := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			areas = append(areas, path[1])
			if _, err := os.Stat(filepath.Join(root, path[1])); err != nil {
				t.Errorf("architecture.md has an area for %s: %v", path[1], err)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if !slices.ContainsFunc(areas, func(area string) bool { return strings.HasPrefix(folder+"/", area+"/") }) {
			t.Errorf("architecture.md has no area for %s", folder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDecisions_are_in_the_index(t *testing.T) {
	index := read(t, "decisions/README.md")
	paths, err := filepath.Glob("decisions/0*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are the decisions %v: %v", paths, err)
	}
	for _, path := range paths {
		if number, _, _ := strings.Cut(filepath.Base(path), "-"); !strings.Contains(index, "["+number+"]("+filepath.Base(path)+")") {
			t.Errorf("the index of decisions lacks %s", path)
		}
	}
}

// TestArchitecture_lists_each_package_with_its_imports compares the table of packages with what the code imports. Packages
// that only tests use, and those that hold files for others, are not in it.
func TestArchitecture_lists_each_package_with_its_imports(t *testing.T) {
	const module = "github.com/flotilla-dev/flotilla/"
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./api/...", "./cmd/...", "./internal/...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	short := strings.NewReplacer("internal/", "", "api/v1alpha1", "api")
	want := map[string]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)
		if strings.HasSuffix(name, "test") || strings.HasSuffix(name, "/testenv") {
			continue
		}
		var imports []string
		for _, path := range fields[1:] {
			if own, ok := strings.CutPrefix(path, module); ok {
				imports = append(imports, short.Replace(own))
			}
		}
		slices.Sort(imports)
		want[name] = strings.Join(imports, ", ")
	}
	_, table, _ := strings.Cut(pages(t)["architecture.md"], "## Packages\n")
	table, _, _ = strings.Cut(table, "\n#")
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| ?([^|]*?) ?\\|$").FindAllStringSubmatch(table, -1) {
		got[row[1]] = row[2]
	}
	for name, imports := range want {
		if stated, listed := got[name]; !listed || stated != imports {
			t.Errorf("architecture.md says that %s imports %q (listed: %t), it imports %q", name, stated, listed, imports)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("architecture.md lists package %s, which does not exist", name)
	}
}
