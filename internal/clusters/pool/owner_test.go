// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

func TestPool_an_attempt_that_fails_gives_up_its_cluster(t *testing.T) {
	server := clusterstest.Start(t)
	server.Version("v1.20.0")
	f := startPool(t, hubCluster.Namespace(t))
	mistaken := f.register("mistaken", server.Kubeconfig())
	f.Eventually(f.condition("mistaken", flotillav1.ConditionAPIsServed)).Should(Equal("False UnsupportedVersion"))
	var nobody []byte
	for _, nobody = range deadMembers(t) {
		break
	}
	f.patch(mistaken, func() { mistaken.Data[flotillav1.KeyKubeconfig] = nobody })
	f.Eventually(func() string { return f.pool.member("mistaken").publication().endpoint }).ShouldNot(Equal(server.URL()[len("https://"):]))
	server.Version("v1.36.0")

	right := f.register("right", server.Kubeconfig())
	f.Eventually(f.condition("right", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.unregister(mistaken)
	f.unregister(right)
}

func TestPool_owners_of_clusters(t *testing.T) {
	p := &Pool{owners: map[types.UID]owner{}}
	for i := range 1000 {
		attempt := &attemptInput{}
		if name, ok := p.acquireUID(types.UID(fmt.Sprint("invented-", i)), "liar", attempt); !ok || name != "liar" {
			t.Fatalf("a free cluster is owned by %q", name)
		}
		p.giveUpUIDs(attempt, "")
	}
	if len(p.owners) > 0 {
		t.Errorf("%d clusters stay reserved", len(p.owners))
	}

	first, second := &attemptInput{}, &attemptInput{}
	p.acquireUID("a", "eu-1", first)
	p.acquireUID("a", "eu-1", second)
	p.giveUpUIDs(first, "")
	if name, ok := p.acquireUID("a", "us-1", &attemptInput{}); ok || name != "eu-1" {
		t.Error("an abandoned attempt gives up what a later one has reserved")
	}
	p.giveUpUIDs(second, "a")
	p.giveUpUIDs(second, "")
	if name, ok := p.acquireUID("a", "us-1", &attemptInput{}); ok || name != "eu-1" {
		t.Error("a cluster that the member is known to be is given up")
	}
	p.keepUID("b", "eu-1")
	if name, ok := p.acquireUID("a", "us-1", &attemptInput{}); !ok || name != "us-1" {
		t.Error("a member owns two clusters")
	}
}
