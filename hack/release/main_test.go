// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// prepare returns a release of the work tree with small binaries and an image without layers.
func prepare(t *testing.T) *release {
	t.Helper()
	r := &release{
		version: "v0.1.0", commit: strings.Repeat("c", 40), repository: "registry.example.com/flotilla-manager",
		root: "../..", binaries: t.TempDir(), out: t.TempDir(),
	}
	put := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(r.binaries, "linux_amd64", "kubectl-flotilla"), "for linux")
	put(filepath.Join(r.binaries, "windows_arm64", "kubectl-flotilla.exe"), "for windows")
	var image bytes.Buffer
	layout := tar.NewWriter(&image)
	index := `{"manifests":[{"digest":"` + digest + `"}]}`
	if err := layout.WriteHeader(&tar.Header{Name: "index.json", Size: int64(len(index)), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Write([]byte(index)); err != nil {
		t.Fatal(err)
	}
	if err := layout.Close(); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(r.out, r.image()), image.String())
	return r
}

// contents returns the files of a folder.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[entry.Name()] = string(content)
	}
	return found
}

// unpack returns the files in a tar.gz, those that are executable with a star.
func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if header.Mode&0o100 != 0 {
			header.Name += "*"
		}
		found[header.Name] = string(content)
	}
}

func TestPack(t *testing.T) {
	r, again := prepare(t), prepare(t)
	for _, each := range []*release{r, again} {
		if err := each.pack(); err != nil {
			t.Fatal(err)
		}
	}
	got := contents(t, r.out)
	for name, content := range contents(t, again.out) {
		if got[name] != content {
			t.Errorf("%s differs from one time to the next", name)
		}
	}

	reference := r.repository + ":v0.1.0@" + digest
	if strings.Count(got["install.yaml"], "image: "+reference+"\n") != 1 {
		t.Error("install.yaml does not name the image by digest")
	}
	chart := unpack(t, got["flotilla-0.1.0.tgz"])
	var values struct {
		Image struct{ Repository, Tag string }
	}
	if err := yaml.Unmarshal([]byte(chart["flotilla/values.yaml"]), &values); err != nil {
		t.Fatal(err)
	}
	if named := values.Image.Repository + ":" + values.Image.Tag; named != reference || chart["flotilla/Chart.yaml"] == "" || chart["flotilla/templates/install.yaml"] == "" {
		t.Errorf("the chart names %s and has %d files", named, len(chart))
	}
	if !strings.HasPrefix(got["NOTES.md"], "# Flotilla v0.1.0\n\n#") {
		t.Errorf("the notes begin with %.40q", got["NOTES.md"])
	}

	linux, windows := got["kubectl-flotilla_v0.1.0_linux_amd64.tar.gz"], got["kubectl-flotilla_v0.1.0_windows_arm64.zip"]
	if files := unpack(t, linux); files["kubectl-flotilla*"] != "for linux" || files["kubectl_complete-flotilla*"] == "" || files["LICENSE"] == "" {
		t.Errorf("the archive for Linux has %d files", len(files))
	}
	files, err := zip.NewReader(strings.NewReader(windows), int64(len(windows)))
	if err != nil || len(files.File) != 2 || files.File[0].Name != "kubectl-flotilla.exe" {
		t.Errorf("the archive for Windows has %v (%v)", files, err)
	}

	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal([]byte(got["flotilla.yaml"]), &plugin); err != nil {
		t.Fatal(err)
	}
	if platforms := plugin.Spec.Platforms; len(platforms) != 2 || platforms[0].SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(linux))) || !strings.HasSuffix(platforms[1].URI, "/v0.1.0/kubectl-flotilla_v0.1.0_windows_arm64.zip") || platforms[1].Bin != "kubectl-flotilla.exe" {
		t.Errorf("the entry for krew is\n%s", got["flotilla.yaml"])
	}

	type subject struct {
		Name   string
		Digest map[string]string
	}
	var provenance struct{ Subject []subject }
	if err := json.Unmarshal([]byte(got[provenanceFile]), &provenance); err != nil {
		t.Fatal(err)
	}
	for name, content := range got {
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
		if name != checksumsFile && !strings.Contains(got[checksumsFile], sum+"  "+name+"\n") {
			t.Errorf("%s lacks %s", checksumsFile, name)
		}
		stated := slices.ContainsFunc(provenance.Subject, func(s subject) bool { return s.Name == name && s.Digest["sha256"] == sum })
		if !stated && name != checksumsFile && name != provenanceFile {
			t.Errorf("the provenance lacks %s", name)
		}
	}
}

func TestPack_refuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*release)
		want   string
	}{
		"no version":              {func(r *release) { r.version = "main" }, `"main" is not a version`},
		"no repository":           {func(r *release) { r.repository = "" }, "-repository"},
		"the version of no chart": {func(r *release) { r.version = "v9.9.9"; r.rename(t, "v0.1.0") }, "charts/flotilla/Chart.yaml is of another version"},
		"no image":                {func(r *release) { r.version = "v0.1.1" }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := prepare(t)
			c.change(r)
			if err := r.pack(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// rename gives the image of another version the name of this one.
func (r *release) rename(t *testing.T, from string) {
	t.Helper()
	if err := os.Rename(filepath.Join(r.out, "flotilla-manager_"+from+".tar"), filepath.Join(r.out, r.image())); err != nil {
		t.Fatal(err)
	}
}

func TestSectionOf_takes_the_version_before_what_is_unreleased(t *testing.T) {
	changelog := "# Changelog\n\n## Unreleased\n\n- new\n\n## v0.2.0 (2027-01-01)\n\n- done\n\n## v0.1.0\n\n- first\n"
	for version, want := range map[string]string{"v0.2.0": "- done", "v0.1.0": "- first", "v0.3.0": "- new"} {
		if got, err := sectionOf(changelog, version); err != nil || got != "# Flotilla "+version+"\n\n"+want+"\n" {
			t.Errorf("%s: %q (%v)", version, got, err)
		}
	}
	if _, err := sectionOf("# Changelog\n", "v0.1.0"); err == nil {
		t.Error("a changelog without sections has notes")
	}
}
