// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"regexp"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// ours matches a line of a stack that is in this package, but not in a test.
var ours = regexp.MustCompile(`internal/clusters/[a-z_]+\.go`)

// running returns the stacks of goroutines that work for a pool: those in this package, and the caches of members.
func running() []string {
	buffer := make([]byte, 16<<20)
	var stacks []string
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		inPackage := ours.MatchString(strings.ReplaceAll(stack, "_test.go", ""))
		if inPackage || strings.Contains(stack, "cache.(*Reflector)") || strings.Contains(stack, "cache.(*sharedProcessor)") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func TestPool_leaves_nothing_running(t *testing.T) {
	g := NewWithT(t)
	g.Eventually(running).Should(BeEmpty(), "earlier tests")
	l := testenv.NewLine(t, hostOf(t, memberTwo.Config.Host))
	f := startPool(t, hubCluster.Namespace(t))
	f.register("leaves-ready", memberOne.Kubeconfig())
	f.register("leaves-away", l.Through(t, memberTwo.Kubeconfig()))
	f.register("leaves-refused", []byte("garbage: ["))
	for name, kubeconfig := range deadMembers(t) {
		f.register("leaves-"+name, kubeconfig)
	}
	f.Eventually(f.state("leaves-ready")).Should(Equal(clusters.StateReady))
	f.Eventually(f.state("leaves-away")).Should(Equal(clusters.StateReady))
	f.Eventually(f.state("leaves-refused")).Should(Equal(clusters.StateInvalid))
	l.Hush(t)
	f.Eventually(f.state("leaves-away")).Should(Equal(clusters.StateUnreachable))
	f.Expect(running()).NotTo(BeEmpty())
	f.stop()
	g.Eventually(running).Should(BeEmpty())
}
