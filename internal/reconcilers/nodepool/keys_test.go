// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// agrees compares what package ownership makes of a pool with one key with what the CRD says of it.
func agrees(t *testing.T, k ownership.Key, value string) {
	t.Helper()
	pool := selecting("own", ownershiptest.Wants(k, value))
	refused := surveyOf(pool, *ownershiptest.Node("n1", map[string]string{"flotilla.test/pool": "own"})).RefusedKeys
	pool.UID, pool.Generation = "", 0
	err := shared.Client.Create(context.Background(), pool, client.DryRunAll)
	if allowed := refused.Len() == 0; allowed != (err == nil) {
		t.Errorf("%s with a value of %d characters (%.10q): here %t, on the API server: %v", k, len(value), value, allowed, err)
	}
}

func TestKeys_are_those_that_the_API_server_takes(t *testing.T) {
	names := []string{
		"example.com/team", "a/b", "team", "example.com/", "/team", "Example.com/team", "example.com/-x", "example.com/" + strings.Repeat("x", 63),
		"example.com/" + strings.Repeat("x", 64), "a..b/x", "a.-b/x", strings.Repeat("a", 253) + "/x", strings.Repeat("a", 254) + "/x", strings.Repeat("a", 252) + "/x", "notkubernetes.io/x", "kubernetes.io/os", "kubernetes.io/hostname", "beta.kubernetes.io/arch",
		"topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "k8s.io/x", "x.k8s.io/y",
		"node-restriction.kubernetes.io/x", "team.node-restriction.kubernetes.io/x",
		"node-role.kubernetes.io/own", "node-role.kubernetes.io/other", flotillav1.NodeRolePrefix + "control-plane", flotillav1.NodeRolePrefix + "master",
		"karpenter.sh/x", "x.karpenter.sh/y", "cluster.x-k8s.io/x", "flotilla.dev/node-record", "x.flotilla.dev/y", "notflotilla.dev/x",
		"node.cloudprovider.kubernetes.io/uninitialized", "readiness.k8s.io/x", "feature.node.kubernetes.io/x",
	}
	for _, name := range names {
		agrees(t, ownership.Key{Kind: ownership.Label, Name: name}, "x")
		agrees(t, ownership.Key{Kind: ownership.Annotation, Name: name}, "x")
		agrees(t, ownership.Key{Kind: ownership.Taint, Name: name, Effect: corev1.TaintEffectNoSchedule}, "x")
	}
}

func TestValues_are_those_that_the_API_server_takes(t *testing.T) {
	values := []string{"", "x", "A.b_c-1", "-x", "x-", "a b", "ä", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 1024), strings.Repeat("x", 1025)}
	for _, value := range values {
		for _, k := range []ownership.Key{labelKey, annotationKey, taintKey} {
			agrees(t, k, value)
		}
	}
}
