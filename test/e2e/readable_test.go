// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// readable returns everything in a cluster that may be read without the right to read Secrets: objects, logs, metrics,
// and on machines that are ours the command lines of all processes.
func (r *instance) readable(t *testing.T, c cluster) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &eventsv1.EventList{}, &corev1.PodList{}, &corev1.ServiceList{}, &appsv1.StatefulSetList{}, &appsv1.ControllerRevisionList{},
		&corev1.PersistentVolumeClaimList{}, &flotillav1.RedisList{}, &flotillav1.MemberClusterList{},
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
	if c.name == r.hub.name {
		r.readMetrics(t, found)
		if r.ours() {
			readCommandLines(t, found)
		}
	}
	if r.ours() {
		r.readMachine(t, c, found)
	}
	return found
}

// readMetrics reads the metrics of the manager's Pods as who may read them, through the API server.
func (r *instance) readMetrics(t *testing.T, found map[string]string) {
	t.Helper()
	scraper := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "scraper"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace + "-scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flotilla-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: r.namespace, Name: "scraper"}},
	}
	token := &authenticationv1.TokenRequest{}
	for _, obj := range []client.Object{scraper, binding} {
		if err := r.hub.Create(t.Context(), obj); client.IgnoreAlreadyExists(err) != nil {
			t.Fatalf("creating %T: %v", obj, err)
		}
	}
	t.Cleanup(func() { _ = r.hub.Delete(context.WithoutCancel(t.Context()), binding) })
	if err := r.hub.SubResource("token").Create(t.Context(), scraper, token); err != nil {
		t.Fatalf("asking for a token: %v", err)
	}
	var pods corev1.PodList
	if err := r.hub.List(t.Context(), &pods, client.InNamespace(managerNamespace), managerLabels); err != nil {
		t.Fatalf("listing the manager's Pods: %v", err)
	}
	for _, pod := range pods.Items {
		found["metrics of "+pod.Name] = r.scrape(t, pod, token.Status.Token)
	}
}

// scrape fetches the metrics of one Pod. Its certificate is made at each start, so there is nothing to check it against.
func (r *instance) scrape(t *testing.T, pod corev1.Pod, token string) string {
	t.Helper()
	const port = 8443
	scraper := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if !r.ours() {
				return forward(r.hub, pod.Namespace, pod.Name, port)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
		},
	}}
	defer scraper.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+pod.Name+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := scraper.Do(request)
	if err != nil {
		t.Fatalf("reading the metrics of %q: %v", pod.Name, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("reading the metrics of %q: %s, %v", pod.Name, response.Status, err)
	}
	return string(text)
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
			for _, container := range pod.Spec.Containers {
				logs := func(previous bool) ([]byte, error) {
					options := &corev1.PodLogOptions{Container: container.Name, Previous: previous}
					return clientset.CoreV1().Pods(namespace).GetLogs(pod.Name, options).DoRaw(t.Context())
				}
				where := fmt.Sprintf("log of %s of %s", container.Name, pod.Name)
				log, err := logs(false)
				if err != nil {
					t.Fatalf("reading the %s: %v", where, err)
				}
				found[where] = string(log)
				// The one before is gone when its container was removed meanwhile.
				if log, err := logs(true); err == nil {
					found[where+" before it was started again"] = string(log)
				}
			}
		}
	}
}

// readMachine reads what etcd, the API server, its controllers, the kubelet and containerd of a cluster have logged.
func (r *instance) readMachine(t *testing.T, c cluster, found map[string]string) {
	t.Helper()
	for _, folder := range []string{"logs", filepath.Join("kwok", "clusters", c.name, "logs")} {
		files, err := filepath.Glob(filepath.Join(r.dir, "clusters", c.name, folder, "*.log"))
		if err != nil || len(files) == 0 {
			t.Fatalf("finding the logs in %s of %q: %v", folder, c.name, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found[file] = string(text)
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
