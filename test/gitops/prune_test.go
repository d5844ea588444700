// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitops has the engine of Argo CD synchronize a Redis, with tracking by label and with pruning.
package gitops

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/engine"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

const (
	// application is the name of the Application, and of the Redis in it.
	application   = "sessions"
	instanceLabel = "app.kubernetes.io/instance"
	memberName    = multicluster.ClusterName("eu-1")
)

var member *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &member)) }

// TestPrune_what_a_redis_must_keep_stays synchronizes a Redis, synchronizes it again with all that it consists of, and
// takes it out of Git.
func TestPrune_what_a_redis_must_keep_stays(t *testing.T) {
	for name, tc := range map[string]struct {
		// earlier gives the objects the metadata of an earlier version; upgraded has a pass after that.
		earlier, upgraded bool
		// labelled gives the label back, as where the policies of a member are those of an earlier version.
		labelled bool
		want     []string
	}{
		"made by this version":                          {want: []string{"data-sessions-0", "sessions-auth"}},
		"made by an earlier version":                    {earlier: true, upgraded: true, want: []string{"data-sessions-0", "sessions-auth"}},
		"with the label and the annotations":            {labelled: true, want: []string{"data-sessions-0", "sessions-auth"}},
		"made by an earlier version, before an upgrade": {earlier: true, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.sync(e.manifest("Redis"), e.manifest("ConfigMap"))
			e.pass()
			e.runStatefulSet()
			if tc.earlier {
				e.asMadeBefore(false)
			}
			if tc.labelled {
				e.asMadeBefore(true)
			}
			if tc.upgraded {
				e.pass()
			}
			// The claims have an owner as long as the StatefulSet is there: the engine infers it.
			e.sync(e.manifest("Redis"), e.manifest("ConfigMap"))
			e.sync(e.manifest("ConfigMap"))
			if e.exists(&flotillav1.Redis{}, application) {
				t.Fatal("the Redis is not pruned, so that nothing is tried here")
			}
			// The garbage collector does this in a cluster.
			e.must(member.Client.Delete(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: application}}))
			e.sync(e.manifest("ConfigMap"))

			var left []string
			if e.exists(&corev1.PersistentVolumeClaim{}, "data-sessions-0") {
				left = append(left, "data-sessions-0")
			}
			if e.exists(&corev1.Secret{}, "sessions-auth") {
				left = append(left, "sessions-auth")
			}
			if !slices.Equal(left, tc.want) {
				t.Errorf("%v are left of what the Redis must keep, want %v", left, tc.want)
			}
		})
	}
}

// env is a namespace of the member with a reconciler.
type env struct {
	*testing.T

	namespace string
	redis     *redis.Reconciler
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{T: t, namespace: member.Namespace(t)}
	found, err := cluster.New(member.AsHub(t), func(options *cluster.Options) {
		options.Scheme = testenv.Scheme()
		options.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			options.Cache = nil
			return client.New(config, options)
		}
	})
	e.must(err)
	members := clusterstest.NewDirectory(clusterstest.Ready(memberName))
	members.Engage(memberName, found)
	e.redis = &redis.Reconciler{Members: members, Recorder: silence{}, Clock: clock.RealClock{}}
	return e
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// manifest is an object in Git as Argo CD applies it: with its label.
func (e *env) manifest(kind string) *unstructured.Unstructured {
	version, spec := "v1", map[string]any{}
	if kind == "Redis" {
		version, spec = flotillav1.GroupVersion.String(), map[string]any{"replicas": int64(1)}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	if len(spec) > 0 {
		obj.Object["spec"] = spec
	}
	obj.SetNamespace(e.namespace)
	obj.SetName(application)
	obj.SetLabels(map[string]string{instanceLabel: application})
	return obj
}

// sync is one synchronization of the application, which has seen everything that is there.
func (e *env) sync(target ...*unstructured.Unstructured) {
	e.Helper()
	seen := cache.NewClusterCache(member.Config, cache.SetNamespaces([]string{e.namespace}), cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(obj *unstructured.Unstructured, isRoot bool) (any, bool) {
			instance := ""
			if isRoot {
				instance = obj.GetLabels()[instanceLabel]
			}
			return instance, instance != ""
		}))
	argo := engine.NewEngine(member.Config, seen, engine.WithLogr(logr.Discard()))
	stop, err := argo.Run()
	e.must(err)
	defer stop()
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()
	results, err := argo.Sync(ctx, target, func(r *cache.Resource) bool { return r.Info == any(application) }, "revision", e.namespace,
		sync.WithPrune(true), sync.WithLogr(logr.Discard()))
	e.must(err)
	for _, result := range results {
		e.Logf("%s: %s %s", result.ResourceKey, result.Status, result.Message)
	}
}

func (e *env) pass() {
	e.Helper()
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: e.namespace, Name: application}}
	for range 3 {
		_, err := e.redis.Reconcile(e.Context(), clusters.Request{ClusterName: memberName, Request: request})
		e.must(err)
	}
}

// runStatefulSet makes the claim that the controller of StatefulSets would make.
func (e *env) runStatefulSet() {
	e.Helper()
	set := &appsv1.StatefulSet{}
	e.must(member.Client.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: application}, set))
	claim := set.Spec.VolumeClaimTemplates[0].DeepCopy()
	claim.Namespace, claim.Name = e.namespace, "data-sessions-0"
	maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	e.must(member.Client.Create(e.Context(), claim))
}

// asMadeBefore gives the Secret and the claim the label, and takes the annotations off unless they are to stay.
func (e *env) asMadeBefore(annotated bool) {
	e.Helper()
	for name, obj := range map[string]client.Object{"sessions-auth": &corev1.Secret{}, "data-sessions-0": &corev1.PersistentVolumeClaim{}} {
		e.must(member.Client.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: name}, obj))
		obj.GetLabels()[instanceLabel] = application
		annotations := obj.GetAnnotations()
		maps.DeleteFunc(annotations, func(key, _ string) bool { return !annotated && strings.HasPrefix(key, "argocd.argoproj.io/") })
		obj.SetAnnotations(annotations)
		e.must(member.Client.Update(e.Context(), obj))
	}
}

// exists reports whether an object is there and not being deleted: what protects claims and the finalizer of a cascade need
// controllers that do not run here.
func (e *env) exists(obj client.Object, name string) bool {
	e.Helper()
	err := member.Client.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: name}, obj)
	e.must(client.IgnoreNotFound(err))
	return err == nil && obj.GetDeletionTimestamp() == nil
}

// silence drops events.
type silence struct{}

func (silence) Record(multicluster.ClusterName, client.Object, clusters.Event) {}
