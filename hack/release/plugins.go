// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// plugin describes the archive of kubectl-flotilla for one platform.
type plugin struct {
	OS, Arch string
	// Bin is the name of the binary in the archive.
	Bin       string
	URI, Hash string
}

// packPlugins writes one archive for each platform that has been built.
func (r *release) packPlugins() ([]plugin, error) {
	folders, err := os.ReadDir(r.binaries)
	if err != nil {
		return nil, err
	}
	var plugins []plugin
	for _, folder := range folders {
		system, arch, found := strings.Cut(folder.Name(), "_")
		if !found {
			return nil, fmt.Errorf("%s is not named OS_ARCH", folder.Name())
		}
		packed, err := r.packPlugin(system, arch)
		if err != nil {
			return nil, fmt.Errorf("packing the plugin for %s: %w", folder.Name(), err)
		}
		plugins = append(plugins, packed)
	}
	return plugins, nil
}

func (r *release) packPlugin(system, arch string) (plugin, error) {
	packed := plugin{OS: system, Arch: arch, Bin: "kubectl-flotilla"}
	archive, extension := tarball, ".tar.gz"
	if system == "windows" {
		packed.Bin, archive, extension = packed.Bin+".exe", zipped, ".zip"
	}
	files := []file{
		{name: packed.Bin, from: filepath.Join(r.binaries, system+"_"+arch, packed.Bin), executable: true},
		{name: "LICENSE", from: filepath.Join(r.root, "LICENSE")},
	}
	if system != "windows" {
		// kubectl runs this script for shell completion.
		script := "kubectl_complete-flotilla"
		files = append(files, file{name: script, from: filepath.Join(r.root, "hack", script), executable: true})
	}
	for i := range files {
		if err := files[i].load(); err != nil {
			return packed, err
		}
	}
	content, err := archive(files)
	if err != nil {
		return packed, err
	}
	name := fmt.Sprintf("kubectl-flotilla_%s_%s_%s%s", r.version, system, arch, extension)
	packed.URI, packed.Hash = downloads+"/"+r.version+"/"+name, fmt.Sprintf("%x", sha256.Sum256(content))
	return packed, r.write(name, string(content))
}

// krew is the manifest for a krew index: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
var krew = template.Must(template.New("").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: flotilla
spec:
  version: {{.Version}}
  homepage: https://github.com/flotilla-dev/flotilla
  shortDescription: Register clusters, and see and steer a fleet
  description: |
    Registers clusters as members of a fleet that Flotilla manages, rotates and
    ends their credentials, shows the fleet on one screen, explains why an object
    is not ready in a cluster, and lists what waits for a person.
  platforms:
{{- range .Plugins}}
  - selector:
      matchLabels:
        os: {{.OS}}
        arch: {{.Arch}}
    uri: {{.URI}}
    sha256: {{.Hash}}
    bin: {{.Bin}}
{{- end}}
`))

// writeKrew writes the krew manifest.
func (r *release) writeKrew(plugins []plugin) error {
	var text strings.Builder
	if err := krew.Execute(&text, map[string]any{"Version": r.version, "Plugins": plugins}); err != nil {
		return err
	}
	return r.write("flotilla.yaml", text.String())
}
