// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// heard collects the warnings that kubectl would print.
type heard struct {
	mu    sync.Mutex
	texts []string
}

func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

// during returns what is heard while something is done.
func (h *heard) during(t *testing.T, do func() error) string {
	t.Helper()
	h.mu.Lock()
	h.texts = nil
	h.mu.Unlock()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.texts, "\n")
}

// applyFile creates the objects of a manifest for the time of the test.
func applyFile(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := server.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Client.Delete(context.Background(), object) })
	}
}

func TestNodePool_NoExecute_is_warned_of(t *testing.T) {
	applyFile(t, filepath.Join("..", "..", "config", "admission", "nodepool_noexecute.yaml"))
	warnings := &heard{}
	config := rest.CopyConfig(server.Config)
	config.WarningHandler = warnings
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	taint := func(name string, effect corev1.TaintEffect) flotillav1.NodePoolTaint {
		return flotillav1.NodePoolTaint{Key: "example.com/" + name, Effect: effect}
	}
	pool := func(taints ...flotillav1.NodePoolTaint) *flotillav1.NodePool {
		p := &flotillav1.NodePool{}
		p.Name, p.Spec.Taints = "warned", taints
		return p
	}
	create := func(p *flotillav1.NodePool, options ...client.CreateOption) func() error {
		return func() error { return c.Create(t.Context(), p, options...) }
	}
	const want = "NoExecute evicts at once every Pod that does not tolerate example.com/drain, example.com/off, without regard to PodDisruptionBudgets; rollout.maxUnavailable says on how many nodes at a time"
	drain, off := taint("drain", corev1.TaintEffectNoExecute), taint("off", corev1.TaintEffectNoExecute)
	// The API server takes a moment to read its policies.
	NewWithT(t).Eventually(func() string {
		return warnings.during(t, create(pool(drain, off), client.DryRunAll))
	}).WithPolling(100 * time.Millisecond).Should(ContainSubstring(want))

	for name, quiet := range map[string]*flotillav1.NodePool{"no taints": pool(), "NoSchedule": pool(taint("dedicated", corev1.TaintEffectNoSchedule))} {
		if got := warnings.during(t, create(quiet, client.DryRunAll)); got != "" {
			t.Errorf("%s: warned of %q", name, got)
		}
	}
	kept := pool(drain)
	if got := warnings.during(t, create(kept)); !strings.Contains(got, "does not tolerate example.com/drain, without") {
		t.Errorf("creating: got %q", got)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), kept) })
	update := func(change func()) string {
		t.Helper()
		change()
		return warnings.during(t, func() error { return c.Update(t.Context(), kept) })
	}
	if got := update(func() { kept.Spec.Weight = 7 }); got != "" {
		t.Errorf("a change of something else: warned of %q", got)
	}
	if got := update(func() { kept.Spec.Taints[0].Value = "now" }); got != "" {
		t.Errorf("a change of the value: warned of %q", got)
	}
	if got := update(func() { kept.Spec.Taints = append(kept.Spec.Taints, off) }); !strings.Contains(got, "does not tolerate example.com/off, without") {
		t.Errorf("another NoExecute taint: got %q", got)
	}
	if got := update(func() { kept.Spec.Taints = kept.Spec.Taints[:1] }); got != "" {
		t.Errorf("one taint less: warned of %q", got)
	}
}
