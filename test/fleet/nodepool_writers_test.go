// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventsOf are the reasons of the events about a NodePool.
func (f *fleet) eventsOf(c client.Client, pool string) []string {
	list := &eventsv1.EventList{}
	_ = c.List(f.ctx, list)
	var reasons []string
	for _, event := range list.Items {
		if event.Regarding.Kind == "NodePool" && event.Regarding.Name == pool {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons
}

// nodeWriter is a controller of somebody else that writes to a node in its own way. It checks before each write that the
// one before is still there.
type nodeWriter struct {
	name string
	// step makes the i-th write; holds says what of it is missing from the node.
	step  func(ctx context.Context, c client.Client, node string, i int) error
	holds func(node *corev1.Node, i int) error
}

const (
	autoscalerTaint = "ToBeDeletedByClusterAutoscaler"
	machineKey      = "cluster.x-k8s.io/machine"
	sharedLabel     = "node.cluster.x-k8s.io/group"
	featureKey      = "feature.node.kubernetes.io/cpu-model.id"
)

var nodeWriters = []nodeWriter{
	{
		name: "Cluster API",
		// It patches labels, annotations and, with the resourceVersion, taints.
		step: func(ctx context.Context, c client.Client, name string, i int) error {
			return retry.RetryOnConflict(patience, func() error {
				node := &corev1.Node{}
				if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
					return err
				}
				patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
				if node.Annotations == nil {
					node.Annotations = map[string]string{}
				}
				node.Annotations[machineKey] = fmt.Sprintf("machine-%d", i)
				node.Labels[sharedLabel] = fmt.Sprintf("group-%d", i)
				node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "node.cluster.x-k8s.io/outdated-revision" })
				if i%2 == 0 {
					node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "node.cluster.x-k8s.io/outdated-revision", Effect: corev1.TaintEffectPreferNoSchedule})
				}
				return c.Patch(ctx, node, patch)
			})
		},
		holds: func(node *corev1.Node, i int) error {
			return errors.Join(
				same("annotation "+machineKey, node.Annotations[machineKey], fmt.Sprintf("machine-%d", i)),
				same("label "+sharedLabel, node.Labels[sharedLabel], fmt.Sprintf("group-%d", i)),
				same("its taint", fmt.Sprint(hasTaint(node, "node.cluster.x-k8s.io/outdated-revision")), fmt.Sprint(i%2 == 0)),
			)
		},
	},
	{
		name: "Node Feature Discovery",
		// It patches labels by JSON patch, without a precondition.
		step: func(ctx context.Context, c client.Client, name string, i int) error {
			patch := fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/feature.node.kubernetes.io~1cpu-model.id","value":"%d"}]`, i)
			return c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.JSONPatchType, patch))
		},
		holds: func(node *corev1.Node, i int) error {
			return same("label "+featureKey, node.Labels[featureKey], fmt.Sprint(i))
		},
	},
	{
		name: "an autoscaler",
		// It updates the whole node, and tries again when it has lost a race.
		step: func(ctx context.Context, c client.Client, name string, i int) error {
			return retry.RetryOnConflict(patience, func() error {
				node := &corev1.Node{}
				if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
					return err
				}
				node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == autoscalerTaint })
				if i%3 != 0 {
					node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: autoscalerTaint, Value: fmt.Sprint(i), Effect: corev1.TaintEffectNoSchedule})
				}
				return c.Update(ctx, node)
			})
		},
		holds: func(node *corev1.Node, i int) error {
			var value, want string
			for _, taint := range node.Spec.Taints {
				if taint.Key == autoscalerTaint {
					value = taint.Value
				}
			}
			if i%3 != 0 {
				want = fmt.Sprint(i)
			}
			return same("taint "+autoscalerTaint, value, want)
		},
	},
}

// patience is for lost races: three others write.
var patience = func() (backoff wait.Backoff) {
	backoff = retry.DefaultBackoff
	backoff.Steps, backoff.Factor = 20, 1.2
	return backoff
}()

func same(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q, was written as %q", what, got, want)
	}
	return nil
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

// othersWriteBeside has others write to a node of a pool while the pool changes all the time: nobody loses anything.
func othersWriteBeside(t *testing.T, f *fleet) {
	const member, name = "member-2", "beside-node"
	g, c := NewWithT(t), f.members[member]
	g.Expect(c.Create(f.ctx, extraNode(name, map[string]string{colorKey: "beside"}))).To(Succeed())
	t.Cleanup(func() { _ = c.Delete(f.ctx, extraNode(name, nil)) })
	f.addPool(t, member, colorPool("beside", nil))
	f.expectShade(t, member, name, "beside/beside")

	ctx, cancel := context.WithCancel(f.ctx)
	var working sync.WaitGroup
	last := make([]int, len(nodeWriters))
	for w, writer := range nodeWriters {
		working.Go(func() { last[w] = f.writeUntil(ctx, t, c, name, writer) })
	}
	changes := 0
	for end := time.Now().Add(writersTime); time.Now().Before(end) && !t.Failed(); changes++ {
		value := fmt.Sprintf("v%d", changes)
		f.changePoolIn(t, member, "beside", fmt.Sprintf(`{"labels":{%q:%q},"taints":[{"key":%q,"value":%q,"effect":"NoSchedule"}]}`, shadeKey, value, onlyKey, value))
		f.expectShade(t, member, name, value+"/"+value)
	}
	cancel()
	working.Wait()
	node := f.node(member, name)
	for w, writer := range nodeWriters {
		t.Logf("%s wrote %d times, the pool changed %d times", writer.name, last[w], changes)
		g.Expect(last[w]).To(BeNumerically(">", 5), writer.name)
		g.Expect(writer.holds(node, last[w])).To(Succeed(), writer.name)
	}
	f.expectPool(t, member, "beside", 1, 200)

	// What the pool wrote goes, what the others wrote stays.
	g.Expect(c.Delete(f.ctx, colorPool("beside", nil))).To(Succeed())
	f.expectGone(t, member, "beside")
	f.expectShade(t, member, name, "/")
	node = f.node(member, name)
	for w, writer := range nodeWriters {
		g.Expect(writer.holds(node, last[w])).To(Succeed(), writer.name)
	}
}

// writeUntil lets a writer write until it is stopped, and returns the number of its last write.
func (f *fleet) writeUntil(ctx context.Context, t *testing.T, c client.Client, name string, writer nodeWriter) int {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for i := 1; ; i++ {
		// A write that has begun comes to its end, so that it is known what was written last.
		if err := writer.step(f.ctx, c, name, i); err != nil {
			t.Errorf("%s could not write: %v", writer.name, err)
			return i
		}
		select {
		case <-ctx.Done():
			return i
		case <-ticker.C:
		}
		if err := writer.holds(f.node("member-2", name), i); err != nil {
			t.Errorf("%s lost its write %d: %v", writer.name, i, err)
			return i
		}
	}
}
