// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// epoch is the time of every file in an archive. Zip has no earlier one.
var epoch = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// file is a file of an archive.
type file struct {
	// name is its path there, and from where it is read.
	name, from string
	executable bool
	content    []byte
}

func (f *file) load() (err error) {
	f.content, err = os.ReadFile(f.from)
	return err
}

func (f *file) mode() fs.FileMode {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// filesIn reads all files of a folder, in lexical order, to be put below a path.
func filesIn(folder, below string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(folder, func(found string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, found)
		if err != nil {
			return err
		}
		f := file{name: path.Join(below, filepath.ToSlash(relative)), from: found}
		files = append(files, f)
		return files[len(files)-1].load()
	})
	return files, err
}

// tarball packs files as tar.gz.
func tarball(files []file) ([]byte, error) {
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(compressed)
	for i := range files {
		f := &files[i]
		header := &tar.Header{Name: f.name, Mode: int64(f.mode()), Size: int64(len(f.content)), ModTime: epoch, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), compressed.Close())
	return packed.Bytes(), err
}

// zipped packs files as zip.
func zipped(files []file) ([]byte, error) {
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	for i := range files {
		header := &zip.FileHeader{Name: files[i].name, Method: zip.Deflate, Modified: epoch}
		header.SetMode(files[i].mode())
		into, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := into.Write(files[i].content); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return packed.Bytes(), err
}

// digestOf returns the digest of the one image in an OCI layout.
func digestOf(layout string) (string, error) {
	opened, err := os.Open(layout)
	if err != nil {
		return "", err
	}
	defer func() { _ = opened.Close() }()
	for archive := tar.NewReader(opened); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s is not an OCI layout: it has no index.json", layout)
		}
		if err != nil {
			return "", err
		}
		if header.Name != "index.json" {
			continue
		}
		var index struct{ Manifests []struct{ Digest string } }
		if err := json.NewDecoder(archive).Decode(&index); err != nil {
			return "", err
		}
		if len(index.Manifests) != 1 {
			return "", fmt.Errorf("%s has %d images", layout, len(index.Manifests))
		}
		return index.Manifests[0].Digest, nil
	}
}
