// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestLoadConfig_takes_the_flags_of_the_pages reads what the page on installing has people pass to the manager.
func TestLoadConfig_takes_the_flags_of_the_pages(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile("`(--registration-sources=[^`]+)`").FindAllStringSubmatch(string(page), -1)
	if len(flags) != 2 {
		t.Fatalf("the page has the flags %v", flags)
	}
	for _, flag := range flags {
		config, err := loadConfig([]string{"--hub-id=prod", flag[1]})
		if err != nil {
			t.Errorf("%s: %v", flag[1], err)
			continue
		}
		if len(config.Registration.Sources) != 2 {
			t.Errorf("%s leads to %v", flag[1], config.Registration.Sources)
		}
	}
}
