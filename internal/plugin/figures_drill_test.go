// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// A large fleet: how many members it has, of which how many do not answer, and how many objects are placed in all of them.
const (
	manyMembers, silentMembers, manyObjects = 1000, 300, 100
	// What an administrator may have to wait, and may be sent.
	doctorPatience, statusPatience = 60 * time.Second, 2 * time.Second
	watchedPerSecond               = 100 << 10
)

// TestFiguresDrill measures what the plugin takes in a fleet of a thousand members. All that answer are the same API server.
func TestFiguresDrill(t *testing.T) {
	w := newWorld(t)
	letAllGo(t)
	t.Cleanup(func() { letAllGo(t) })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	fakeFleet(t, silent.Addr().String())

	took, got := timed(w, "status")
	t.Logf("status: %s, %d lines", took, strings.Count(got.out, "\n"))
	if took > statusPatience {
		t.Errorf("status takes %s, at most %s is allowed", took, statusPatience)
	}
	if lines := strings.Count(got.out, "\n"); lines > 80 || !strings.Contains(got.out, "Members 700/1000 ready") {
		t.Errorf("status does not fit one screen, or counts wrong:\n%s", got.out)
	}

	took, got = timed(w, "doctor")
	t.Logf("doctor: %s, %d lines", took, strings.Count(got.out, "\n"))
	if took > doctorPatience {
		t.Errorf("doctor takes %s, at most %s is allowed", took, doctorPatience)
	}
	if examined := strings.Count(got.out, "\n✓ ") + strings.Count(got.out, "\n! ") + strings.Count(got.out, "\n✗ "); examined < manyMembers {
		t.Errorf("doctor reports on %d members:\n%.2000s", examined, got.out)
	}
	measureWatch(t, w)
}

// timed runs a command as a person does.
func timed(w *world, args ...string) (time.Duration, result) {
	began := time.Now()
	got := w.run(args...)
	return time.Since(began), got
}

// fakeFleet makes the registrations, the MemberClusters and the objects of a large fleet.
func fakeFleet(t *testing.T, silent string) {
	t.Helper()
	ctx := t.Context()
	ensure(t, hubServer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	uid := identityOf(t, us1)
	answers, away := us1.Kubeconfig(), bytes.ReplaceAll(us1.Kubeconfig(), []byte(us1.Config.Host), []byte("https://"+silent))
	names := make([]string, 0, manyMembers)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range manyMembers {
		name := fmt.Sprintf("member-%04d", i)
		names = append(names, name)
		group.Go(func() error {
			secret := testenv.SecretFor(us1, flotillav1.RegistrationNamespace, name)
			secret.Data[flotillav1.KeyKubeconfig] = answers
			if i < silentMembers {
				secret.Data[flotillav1.KeyKubeconfig] = away
			}
			if err := hubServer.Client.Create(ctx, secret); err != nil {
				return err
			}
			return fakeMember(ctx, name, uid, i >= silentMembers)
		})
	}
	for i := range manyObjects {
		group.Go(func() error { return fakeObject(ctx, fmt.Sprintf("cache-%03d", i), names) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		in := client.InNamespace(flotillav1.RegistrationNamespace)
		_ = hubServer.Client.DeleteAllOf(ctx, &corev1.Secret{}, in, client.HasLabels{flotillav1.LabelCluster})
		_ = hubServer.Client.DeleteAllOf(ctx, &flotillav1.MemberCluster{})
		_ = hubServer.Client.DeleteAllOf(ctx, &flotillav1.Redis{}, client.InNamespace("shop"))
	})
}

// fakeMember makes a MemberCluster that says whether the member answers.
func fakeMember(ctx context.Context, name, uid string, answers bool) error {
	member := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": "eu"}},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: flotillav1.RegistrationNamespace, Name: name}},
	}
	if err := hubServer.Client.Create(ctx, member); err != nil {
		return err
	}
	member.Status = flotillav1.MemberClusterStatus{UID: uid, KubernetesVersion: "v1.36.0", Endpoint: "10.0.0.1:6443"}
	status, ready, reason := metav1.ConditionTrue, "Connected", "ProbeSucceeded"
	if !answers {
		status, ready, reason = metav1.ConditionFalse, "ClusterUnreachable", "Timeout"
	}
	for _, c := range []metav1.Condition{
		{Type: flotillav1.ConditionReady, Status: status, Reason: ready, Message: "as the probe says"},
		{Type: flotillav1.ConditionReachable, Status: status, Reason: reason, Message: "as the probe says"},
		{Type: flotillav1.ConditionCredentialsAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "The credential is in use"},
		{Type: flotillav1.ConditionClaimed, Status: metav1.ConditionTrue, Reason: "Held", Message: "This hub holds the claim"},
	} {
		c.LastTransitionTime = metav1.Now()
		member.Status.Conditions = append(member.Status.Conditions, c)
	}
	return hubServer.Client.Status().Update(ctx, member)
}

// fakeObject makes an object in all members, with as many entries as the hub publishes.
func fakeObject(ctx context.Context, name string, members []string) error {
	object := &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       flotillav1.RedisSpec{Placement: &flotillav1.Placement{All: true}},
	}
	if err := hubServer.Client.Create(ctx, object); err != nil {
		return err
	}
	object.Status.PlacedIn = members
	for _, cluster := range members[:100] {
		object.Status.Clusters = append(object.Status.Clusters, flotillav1.RedisClusterStatus{ClusterStatus: flotillav1.ClusterStatus{
			Name: cluster, Ready: metav1.ConditionUnknown, Reason: flotillav1.ReasonClusterUnreachable, Message: "The cluster cannot be reached; numbers are the last known ones",
		}})
	}
	object.Status.Conditions = []metav1.Condition{{
		Type: flotillav1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ClustersNotReady", Message: "Not ready: 300 clusters", LastTransitionTime: metav1.Now(),
	}}
	return hubServer.Client.Status().Update(ctx, object)
}

// measureWatch counts what the hub sends to status --watch while a member changes each second.
func measureWatch(t *testing.T, w *world) {
	t.Helper()
	hub, err := url.Parse(hubServer.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	meter := newMeter(t, hub.Host)
	content, err := os.ReadFile(w.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.kubeconfig, bytes.ReplaceAll(content, []byte(hub.Host), []byte(meter.addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	screen, ended := &screen{}, make(chan int)
	go func() { ended <- w.runInto(ctx, strings.NewReader(""), screen, io.Discard, "status", "--watch") }()
	w.eventually("the fleet shows", func() (bool, error) { return strings.Contains(screen.String(), "Members 700/1000 ready"), nil })
	const measured = 30 * time.Second
	first, began := meter.bytes.Load(), time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; time.Since(began) < measured; i++ {
		<-tick.C
		member := w.member(fmt.Sprintf("member-%04d", 500+i))
		member.Status.KubernetesVersion = "v1.36.1"
		if err := hubServer.Client.Status().Update(ctx, member); err != nil {
			t.Fatal(err)
		}
	}
	rate := float64(meter.bytes.Load()-first) / time.Since(began).Seconds()
	t.Logf("status --watch: %d KiB at first, then %.1f KiB/s", first>>10, rate/1024)
	if rate > watchedPerSecond {
		t.Errorf("status --watch is sent %.0f bytes a second, at most %d are allowed", rate, watchedPerSecond)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("watching ended with exit code %d", code)
	}
}

// meter forwards connections and counts what comes back.
type meter struct {
	addr  string
	bytes atomic.Int64
}

func newMeter(t *testing.T, to string) *meter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	m := &meter{addr: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go m.forward(conn, to)
		}
	}()
	return m
}

func (m *meter) forward(conn net.Conn, to string) {
	defer func() { _ = conn.Close() }()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() { _, _ = io.Copy(server, conn) }()
	_, _ = io.Copy(io.MultiWriter(conn, m), server)
}

// Write implements io.Writer.
func (m *meter) Write(sent []byte) (int, error) {
	m.bytes.Add(int64(len(sent)))
	return len(sent), nil
}
