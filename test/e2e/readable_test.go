// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// readable returns everything in a cluster that may be read without the right to read Secrets: objects, logs, and on
// machines that are ours the command lines of all processes.
func (r *instance) readable(t *testing.T, c cluster) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &eventsv1.EventList{}, &corev1.PodList{}, &corev1.ServiceList{}, &flotillav1.RedisList{}, &flotillav1.MemberClusterList{},
	} {
		if _, members := list.(*flotillav1.MemberClusterList); members && c.name != r.hub.name {
			continue
		}
		if err := c.List(t.Context(), list); err != nil {
			t.Fatalf("listing %T in %q: %v", list, c.name, err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		found[fmt.Sprintf("%T", list)] = string(text)
	}
	r.readLogs(t, c, found)
	if r.ours() && c.name == r.hub.name {
		readCommandLines(t, found)
	}
	return found
}

func (r *instance) readLogs(t *testing.T, c cluster, found map[string]string) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{r.namespace, managerNamespace} {
		var pods corev1.PodList
		if err := c.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil {
			t.Fatalf("listing the Pods of %q in %q: %v", namespace, c.name, err)
		}
		for _, pod := range pods.Items {
			log, err := clientset.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
			if err != nil {
				t.Fatalf("reading the log of %q: %v", pod.Name, err)
			}
			found["log of "+pod.Name] = string(log)
		}
	}
}

// readCommandLines reads what every user of the machine can see of its processes.
func readCommandLines(t *testing.T, found map[string]string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// Processes end while they are listed.
		if text, err := os.ReadFile(file); err == nil {
			found[file] = string(text)
		}
	}
}
