// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// roots makes a folder for each architecture.
func roots(t *testing.T, architectures ...string) []root {
	t.Helper()
	var made []root
	for _, architecture := range architectures {
		folder := filepath.Join(t.TempDir(), architecture)
		if err := os.MkdirAll(filepath.Join(folder, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "manager"), []byte("for "+architecture), 0o755); err != nil {
			t.Fatal(err)
		}
		made = append(made, root{architecture, folder})
	}
	return made
}

// filesIn reads a tar.
func filesIn(t *testing.T, content io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(content); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := files[header.Name]; twice {
			t.Errorf("%s is there twice", header.Name)
		}
		if files[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

// packed packs an image and reads it.
func packed(t *testing.T, i image) (raw []byte, files map[string][]byte) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := i.pack(out); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return raw, filesIn(t, bytes.NewReader(raw))
}

type manifest struct {
	Manifests, Layers []descriptor
	Config            descriptor
}

type config struct {
	Architecture string
	Config       struct {
		User       string
		Entrypoint []string
		Labels     map[string]string
	}
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// open reads what a descriptor points to, and checks that it is that.
func open[T any](t *testing.T, files map[string][]byte, at descriptor) (value T) {
	t.Helper()
	content := blob(t, files, at)
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func blob(t *testing.T, files map[string][]byte, at descriptor) []byte {
	t.Helper()
	content := files["blobs/sha256/"+at.Digest[len("sha256:"):]]
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); sum != at.Digest || len(content) != at.Size {
		t.Fatalf("%s has %d bytes with sum %s, want %d", at.Digest, len(content), sum, at.Size)
	}
	return content
}

func TestImage_for_several_architectures(t *testing.T) {
	i := image{
		name: "registry.example.com:5000/flotilla:v1", user: "65532:65532", command: "/manager", labels: map[string]string{versionLabel: "v1"},
		roots: roots(t, "amd64", "arm64"), compressed: true,
	}
	raw, files := packed(t, i)
	var index manifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].MediaType != typeIndex ||
		index.Manifests[0].Annotations["io.containerd.image.name"] != i.name || index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1" {
		t.Fatalf("the layout names %+v", index.Manifests)
	}
	seen := map[string]string{}
	for _, at := range open[manifest](t, files, index.Manifests[0]).Manifests {
		one := open[manifest](t, files, at)
		settings := open[config](t, files, one.Config)
		if at.Platform == nil || at.Platform.Architecture != settings.Architecture || settings.Config.User != i.user ||
			settings.Config.Entrypoint[0] != i.command || settings.Config.Labels[versionLabel] != "v1" {
			t.Errorf("platform %+v with %+v", at.Platform, settings)
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(blob(t, files, one.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(unzipped)
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); sum != settings.RootFS.DiffIDs[0] {
			t.Errorf("the layer has sum %s, want %s", sum, settings.RootFS.DiffIDs[0])
		}
		seen[settings.Architecture] = string(filesIn(t, bytes.NewReader(layer))["manager"])
	}
	if len(seen) != 2 || seen["amd64"] != "for amd64" || seen["arm64"] != "for arm64" {
		t.Errorf("the image has %v", seen)
	}
	if again, _ := packed(t, i); !bytes.Equal(raw, again) {
		t.Error("the same folders make other bytes")
	}
}

func TestImage_for_one_architecture_has_its_manifest_in_the_layout(t *testing.T) {
	i := image{name: "localhost/pause", command: "/pause", roots: roots(t, "arm64")}
	_, files := packed(t, i)
	var index manifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	at := index.Manifests[0]
	if at.MediaType != typeManifest || at.Annotations["org.opencontainers.image.ref.name"] != "latest" {
		t.Errorf("the layout names %+v", at)
	}
	one := open[manifest](t, files, at)
	if layer := filesIn(t, bytes.NewReader(blob(t, files, one.Layers[0]))); one.Layers[0].MediaType != typeLayer || string(layer["manager"]) != "for arm64" {
		t.Errorf("%s with %d files", one.Layers[0].MediaType, len(layer))
	}
}
