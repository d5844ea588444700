// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// loadPatience is how long a reaction may take while processes start on the same machine.
func loadPatience() time.Duration { return time.Duration(20*busyFactor()) * time.Second }

// load keeps a fleet busy: in each member Services are deleted and nodes moved in and out of the pool, on the hub the pool
// is changed. Each change waits for the reaction to the one before, so none may be lost.
type load struct {
	f       *fleet
	members []string
	done    <-chan struct{}
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu       sync.Mutex // Guards the fields below.
	deleted  map[string]int
	problems []error
}

// startLoad keeps members busy, and the hub as far as these members show it. It ends with the test at the latest.
func (f *fleet) startLoad(t *testing.T, members ...string) *load {
	t.Helper()
	l := f.startMemberLoad(t, members...)
	l.loadHub()
	return l
}

// loadHub keeps the hub busy too, as far as the members show it.
func (l *load) loadHub() {
	l.working.Go(func() { l.repeat("hub", l.changePool) })
}

// startMemberLoad keeps members busy and leaves the hub alone.
func (f *fleet) startMemberLoad(t *testing.T, members ...string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	l := &load{f: f, members: members, done: ctx.Done(), cancel: cancel, deleted: map[string]int{}}
	for _, name := range members {
		l.working.Go(func() { l.repeat(name, l.deleteService, l.moveNode) })
	}
	t.Cleanup(func() { l.cancel(); l.working.Wait() })
	return l
}

// stop ends the load, fails the test for each reaction that did not come, and returns how many Services were deleted.
func (l *load) stop(t *testing.T) map[string]int {
	t.Helper()
	l.cancel()
	l.working.Wait()
	if err := errors.Join(l.problems...); err != nil {
		t.Errorf("reactions that did not come:\n%v", err)
	}
	for _, name := range l.members {
		if l.deleted[name] == 0 {
			t.Errorf("the load did nothing in %s", name)
		}
	}
	return l.deleted
}

// repeat runs acts one after the other until the load ends. An act that has begun is finished.
func (l *load) repeat(cluster string, acts ...func(context.Context, string, int) error) {
	for i := 0; ; i++ {
		select {
		case <-l.done:
			return
		default:
		}
		for _, act := range acts {
			actCtx, cancel := context.WithTimeout(l.f.ctx, loadPatience())
			err := act(actCtx, cluster, i)
			cancel()
			if err != nil {
				l.mu.Lock()
				l.problems = append(l.problems, fmt.Errorf("%s: %w", cluster, err))
				l.mu.Unlock()
				return
			}
		}
	}
}

// eventually polls until a check passes.
func eventually(ctx context.Context, what string, check func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, last)
	}
	return nil
}

// deleteService deletes a Service and waits for it to be back at its address.
func (l *load) deleteService(ctx context.Context, name string, _ int) error {
	member, key := l.f.members[name], client.ObjectKey{Namespace: namespace, Name: "cache-any"}
	service := &corev1.Service{}
	if err := member.Get(ctx, key, service); err != nil {
		return fmt.Errorf("reading the Service to delete: %w", err)
	}
	if err := member.Delete(ctx, service); err != nil {
		return fmt.Errorf("deleting a Service: %w", err)
	}
	l.mu.Lock()
	l.deleted[name]++
	l.mu.Unlock()
	return eventually(ctx, "the deleted Service is not back", func() error {
		back := &corev1.Service{}
		if err := member.Get(ctx, key, back); err != nil {
			return err
		}
		if back.UID == service.UID || back.Spec.ClusterIP != service.Spec.ClusterIP {
			return fmt.Errorf("it has UID %s and address %s, before %s and %s", back.UID, back.Spec.ClusterIP, service.UID, service.Spec.ClusterIP)
		}
		return nil
	})
}

// moveNode moves the last node into the pool and out again.
func (l *load) moveNode(ctx context.Context, name string, _ int) error {
	member := l.f.members[name]
	for _, group := range []string{`"web"`, "null"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name + "-node-5"}}
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"example.com/group":%s}}}`, group)
		if err := member.Patch(ctx, node, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			return fmt.Errorf("labelling a node: %w", err)
		}
		err := eventually(ctx, "the node did not get its keys for group "+group, func() error {
			if err := member.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return err
			}
			if _, labelled := node.Labels["example.com/team"]; labelled != (group != "null") || labelled != tainted(node) {
				return fmt.Errorf("its labels are %v, its taints %v", node.Labels, node.Spec.Taints)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func tainted(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == "example.com/dedicated" {
			return true
		}
	}
	return false
}

// changePool gives the pool another label on the hub and waits for it to reach the nodes of the members.
func (l *load) changePool(ctx context.Context, _ string, i int) error {
	value := flotillav1.LabelValue(fmt.Sprintf("v%d", i%1000))
	if err := l.f.setRevision(ctx, value); err != nil {
		return err
	}
	return eventually(ctx, "a change on the hub did not reach the nodes", func() error {
		return l.f.hasRevision(ctx, value, l.members...)
	})
}

// setRevision sets a label of the pool on the hub.
func (f *fleet) setRevision(ctx context.Context, value flotillav1.LabelValue) error {
	patch := fmt.Appendf(nil, `{"spec":{"labels":{"example.com/revision":%q}}}`, value)
	if err := f.hub.Patch(ctx, webPool(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("changing the pool on the hub: %w", err)
	}
	return nil
}

// hasRevision checks that the first node of each member, which is in the pool, has the label.
func (f *fleet) hasRevision(ctx context.Context, value flotillav1.LabelValue, members ...string) error {
	var missing []string
	for _, name := range members {
		node := &corev1.Node{}
		if err := f.members[name].Get(ctx, client.ObjectKey{Name: name + "-node-1"}, node); err != nil {
			return err
		}
		if node.Labels["example.com/revision"] != string(value) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("revision %s is not in %s", value, strings.Join(missing, ", "))
	}
	return nil
}

// expectConverged puts a new revision on the hub and waits for it to be everywhere, and the same with a last one, so that
// what comes out can be compared.
func (f *fleet) expectConverged(t *testing.T, members ...string) {
	t.Helper()
	f.expectConvergedWithin(t, loadPatience(), members...)
}

// expectConvergedWithin is expectConverged with another patience.
func (f *fleet) expectConvergedWithin(t *testing.T, patience time.Duration, members ...string) {
	t.Helper()
	g := NewWithT(t)
	for _, value := range []flotillav1.LabelValue{flotillav1.LabelValue(fmt.Sprintf("t%d", time.Now().UnixNano())), "last"} {
		g.Expect(f.setRevision(f.ctx, value)).To(Succeed())
		g.Eventually(func() error { return f.hasRevision(f.ctx, value, members...) }, patience, 100*time.Millisecond).Should(Succeed())
	}
}
