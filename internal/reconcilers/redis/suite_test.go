// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

const memberName = multicluster.ClusterName("eu-1")

var member *testenv.Cluster

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	os.Exit(testenv.Main(m, &member))
}

// env is one namespace of the member, with a reconciler that sees it through caches as in production.
type env struct {
	*testing.T
	*WithT

	ctx context.Context
	// passes is the context of the passes, if it differs from that of the test.
	passes    context.Context
	namespace string
	// nodeName is the node that Pods run on; node-1, which does not exist, unless it is set.
	nodeName  string
	cluster   cluster.Cluster
	clock     *clocktesting.FakePassiveClock
	directory *clusterstest.Directory
	recorder  *recorder
	writes    *writes
	redis     *redis.Reconciler
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	e := &env{T: t, WithT: NewWithT(t), ctx: ctx, namespace: member.Namespace(t), writes: &writes{}, recorder: &recorder{}}
	hasLabel, err := labels.NewRequirement(flotillav1.LabelRedis, selection.Exists, nil)
	if err != nil {
		t.Fatal(err)
	}
	selected := map[client.Object]cache.ByObject{}
	for _, object := range []client.Object{
		&appsv1.StatefulSet{}, &corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}, &policyv1.PodDisruptionBudget{}, &corev1.PersistentVolumeClaim{},
	} {
		selected[object] = cache.ByObject{Label: labels.NewSelector().Add(*hasLabel), Transform: kinds.Trim(object)}
	}
	e.cluster, err = cluster.New(member.AsHub(t), func(options *cluster.Options) {
		options.Scheme = testenv.Scheme()
		options.Cache.DefaultNamespaces = map[string]cache.Config{e.namespace: {}}
		options.Cache.ByObject = selected
		options.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}
		options.NewClient = e.writes.newClient
	})
	if err != nil {
		t.Fatalf("making the member's cluster: %v", err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = e.cluster.Start(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	// Each kind with a selector has a cache of its own, and they are started one after the other.
	e.Eventually(func() error {
		for _, list := range cachedLists() {
			if err := e.cluster.GetClient().List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	}).Should(Succeed())
	e.clock = clocktesting.NewFakePassiveClock(time.Now())
	e.directory = clusterstest.NewDirectory(clusterstest.Ready(memberName))
	e.directory.Engage(memberName, e.cluster)
	e.redis = &redis.Reconciler{Members: e.directory, Recorder: e.recorder, Clock: e.clock}
	return e
}

func cachedLists() []client.ObjectList {
	return []client.ObjectList{
		&flotillav1.RedisList{}, &appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{},
		&policyv1.PodDisruptionBudgetList{}, &corev1.PersistentVolumeClaimList{},
	}
}

// later moves the clock on by that much from now. Its time stands still between moves, while the API server stamps
// objects with the real one, which is further on by then.
func (e *env) later(by time.Duration) {
	now := e.clock.Now()
	if real := time.Now(); real.After(now) {
		now = real
	}
	e.clock.SetTime(now.Add(by))
}

// waitForCaches waits until the caches show what the API server has.
func (e *env) waitForCaches() {
	e.Helper()
	versions := func(g Gomega, reader client.Reader, list client.ObjectList, options ...client.ListOption) []string {
		g.Expect(reader.List(e.ctx, list, append(options, client.InNamespace(e.namespace))...)).To(Succeed())
		found := []string{}
		g.Expect(apimeta.EachListItem(list, func(item runtime.Object) error {
			obj := item.(client.Object)
			found = append(found, obj.GetName()+"@"+obj.GetResourceVersion())
			return nil
		})).To(Succeed())
		slices.Sort(found)
		return found
	}
	e.Eventually(func(g Gomega) {
		live, cached := cachedLists(), cachedLists()
		for i := range live {
			var options []client.ListOption
			if i > 0 {
				options = append(options, client.HasLabels{flotillav1.LabelRedis})
			}
			g.Expect(versions(g, e.cluster.GetClient(), cached[i])).To(Equal(versions(g, member.Client, live[i], options...)))
		}
	}).WithPolling(5 * time.Millisecond).Should(Succeed())
}

// pass runs one pass on up-to-date caches and returns what it wrote.
func (e *env) pass(name string) []string {
	e.Helper()
	_, err := e.try(name)
	if err != nil {
		e.Fatalf("a pass over %s: %v", name, err)
	}
	return e.writes.take()
}

func (e *env) try(name string) (ctrl.Result, error) {
	e.Helper()
	e.waitForCaches()
	e.writes.take()
	key := client.ObjectKey{Namespace: e.namespace, Name: name}
	ctx := e.ctx
	if e.passes != nil {
		ctx = e.passes
	}
	return e.redis.Reconcile(ctx, clusters.Request{ClusterName: memberName, Request: reconcile.Request{NamespacedName: key}})
}

// settle runs passes until one writes nothing.
func (e *env) settle(name string) {
	e.Helper()
	for range 10 {
		if len(e.pass(name)) == 0 {
			return
		}
	}
	e.Fatalf("the passes over %s do not come to rest: %v", name, e.pass(name))
}

func (e *env) create(obj client.Object) {
	e.Helper()
	obj.SetNamespace(e.namespace)
	if err := member.Client.Create(e.ctx, obj); err != nil {
		e.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
	}
}

func (e *env) get(name string, obj client.Object) {
	e.Helper()
	if err := member.Client.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, obj); err != nil {
		e.Fatalf("reading %T %s: %v", obj, name, err)
	}
}

func (e *env) gone(name string, obj client.Object) bool {
	return client.IgnoreNotFound(member.Client.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, obj)) == nil && obj.GetUID() == ""
}

func (e *env) remove(name string, obj client.Object) {
	e.Helper()
	obj.SetNamespace(e.namespace)
	obj.SetName(name)
	if err := member.Client.Delete(e.ctx, obj, client.GracePeriodSeconds(0)); err != nil {
		e.Fatalf("deleting %T %s: %v", obj, name, err)
	}
}

// change changes the spec of a Redis.
func (e *env) change(name string, mutate func(*flotillav1.Redis)) {
	e.Helper()
	obj := &flotillav1.Redis{}
	e.get(name, obj)
	before := obj.DeepCopy()
	mutate(obj)
	if err := member.Client.Patch(e.ctx, obj, client.MergeFrom(before)); err != nil {
		e.Fatalf("changing Redis %s: %v", name, err)
	}
}

func (e *env) status(name string) flotillav1.RedisStatus {
	e.Helper()
	obj := &flotillav1.Redis{}
	e.get(name, obj)
	return obj.Status
}

func (e *env) expectCondition(name, conditionType string, status metav1.ConditionStatus, reason string) {
	e.Helper()
	condition := apimeta.FindStatusCondition(e.status(name).Conditions, conditionType)
	if condition == nil {
		e.Fatalf("Redis %s has no condition %s", name, conditionType)
	}
	if condition.Status != status || condition.Reason != reason {
		e.Fatalf("condition %s is %s %s (%s), want %s %s", conditionType, condition.Status, condition.Reason, condition.Message, status, reason)
	}
}

func (e *env) expectMessage(name, conditionType, text string) {
	e.Helper()
	if condition := apimeta.FindStatusCondition(e.status(name).Conditions, conditionType); condition == nil || !strings.Contains(condition.Message, text) {
		e.Fatalf("condition %s is %+v, want %q in its message", conditionType, condition, text)
	}
}

func (e *env) expectEvents(want ...string) {
	e.Helper()
	got := e.recorder.take()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		e.Fatalf("events differ (-want +got):\n%s", diff)
	}
}

// runStatefulSet does what the StatefulSet controller and kubelets would: it observes the generation and runs the
// missing Pods, Ready or not, from the template.
func (e *env) runStatefulSet(name string, ready bool) {
	e.Helper()
	set := &appsv1.StatefulSet{}
	e.get(name, set)
	set.Status.ObservedGeneration = set.Generation
	if err := member.Client.Status().Update(e.ctx, set); err != nil {
		e.Fatalf("observing StatefulSet %s: %v", name, err)
	}
	for ordinal := range *set.Spec.Replicas {
		podName := name + "-" + fmt.Sprint(ordinal)
		if e.gone("data-"+podName, &corev1.PersistentVolumeClaim{}) && len(set.Spec.VolumeClaimTemplates) > 0 {
			template := set.Spec.VolumeClaimTemplates[0]
			e.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" + podName, Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec})
		}
		if e.gone(podName, &corev1.Pod{}) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: podName, Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations,
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
				},
				Spec: *set.Spec.Template.Spec.DeepCopy(),
			}
			pod.Spec.NodeName = stdcmp.Or(e.nodeName, "node-1")
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
			if set.Spec.VolumeClaimTemplates == nil {
				pod.Spec.Volumes = pod.Spec.Volumes[:len(pod.Spec.Volumes)-1]
			}
			e.create(pod)
			e.setReady(podName, ready)
		}
	}
}

func (e *env) setReady(podName string, ready bool) {
	e.Helper()
	pod := &corev1.Pod{}
	e.get(podName, pod)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	if err := member.Client.Status().Update(e.ctx, pod); err != nil {
		e.Fatalf("setting the status of Pod %s: %v", podName, err)
	}
}

// running creates a Redis and brings it to Ready.
func (e *env) running(name string, replicas int32) {
	e.Helper()
	e.create(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flotillav1.RedisSpec{Replicas: new(replicas)}})
	e.settle(name)
	e.runStatefulSet(name, true)
	e.settle(name)
	e.expectCondition(name, flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady)
	e.recorder.take()
}

// writes counts the writes to the member's API server.
type writes struct {
	mu   sync.Mutex
	seen []string
	// refuseStatus is the error of the next write of a status; nil allows it.
	refuseStatus error
	// refusePatch returns the error of a patch of an object; nil allows all.
	refusePatch func(obj client.Object, patch string) error
	// onApplyFailed, if set, is called after the API server has refused to apply something.
	onApplyFailed func()
}

func (w *writes) add(verb string, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, verb+" "+what)
}

func (w *writes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

func (w *writes) newClient(config *rest.Config, options client.Options) (client.Client, error) {
	real, err := client.NewWithWatch(config, options)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(real, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			w.add("create", obj.GetName())
			return c.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			w.add("delete", obj.GetName())
			return c.Delete(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			w.add("update", obj.GetName())
			return c.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			w.add("patch", obj.GetName())
			if w.refusePatch != nil {
				data, err := patch.Data(obj)
				if err != nil {
					return err
				}
				if err := w.refusePatch(obj, string(data)); err != nil {
					return err
				}
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			named := obj.(interface{ GetName() string })
			w.add("apply", named.GetName())
			err := c.Apply(ctx, obj, opts...)
			if err != nil && w.onApplyFailed != nil {
				w.onApplyFailed()
			}
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			w.add("patch "+sub, obj.GetName())
			if err := w.refuseStatus; err != nil {
				w.refuseStatus = nil
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}), nil
}

type recorder struct {
	mu   sync.Mutex
	seen []string
	// notes are all recorded notes.
	notes []string
}

func (r *recorder) Record(_ multicluster.ClusterName, _ client.Object, event clusters.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, strings.TrimSpace(event.Reason+" "+relatedName(event)))
	r.notes = append(r.notes, event.Note)
}

func relatedName(event clusters.Event) string {
	if event.Related == nil {
		return ""
	}
	return event.Related.GetName()
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

// configOf returns the name of the ConfigMap that new Pods are started with.
func (e *env) configOf(name string) string {
	e.Helper()
	set := &appsv1.StatefulSet{}
	e.get(name, set)
	return set.Spec.Template.Annotations[flotillav1.AnnotationConfig]
}
