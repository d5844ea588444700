// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// maxTrials is the number of clusters that are on trial at most, so that the record fits into the hub object. It is the
	// limit of the schema.
	maxTrials = 2000
	// maxBatch is the number of clusters that change together at most.
	maxBatch = 1000
	// cacheLag is how long the cache of a member may show a copy without a change that has been permitted and written.
	cacheLag = time.Minute
	// passedOver is the hash of the trial of a cluster that was permitted to change, has not changed in time, and is ready.
	// It is not on trial any more, and changes after the others.
	passedOver = "passed-over"
)

// Trial is the change that a cluster may have taken and has not been seen ready with yet. The zero value means that the
// cluster is not on trial.
type Trial struct {
	// Hash is the hash of the effective spec. It is empty if the permit for the change has been withdrawn.
	Hash string
	// Since is when the cluster was permitted to take it.
	Since time.Time
}

// Trials are clusters on trial by name.
type Trials map[string]Trial

// TrialsOf returns the recorded trials of a hub object.
func TrialsOf(object flotillav1.Placeable) Trials {
	trials := Trials{}
	for _, recorded := range object.GetFleetStatus().Trials {
		for _, name := range recorded.Clusters {
			trials[name] = Trial{Hash: recorded.SpecHash, Since: recorded.Since.UTC()}
		}
	}
	return trials
}

// TrialOf returns the recorded trial of one cluster.
func TrialOf(object flotillav1.Placeable, name string) Trial {
	for _, recorded := range object.GetFleetStatus().Trials {
		if _, found := slices.BinarySearch(recorded.Clusters, name); found {
			return Trial{Hash: recorded.SpecHash, Since: recorded.Since.UTC()}
		}
	}
	return Trial{}
}

// Record returns the trials in the form of the status, sorted.
func (t Trials) Record() []flotillav1.Trial {
	byTrial := map[Trial][]string{}
	for name, trial := range t {
		byTrial[trial] = append(byTrial[trial], name)
	}
	var record []flotillav1.Trial
	for trial, names := range byTrial {
		slices.Sort(names)
		record = append(record, flotillav1.Trial{SpecHash: trial.Hash, Since: metav1.NewMicroTime(trial.Since), Clusters: names})
	}
	slices.SortFunc(record, func(a, b flotillav1.Trial) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.SpecHash, b.SpecHash))
	})
	return record
}

// Ended returns the trials that have ended if others were there before and nothing else has changed, and nil otherwise.
func (t Trials) Ended(before Trials) Trials {
	for name, trial := range t {
		if before[name] != trial {
			return nil
		}
	}
	ended := maps.Clone(before)
	maps.DeleteFunc(ended, func(name string, _ Trial) bool { return t[name] != (Trial{}) })
	return ended
}

// SameTrials reports whether two records are equal.
func SameTrials(a, b []flotillav1.Trial) bool {
	return slices.EqualFunc(a, b, func(a, b flotillav1.Trial) bool {
		return a.SpecHash == b.SpecHash && a.Since.Equal(&b.Since) && slices.Equal(a.Clusters, b.Clusters)
	})
}
