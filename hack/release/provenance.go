// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	provenanceFile = "provenance.intoto.json"
	checksumsFile  = "SHA256SUMS"
)

// hashed is the name and the hash of a file of the release.
type hashed struct{ name, hash string }

// hashes returns the SHA-256 of each file of the release that has been written so far, sorted by name.
func (r *release) hashes() ([]hashed, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var found []hashed
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return nil, err
		}
		found = append(found, hashed{entry.Name(), fmt.Sprintf("%x", sha256.Sum256(content))})
	}
	return found, nil
}

// writeProvenance writes a SLSA provenance statement (https://slsa.dev/spec/v1.0/provenance) for all files. It is unsigned
// and contains no timestamps, so that every build of a commit produces the same statement.
func (r *release) writeProvenance() error {
	files, err := r.hashes()
	if err != nil {
		return err
	}
	type object = map[string]any
	var subjects []object
	for _, f := range files {
		subjects = append(subjects, object{"name": f.name, "digest": object{"sha256": f.hash}})
	}
	source := object{"uri": "git+https://github.com/flotilla-dev/flotilla@refs/tags/" + r.version, "digest": object{"gitCommit": r.commit}}
	statement, err := json.MarshalIndent(object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            "https://github.com/flotilla-dev/flotilla/blob/main/RELEASE.md",
				"externalParameters":   object{"version": r.version, "repository": r.repository},
				"internalParameters":   object{"go": runtime.Version()},
				"resolvedDependencies": []object{source},
			},
			"runDetails": object{"builder": object{"id": "https://github.com/flotilla-dev/flotilla/blob/main/Makefile"}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return r.write(provenanceFile, string(statement)+"\n")
}

// writeChecksums writes the hashes of all files in the format of sha256sum -c.
func (r *release) writeChecksums() error {
	files, err := r.hashes()
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, f := range files {
		fmt.Fprintf(&lines, "%s  %s\n", f.hash, f.name)
	}
	return r.write(checksumsFile, lines.String())
}
