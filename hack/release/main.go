// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release packs what a release consists of: archives of the plugin, manifests and a chart with the digest of the
// image, an entry for krew, notes, provenance and checksums. The same inputs make the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// downloads is where the files of a release can be downloaded.
const downloads = "https://github.com/flotilla-dev/flotilla/releases/download"

// release is what is packed.
type release struct {
	version, commit, repository string
	// root is the work tree, binaries has a folder OS_ARCH of each platform with the plugin, and out is where files go.
	root, binaries, out string
	// digest is that of the image.
	digest string
}

func main() {
	r := release{}
	flag.StringVar(&r.version, "version", "", "the `version`, as v1.2.3")
	flag.StringVar(&r.commit, "commit", "", "the `commit` that it is built from")
	flag.StringVar(&r.repository, "repository", "", "the `repository` that the image is pushed to")
	flag.StringVar(&r.root, "root", ".", "the work `tree`")
	flag.StringVar(&r.binaries, "binaries", "", "the `folder` with the plugin in a folder OS_ARCH for each platform")
	flag.StringVar(&r.out, "out", "", "the `folder` to write, which has the image already")
	flag.Parse()
	if err := r.pack(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

var versionPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// image is the name of the image in the folder of the release.
func (r *release) image() string { return "flotilla-manager_" + r.version + ".tar" }

// reference names the image by tag, for people, and by digest.
func (r *release) reference() string { return r.repository + ":" + r.version + "@" + r.digest }

func (r *release) pack() error {
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("%q is not a version: write it as v1.2.3", r.version)
	}
	if r.commit == "" || r.repository == "" || r.binaries == "" || r.out == "" {
		return errors.New("-commit, -repository, -binaries and -out are needed")
	}
	var err error
	if r.digest, err = digestOf(filepath.Join(r.out, r.image())); err != nil {
		return err
	}
	plugins, err := r.packPlugins()
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		r.writeManifests, r.packChart, func() error { return r.writeKrew(plugins) }, r.writeNotes,
		// Both are about all files before them.
		r.writeProvenance, r.writeChecksums,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// read reads a file of the work tree.
func (r *release) read(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(r.root, name))
	return string(content), err
}

// write writes a file of the release.
func (r *release) write(name, content string) error {
	return os.WriteFile(filepath.Join(r.out, name), []byte(content), 0o644)
}

// imageLine is the line of a manifest that names the image, without a registry.
var imageLine = regexp.MustCompile(`(?m)^( *image: )flotilla-dev/flotilla-manager:\S+$`)

// writeManifests copies what kubectl applies. The hub's names the image by digest.
func (r *release) writeManifests() error {
	for _, name := range []string{"install.yaml", "member.yaml", "prometheusrule.yaml"} {
		content, err := r.read("dist/" + name)
		if err != nil {
			return err
		}
		if name == "install.yaml" {
			if len(imageLine.FindAllString(content, -1)) != 1 {
				return fmt.Errorf("dist/%s does not name the image once", name)
			}
			content = imageLine.ReplaceAllString(content, "${1}"+r.reference())
		}
		if err := r.write(name, content); err != nil {
			return err
		}
	}
	return nil
}

// packChart packs the chart, whose values name the image by digest.
func (r *release) packChart() error {
	about, err := r.read("charts/flotilla/Chart.yaml")
	if err != nil {
		return err
	}
	number := strings.TrimPrefix(r.version, "v")
	for _, line := range []string{"\nversion: " + number + "\n", "\nappVersion: " + r.version + "\n"} {
		if !strings.Contains(about, line) {
			return fmt.Errorf("charts/flotilla/Chart.yaml is of another version: it lacks %q", strings.TrimSpace(line))
		}
	}
	files, err := filesIn(filepath.Join(r.root, "charts/flotilla"), "flotilla")
	if err != nil {
		return err
	}
	values := slices.IndexFunc(files, func(f file) bool { return f.name == "flotilla/values.yaml" })
	if values < 0 {
		return errors.New("charts/flotilla has no values.yaml")
	}
	content := string(files[values].content)
	for _, change := range []struct{ key, value string }{{"repository", r.repository}, {"tag", r.version + "@" + r.digest}} {
		line := regexp.MustCompile(`(?m)^  ` + change.key + `: \S+( |$)`)
		if len(line.FindAllString(content, -1)) != 1 {
			return fmt.Errorf("charts/flotilla/values.yaml does not set image.%s once", change.key)
		}
		content = line.ReplaceAllString(content, "  "+change.key+": "+change.value+"${1}")
	}
	files[values].content = []byte(content)
	packed, err := tarball(files)
	if err != nil {
		return err
	}
	return r.write("flotilla-"+number+".tgz", string(packed))
}

// writeNotes writes the section of the version in the changelog.
func (r *release) writeNotes() error {
	changelog, err := r.read("CHANGELOG.md")
	if err != nil {
		return err
	}
	notes, err := sectionOf(changelog, r.version)
	if err != nil {
		return err
	}
	return r.write("NOTES.md", notes)
}

// sectionOf returns the section of a version, or what is unreleased if there is none yet.
func sectionOf(changelog, version string) (string, error) {
	for _, title := range []string{version, "Unreleased"} {
		_, rest, found := strings.Cut("\n"+changelog, "\n## "+title)
		if !found {
			continue
		}
		_, body, _ := strings.Cut(rest, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		return "# Flotilla " + version + "\n\n" + strings.TrimSpace(body) + "\n", nil
	}
	return "", fmt.Errorf("CHANGELOG.md has neither a section %s nor one that is unreleased", version)
}
