// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestMayOwn_says_what_the_API_server_says compares the rules here with those of the CRD.
func TestMayOwn_says_what_the_API_server_says(t *testing.T) {
	label := func(name string) key { return key{kind: kindLabel, name: name} }
	annotation := func(name string) key { return key{kind: kindAnnotation, name: name} }
	taint := func(name string) key {
		return key{kind: kindTaint, name: name, effect: corev1.TaintEffectNoSchedule}
	}
	names := []string{
		"example.com/team", "a/b", "team", "example.com/", "/team", "Example.com/team", "example.com/-x", "example.com/" + strings.Repeat("x", 63),
		"example.com/" + strings.Repeat("x", 64), "a..b/x", "a.-b/x", strings.Repeat("a", 253) + "/x", strings.Repeat("a", 254) + "/x", strings.Repeat("a", 252) + "/x", "notkubernetes.io/x", "kubernetes.io/os", "kubernetes.io/hostname", "beta.kubernetes.io/arch",
		"topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "k8s.io/x", "x.k8s.io/y",
		"node-restriction.kubernetes.io/x", "team.node-restriction.kubernetes.io/x",
		"node-role.kubernetes.io/own", "node-role.kubernetes.io/other", controlPlaneRole, masterRole,
		"karpenter.sh/x", "x.karpenter.sh/y", "cluster.x-k8s.io/x", "flotilla.dev/node-record", "x.flotilla.dev/y", "notflotilla.dev/x",
		"node.cloudprovider.kubernetes.io/uninitialized", "readiness.k8s.io/x", "feature.node.kubernetes.io/x",
	}
	for _, name := range names {
		for _, k := range []key{label(name), annotation(name), taint(name)} {
			pool := selecting("own", wants(k, "x"))
			pool.UID, pool.Generation = "", 0
			err := shared.Client.Create(context.Background(), pool, client.DryRunAll)
			if allowed := mayOwn("own", &pool.Spec, k); allowed != (err == nil) {
				t.Errorf("%s: here %t, on the API server: %v", k, allowed, err)
			}
		}
	}
}

func TestMayHold_says_what_the_API_server_says(t *testing.T) {
	values := []string{"", "x", "A.b_c-1", "-x", "x-", "a b", "ä", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 1024), strings.Repeat("x", 1025)}
	for _, value := range values {
		for _, k := range []key{labelKey, annotationKey, taintKey} {
			pool := selecting("own", wants(k, value))
			pool.UID, pool.Generation = "", 0
			err := shared.Client.Create(context.Background(), pool, client.DryRunAll)
			if allowed := mayHold(k, value); allowed != (err == nil) {
				t.Errorf("%s with a value of %d characters (%.10q): here %t, on the API server: %v", k, len(value), value, allowed, err)
			}
		}
	}
}
