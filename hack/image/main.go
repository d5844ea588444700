// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image packs a folder as a container image of one layer: an OCI layout in a tar file, as `ctr images import`
// takes it. The same folder and flags make the same bytes. No container engine is needed.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
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
)

// descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// layout is an OCI layout that grows in a tar file.
type layout struct {
	out *tar.Writer
}

func main() {
	name := flag.String("name", "", "the image's `name`, as Pods ask for it")
	root := flag.String("root", "", "the `folder` that becomes the root of the image")
	user := flag.String("user", "", "who runs the process, as `uid:gid`")
	command := flag.String("entrypoint", "", "the process to run")
	label := flag.String("version", "", "label org.opencontainers.image.version")
	out := flag.String("out", "", "the tar `file` to write")
	flag.Parse()
	if *name == "" || *root == "" || *out == "" || *command == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := pack(*name, *root, *user, *command, *label, *out); err != nil {
		fmt.Fprintf(os.Stderr, "image: packing %s: %v\n", *name, err)
		os.Exit(1)
	}
}

// pack writes the image beside its place and moves it there when it is whole.
func pack(name, root, user, command, version, out string) error {
	layer, err := pathsOf(root)
	if err != nil {
		return err
	}
	file, err := os.Create(out + ".new")
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	l := layout{out: tar.NewWriter(file)}
	if err := l.write(name, user, command, version, layer); err != nil {
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

func (l layout) write(name, user, command, version string, layer []byte) error {
	layerAt, err := l.blob(typeLayer, layer)
	if err != nil {
		return err
	}
	configAt, err := l.jsonBlob(typeConfig, map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"User":       user,
			"Entrypoint": []string{command},
			"Env":        []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
			"Labels":     map[string]string{"org.opencontainers.image.version": version},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerAt.Digest}},
	})
	if err != nil {
		return err
	}
	manifestAt, err := l.jsonBlob(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": configAt, "layers": []descriptor{layerAt},
	})
	if err != nil {
		return err
	}
	manifestAt.Annotations = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{manifestAt}})
	if err != nil {
		return err
	}
	if err := l.file("index.json", index); err != nil {
		return err
	}
	return l.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
}

func (l layout) jsonBlob(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, content)
}

func (l layout) blob(mediaType string, content []byte) (descriptor, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}, l.file("blobs/sha256/"+sum, content)
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
