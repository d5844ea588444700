// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis/drift"
)

func TestAltered_what_pods_start_with_stops_an_update(t *testing.T) {
	for field, stops := range map[string]bool{
		"spec.template.spec.containers[redis].image":                    false,
		"spec.template.spec.containers[redis].resources.limits.memory":  false,
		"spec.template.metadata.annotations[example.com/team]":          false,
		"metadata.annotations[flotilla.dev/applied-hash]":               false,
		"spec.template.metadata.annotations[flotilla.dev/spec-hash]":    true,
		"spec.template.metadata.annotations":                            true,
		"spec.template.spec.volumes[config].configMap.name":             true,
		"spec.template.spec.containers[redis].volumeMounts[/data]":      true,
		"spec.template.spec.containers[redis].command[1]":               true,
		"spec.template.spec.containers[redis].env[FLOTILLA_PORT].value": true,
		"spec.template.spec.containers[redis]":                          true,
	} {
		if got := len(altered{kind: "StatefulSet", fields: []string{field}}.stopping()) > 0; got != stops {
			t.Errorf("%s: an update stops is %t, want %t", field, got, stops)
		}
	}
	for field, stops := range map[string]bool{"metadata.labels[a]": false, "data[start.sh]": true, "immutable": true} {
		if got := len(altered{kind: "ConfigMap", fields: []string{field}}.stopping()) > 0; got != stops {
			t.Errorf("%s of a ConfigMap: an update stops is %t, want %t", field, got, stops)
		}
	}
	if fields := (altered{kind: "Service", fields: []string{"spec.selector"}}).stopping(); len(fields) > 0 {
		t.Errorf("a Service stops an update for %v", fields)
	}
}

func TestAnswers_last_as_long_as_their_objects(t *testing.T) {
	request := func(cluster, name string) clusters.Request {
		return clusters.Request{ClusterName: multicluster.ClusterName(cluster), Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}}
	}
	now := time.Now()
	first := alteredBy("Service", "a", "uid-a", "sent", []drift.Difference{{Path: "x", Have: 1}}, now)
	second := alteredBy("Service", "b", "uid-b", "sent", []drift.Difference{{Path: "x", Have: 1}}, now)
	all := &answers{}
	all.keep(request("eu-1", "web"), []altered{first, second})
	all.keep(request("eu-1", "web"), []altered{second})
	all.keep(request("us-1", "web"), []altered{first})
	all.keep(request("us-1", "gone"), []altered{first})
	all.keep(request("us-1", "gone"), nil)
	if got := all.of(request("eu-1", "web")); len(got) != 1 || got["uid-b"] != second.answer {
		t.Errorf("the answers are %v", got)
	}
	all.forget("eu-1")
	if len(all.kept) != 1 || len(all.of(request("us-1", "web"))) != 1 {
		t.Errorf("after a member is gone the answers are %v", all.kept)
	}

	for name, tc := range map[string]struct {
		seen altered
		want bool
	}{
		"the same":              {alteredBy("Service", "a", "uid-a", "sent", []drift.Difference{{Path: "x", Have: 1}}, now), true},
		"another intent":        {alteredBy("Service", "a", "uid-a", "other", []drift.Difference{{Path: "x", Have: 1}}, now), false},
		"another value":         {alteredBy("Service", "a", "uid-a", "sent", []drift.Difference{{Path: "x", Have: 2}}, now), false},
		"one more field":        {alteredBy("Service", "a", "uid-a", "sent", []drift.Difference{{Path: "x", Have: 1}, {Path: "y", Have: 1}}, now), false},
		"the object made again": {alteredBy("Service", "a", "uid-c", "sent", []drift.Difference{{Path: "x", Have: 1}}, now), false},
	} {
		s := &state{now: now.Add(answerLife - 1), answers: all.of(request("us-1", "web"))}
		if got := s.answered(&tc.seen); got != tc.want {
			t.Errorf("%s: answered is %t, want %t", name, got, tc.want)
		}
	}
	late := &state{now: now.Add(answerLife), answers: all.of(request("us-1", "web"))}
	if late.answered(&first) {
		t.Error("an answer stands for ever")
	}
}
