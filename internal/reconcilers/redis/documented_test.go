// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedTestsExist compares the table of behaviours in docs/redis.md with the tests that it names.
func TestDocumentedTestsExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "redis.md"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", filepath.Join("..", "..", "..", "api", "v1alpha1", "*_test.go")} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("finding %s: %v", pattern, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(raw)
		}
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 10 {
		t.Fatalf("docs/redis.md names only %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(code.String(), "func "+name[1]+"(") {
			t.Errorf("docs/redis.md names %s, which does not exist", name[1])
		}
	}
}
