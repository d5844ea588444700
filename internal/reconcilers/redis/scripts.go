// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"embed"
	"io/fs"
	"sync"
)

// scriptFiles run in the Pods with nothing but a POSIX shell's builtins, the server and its client.
//
//go:embed scripts/*.sh
var scriptFiles embed.FS

// scripts returns the scripts by file name. Nobody changes the map.
var scripts = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	err := fs.WalkDir(scriptFiles, "scripts", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := scriptFiles.ReadFile(path)
		found[entry.Name()] = string(content)
		return err
	})
	if err != nil {
		panic("reading embedded scripts: " + err.Error())
	}
	return found
})
