// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image packs a folder as a container image of one layer: an OCI layout in a tar file, as `ctr images import`
// takes it. With a folder for each architecture it is one image for all of them. The same folders and flags make the same
// bytes. No container engine is needed.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"

	versionLabel = "org.opencontainers.image.version"
)

// descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// platform is what an image runs on.
type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// root is a folder that becomes the root of the image on an architecture.
type root struct {
	architecture, folder string
}

// image is what is packed.
type image struct {
	name, user, command string
	roots               []root
	labels              map[string]string
	// compressed layers are for registries; who imports the file on the same machine needs none.
	compressed bool
}

// layout is an OCI layout that grows in a tar file.
type layout struct {
	out     *tar.Writer
	written map[string]bool
}

func main() {
	packed := image{labels: map[string]string{}}
	flag.StringVar(&packed.name, "name", "", "the image's `name`, as Pods ask for it")
	flag.Func("root", "the `folder` that becomes the root of the image, or architecture=folder for each of several", packed.addRoot)
	flag.StringVar(&packed.user, "user", "", "who runs the process, as `uid:gid`")
	flag.StringVar(&packed.command, "entrypoint", "", "the process to run")
	flag.Func("version", "label "+versionLabel, func(value string) error { return packed.addLabel(versionLabel + "=" + value) })
	flag.Func("label", "a label, as `key=value`", packed.addLabel)
	flag.BoolVar(&packed.compressed, "compress", false, "compress the layers")
	out := flag.String("out", "", "the tar `file` to write")
	flag.Parse()
	if packed.name == "" || len(packed.roots) == 0 || *out == "" || packed.command == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := packed.pack(*out); err != nil {
		fmt.Fprintf(os.Stderr, "image: packing %s: %v\n", packed.name, err)
		os.Exit(1)
	}
}

func (i *image) addRoot(value string) error {
	architecture, folder, found := strings.Cut(value, "=")
	if !found {
		architecture, folder = runtime.GOARCH, value
	}
	i.roots = append(i.roots, root{architecture, folder})
	return nil
}

func (i *image) addLabel(label string) error {
	key, value, found := strings.Cut(label, "=")
	if !found {
		return errors.New("a label is key=value")
	}
	i.labels[key] = value
	return nil
}

// pack writes the image beside its place and moves it there when it is whole.
func (i *image) pack(out string) error {
	file, err := os.Create(out + ".new")
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	l := layout{out: tar.NewWriter(file), written: map[string]bool{}}
	if err := i.write(l); err != nil {
		return err
	}
	if err := l.out.Close(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(out+".new", out)
}

// write writes the manifests of all architectures and what names them: the index of the layout, or, where there are
// several, an index of their own that it points to, because an image is one thing with one name.
func (i *image) write(l layout) error {
	var manifests []descriptor
	for _, r := range i.roots {
		manifest, err := i.writeManifest(l, r)
		if err != nil {
			return err
		}
		manifests = append(manifests, manifest)
	}
	named := manifests[0]
	if len(manifests) > 1 {
		var err error
		if named, err = l.jsonBlob(typeIndex, indexOf(manifests...)); err != nil {
			return err
		}
	}
	named.Annotations = map[string]string{"io.containerd.image.name": i.name, "org.opencontainers.image.ref.name": tagOf(i.name)}
	index, err := json.Marshal(indexOf(named))
	if err != nil {
		return err
	}
	if err := l.file("index.json", index); err != nil {
		return err
	}
	return l.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
}

func indexOf(manifests ...descriptor) map[string]any {
	return map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": manifests}
}

// tagOf is what stands behind the last colon of a name; a colon before a slash is that of a port.
func tagOf(name string) string {
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		return name[at+1:]
	}
	return "latest"
}

// writeManifest writes the image for one architecture.
func (i *image) writeManifest(l layout, r root) (descriptor, error) {
	layer, err := pathsOf(r.folder)
	if err != nil {
		return descriptor{}, err
	}
	// An image's identity is that of its layers before they were compressed.
	plain, mediaType := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)), typeLayer
	if i.compressed {
		mediaType += "+gzip"
		if layer, err = compress(layer); err != nil {
			return descriptor{}, err
		}
	}
	layerAt, err := l.blob(mediaType, layer)
	if err != nil {
		return descriptor{}, err
	}
	configAt, err := l.jsonBlob(typeConfig, map[string]any{
		"architecture": r.architecture,
		"os":           "linux",
		"config": map[string]any{
			"User":       i.user,
			"Entrypoint": []string{i.command},
			"Env":        []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
			"Labels":     i.labels,
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{plain}},
	})
	if err != nil {
		return descriptor{}, err
	}
	manifest, err := l.jsonBlob(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": configAt, "layers": []descriptor{layerAt},
	})
	manifest.Platform = &platform{Architecture: r.architecture, OS: "linux"}
	return manifest, err
}

func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (l layout) jsonBlob(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, content)
}

// blob writes a blob once: images of several architectures may share one.
func (l layout) blob(mediaType string, content []byte) (descriptor, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	at := descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
	if l.written[sum] {
		return at, nil
	}
	l.written[sum] = true
	return at, l.file("blobs/sha256/"+sum, content)
}

func (l layout) file(name string, content []byte) error {
	if err := l.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
		return err
	}
	_, err := l.out.Write(content)
	return err
}

// pathsOf returns a tar of the folder, everything owned by root and without times.
func pathsOf(root string) ([]byte, error) {
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		*header = tar.Header{
			Typeflag: header.Typeflag, Name: strings.TrimPrefix(path, root+"/"), Linkname: target, Size: header.Size, Mode: header.Mode,
		}
		if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		_, err = io.Copy(out, file)
		return err
	})
	if err != nil {
		return nil, err
	}
	return content.Bytes(), out.Close()
}
