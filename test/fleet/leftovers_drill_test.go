// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// everything are the objects of a cluster, of every resource that can be listed.
func (f *fleet) everything(t *testing.T, cluster string) []metav1.PartialObjectMetadata {
	t.Helper()
	config := rest.CopyConfig(f.configs[cluster])
	config.WarningHandler = rest.NoWarnings{}
	asked, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := discovery.ServerPreferredResources(asked)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}
	c, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var all []metav1.PartialObjectMetadata
	for _, group := range resources {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range group.APIResources {
			if !slices.Contains(resource.Verbs, "list") {
				continue
			}
			list, err := c.Resource(version.WithResource(resource.Name)).List(f.ctx, metav1.ListOptions{})
			if err != nil {
				// A definition that is going is listed for a moment longer than it is served.
				t.Logf("listing %s in %s: %v", resource.Name, cluster, err)
				continue
			}
			for _, object := range list.Items {
				object.TypeMeta = metav1.TypeMeta{APIVersion: version.String(), Kind: resource.Kind}
				all = append(all, object)
			}
		}
	}
	return all
}

func nameOf(object metav1.PartialObjectMetadata) string {
	return object.Kind + " " + strings.TrimPrefix(object.Namespace+"/"+object.Name, "/")
}

// waiting names what has a finalizer of ours or is being deleted.
func (f *fleet) waiting(t *testing.T, cluster string) []string {
	t.Helper()
	var found []string
	for _, object := range f.everything(t, cluster) {
		ours := slices.ContainsFunc(object.Finalizers, func(name string) bool { return strings.HasPrefix(name, flotillav1.GroupVersion.Group+"/") })
		if ours || object.DeletionTimestamp != nil {
			found = append(found, fmt.Sprint(nameOf(object), " ", object.Finalizers, " ", object.DeletionTimestamp))
		}
	}
	return found
}

// traces names what is ours or carries something of ours, apart from events and what begins with one of these.
func (f *fleet) traces(t *testing.T, cluster string, named ...string) []string {
	t.Helper()
	var found []string
	for _, object := range f.everything(t, cluster) {
		if object.Kind == "Event" || slices.ContainsFunc(named, func(name string) bool { return strings.HasPrefix(nameOf(object), name) }) {
			continue
		}
		keys := slices.Concat(slices.Collect(maps.Keys(object.Labels)), slices.Collect(maps.Keys(object.Annotations)))
		keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, flotillav1.GroupVersion.Group) })
		group := strings.HasPrefix(object.APIVersion, flotillav1.GroupVersion.Group+"/")
		if group || len(keys) > 0 || strings.Contains(object.Name+object.Namespace, "flotilla") {
			found = append(found, fmt.Sprint(nameOf(object), " ", keys))
		}
	}
	return found
}

// running is what teams in members would miss: what a Redis consists of, and what nodes have.
func (f *fleet) running(t *testing.T, members ...string) map[string]string {
	t.Helper()
	kinds := []string{"StatefulSet", "Pod", "Service", "ConfigMap", "PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume", "RuntimeClass", "Secret"}
	found := map[string]string{}
	for _, name := range members {
		for _, object := range f.everything(t, name) {
			if slices.Contains(kinds, object.Kind) && !strings.HasPrefix(object.Namespace, "flotilla-") && !strings.HasPrefix(object.Namespace, "kube-") {
				found[name+" "+nameOf(object)] = fmt.Sprint(object.UID, " ", object.Generation)
			}
		}
		for _, node := range f.nodes(name) {
			found[name+" "+node.Name] = fmt.Sprint(node.UID, node.Labels, node.Spec.Taints)
		}
	}
	return found
}
