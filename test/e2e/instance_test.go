// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	redisName = "cache"
	// settleTime is how long anything may take to be well again; a manager that was killed holds its Lease for a minute.
	settleTime = 4 * time.Minute
)

// instance is the Redis under test: placed by the hub in both members, looked at and broken in the first.
type instance struct {
	*world
	// member is where things are broken, other the one where nothing may happen; placed are those that have the Redis.
	member, other cluster
	placed        []cluster
	namespace     string
	password      string
	// service leads to the primary, labels select the Pods.
	service string
	labels  client.MatchingLabels
	// address is the Service's, known once and for all while the API server of the member is away.
	address string
	// from is the machine on which clients run; empty is the one that the suite runs on.
	from string
	// ledgers are all writes that must be there; writers counts those who wrote.
	ledgers []ledger
	writers int
}

// place asks the hub for a Redis in both members and waits until it is ready.
func (w *world) place(t *testing.T, namespace, image string) *instance {
	t.Helper()
	return w.create(t, namespace, w.members, flotillav1.RedisSpec{Image: image, Replicas: new(int32(3))})
}

// create asks the hub for a Redis in some members, the first among them, and waits until it is ready.
func (w *world) create(t *testing.T, namespace string, placed []cluster, spec flotillav1.RedisSpec) *instance {
	t.Helper()
	r := &instance{
		world: w, member: w.members[0], other: w.members[1], placed: placed, namespace: namespace,
		service: redisName + "-primary", labels: client.MatchingLabels{flotillav1.LabelRedis: redisName},
	}
	if err := w.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatalf("creating namespace %q: %v", namespace, err)
	}
	spec.Placement = &flotillav1.Placement{}
	for _, c := range placed {
		spec.Placement.Clusters = append(spec.Placement.Clusters, c.name)
	}
	spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	desired := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: redisName}, Spec: spec}
	if err := w.hub.Create(t.Context(), desired); err != nil {
		t.Fatalf("creating Redis %q: %v", namespace, err)
	}
	r.settle(t)
	secret := &corev1.Secret{}
	r.get(t, redisName+"-auth", secret)
	r.password = string(secret.Data[flotillav1.RedisSecretKeyPassword])
	return r
}

// remove deletes the Redis and what it leaves behind on purpose.
func (r *instance) remove(t *testing.T) {
	t.Helper()
	if err := r.hub.Delete(t.Context(), r.bare()); client.IgnoreNotFound(err) != nil {
		t.Fatalf("deleting the Redis: %v", err)
	}
	eventually(t, settleTime, "the Redis is gone from the hub", func(ctx context.Context) error {
		seen, err := r.copyOf(ctx, r.hub)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && has(seen, flotillav1.ConditionRemovalHeld, metav1.ConditionTrue, "") == nil {
			// The suite deletes more in a short time than the removal budget takes for meant.
			before := seen.DeepCopy()
			metav1.SetMetaDataAnnotation(&seen.ObjectMeta, flotillav1.AnnotationConfirmRemoval, strconv.FormatInt(seen.Generation, 10))
			err = r.hub.Patch(ctx, seen, client.MergeFrom(before))
		}
		return errors.Join(errors.New("it is still there"), err)
	})
	for _, c := range []cluster{r.hub, r.member, r.other} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
		if err := c.Delete(t.Context(), namespace); client.IgnoreNotFound(err) != nil {
			t.Fatalf("deleting namespace %q: %v", r.namespace, err)
		}
	}
}

func (r *instance) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

// bare returns the Redis by name.
func (r *instance) bare() *flotillav1.Redis {
	return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: redisName}}
}

// get reads an object of the member.
func (r *instance) get(t *testing.T, name string, obj client.Object) {
	t.Helper()
	if err := r.member.Get(t.Context(), r.key(name), obj); err != nil {
		t.Fatalf("reading %T %q: %v", obj, name, err)
	}
}

// drop deletes an object of the member.
func (r *instance) drop(t *testing.T, obj client.Object, name string) {
	t.Helper()
	obj.SetNamespace(r.namespace)
	obj.SetName(name)
	if err := r.member.Delete(t.Context(), obj); err != nil {
		t.Fatalf("deleting %T %q: %v", obj, name, err)
	}
}

// dropByForce deletes a Pod of the member without waiting for its node.
func (r *instance) dropByForce(t *testing.T, pod corev1.Pod) {
	t.Helper()
	err := r.member.Delete(t.Context(), &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if err != nil {
		t.Fatalf("deleting Pod %q by force: %v", pod.Name, err)
	}
}

// ask changes the spec on the hub.
func (r *instance) ask(t *testing.T, change func(spec *flotillav1.RedisSpec)) {
	t.Helper()
	eventually(t, time.Minute, "the spec is changed on the hub", func(ctx context.Context) error {
		seen := r.bare()
		if err := r.hub.Get(ctx, client.ObjectKeyFromObject(seen), seen); err != nil {
			return err
		}
		before := seen.DeepCopy()
		change(&seen.Spec)
		return r.hub.Patch(ctx, seen, client.MergeFrom(before))
	})
}

// copyOf reads the Redis in a member.
func (r *instance) copyOf(ctx context.Context, c cluster) (*flotillav1.Redis, error) {
	seen := r.bare()
	return seen, c.Get(ctx, client.ObjectKeyFromObject(seen), seen)
}

// pods reads the Pods of the Redis in a member, by name.
func (r *instance) pods(ctx context.Context, c cluster) (map[string]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(r.namespace), r.labels); err != nil {
		return nil, err
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod
	}
	return pods, nil
}

// identities tells which Pods run and how often their containers were started, to see whether anything has touched them.
func (r *instance) identities(t *testing.T, c cluster) map[string]string {
	t.Helper()
	pods, err := r.pods(t.Context(), c)
	if err != nil {
		t.Fatalf("listing the Pods in %q: %v", c.name, err)
	}
	identities := map[string]string{}
	for name, pod := range pods {
		identities[name] = string(pod.UID)
		for _, status := range pod.Status.ContainerStatuses {
			identities[name] += fmt.Sprintf(" restarted %d times", status.RestartCount)
		}
	}
	return identities
}

// untouched tells which of these Pods is another one now, or was started again.
func (r *instance) untouched(t *testing.T, c cluster, before map[string]string) error {
	t.Helper()
	now := r.identities(t, c)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] {
			return fmt.Errorf("%s in %s was touched: it was %s and is %s", name, c.name, before[name], now[name])
		}
	}
	return nil
}

func (r *instance) mustBeUntouched(t *testing.T, c cluster, before map[string]string) {
	t.Helper()
	if err := r.untouched(t, c, before); err != nil {
		t.Error(err)
	}
}

func podReady(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// allReady tells whether a member has as many Pods as it should, all Ready.
func (r *instance) allReady(ctx context.Context, c cluster, replicas int) error {
	pods, err := r.pods(ctx, c)
	if err != nil {
		return err
	}
	for name, pod := range pods {
		if !podReady(pod) {
			return fmt.Errorf("pod %s is not Ready", name)
		}
	}
	if len(pods) != replicas {
		return fmt.Errorf("there are %d Pods of %d", len(pods), replicas)
	}
	return nil
}

// settle waits until everything is as the spec on the hub says, in the members and in what the hub says of them.
func (r *instance) settle(t *testing.T) {
	t.Helper()
	eventually(t, settleTime, "the Redis is settled", func(ctx context.Context) error {
		seen, err := r.copyOf(ctx, r.hub)
		if err != nil {
			return err
		}
		if err := isTrue(seen, flotillav1.ConditionFullyReady); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
		for _, c := range r.placed {
			placed, err := r.copyOf(ctx, c)
			if err != nil {
				return err
			}
			if placed.Spec.Image != seen.Spec.Image || *placed.Spec.Replicas != *seen.Spec.Replicas {
				return fmt.Errorf("%s: the copy is not up to date", c.name)
			}
			if err := isTrue(placed, flotillav1.ConditionReady); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if err := isTrue(placed, flotillav1.ConditionConfigApplied); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if err := r.allReady(ctx, c, int(*seen.Spec.Replicas)); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
}

// isTrue tells why a condition of the current generation is not True.
func isTrue(seen *flotillav1.Redis, conditionType string) error {
	condition := apimeta.FindStatusCondition(seen.Status.Conditions, conditionType)
	if condition == nil || seen.Status.ObservedGeneration != seen.Generation {
		return fmt.Errorf("%s at generation %d is not known yet", conditionType, seen.Generation)
	}
	if condition.Status != metav1.ConditionTrue {
		return fmt.Errorf("%s is %s (%s): %s", conditionType, condition.Status, condition.Reason, condition.Message)
	}
	return nil
}

// awaitCondition waits for a condition of the Redis in the member.
func (r *instance) awaitCondition(t *testing.T, conditionType string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	r.awaitConditionIn(t, r.member, conditionType, status, reason)
}

func (r *instance) awaitConditionIn(t *testing.T, c cluster, conditionType string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, settleTime, fmt.Sprintf("%s in %s becomes %s %s", conditionType, c.name, status, reason), func(ctx context.Context) error {
		seen, err := r.copyOf(ctx, c)
		if err != nil {
			return err
		}
		return has(seen, conditionType, status, reason)
	})
}

// has tells what else a condition is.
func has(seen *flotillav1.Redis, conditionType string, status metav1.ConditionStatus, reason string) error {
	condition := apimeta.FindStatusCondition(seen.Status.Conditions, conditionType)
	if condition == nil || condition.Status != status || (reason != "" && condition.Reason != reason) {
		return fmt.Errorf("%s is %+v", conditionType, condition)
	}
	return nil
}

// dialPrimary connects through the Service of the primary, as a client of the team would.
func (r *instance) dialPrimary() *redis.Client {
	return r.dial(func(ctx context.Context) (net.Conn, error) {
		if !r.ours() {
			return forward(r.member, r.namespace, redisName+"-0", redisPort)
		}
		address, err := r.address, error(nil)
		if address == "" {
			address, err = r.serviceAddress(ctx)
		}
		if err != nil {
			return nil, err
		}
		address = net.JoinHostPort(address, fmt.Sprint(redisPort))
		if r.from != "" {
			return r.dialFrom(ctx, r.from, address)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
}

func (r *instance) serviceAddress(ctx context.Context) (string, error) {
	var service corev1.Service
	err := r.member.Get(ctx, r.key(r.service), &service)
	return service.Spec.ClusterIP, err
}

// dialPod connects to the server of one Pod.
func (r *instance) dialPod(pod corev1.Pod) *redis.Client { return r.dialPort(pod, redisPort) }

func (r *instance) dialPort(pod corev1.Pod, port int) *redis.Client {
	return r.dial(func(ctx context.Context) (net.Conn, error) {
		if !r.ours() {
			return forward(r.member, pod.Namespace, pod.Name, port)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
	})
}

func (r *instance) dial(connect func(ctx context.Context) (net.Conn, error)) *redis.Client {
	return redis.NewClient(&redis.Options{
		Dialer:   func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx) },
		Password: r.password,
		PoolSize: 1,
		// The writer repeats by itself, and wants to know.
		MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second, PoolTimeout: 4 * time.Second,
		ContextTimeoutEnabled: true, DisableIdentity: true,
	})
}

// lost counts the acknowledged writes that a Pod does not have. Replicas may be behind for a moment.
func (r *instance) lost(t *testing.T, pod corev1.Pod, patience time.Duration) int {
	t.Helper()
	c := r.dialPod(pod)
	defer func() { _ = c.Close() }()
	deadline := time.Now().Add(patience)
	for {
		lost, err := 0, error(nil)
		for _, l := range r.ledgers {
			var missing int
			if missing, err = l.missing(t.Context(), c); err != nil {
				break
			}
			lost += missing
		}
		if err == nil && lost == 0 {
			return 0
		}
		if time.Now().After(deadline) {
			if err != nil {
				t.Fatalf("checking the writes on %s: %v", pod.Name, err)
			}
			return lost
		}
	}
}

// mustBe fails the test unless every server says so of itself.
func (r *instance) mustBe(t *testing.T, what string) {
	t.Helper()
	pods, err := r.pods(t.Context(), r.member)
	if err != nil {
		t.Fatalf("listing the Pods: %v", err)
	}
	for name, pod := range pods {
		c := r.dialPod(pod)
		if info, err := c.Info(t.Context(), "server").Result(); err != nil || !strings.Contains(info, what) {
			t.Errorf("%s says of itself (%v):\n%s\nwhich lacks %s", name, err, info, what)
		}
		_ = c.Close()
	}
}

// check counts what was lost of everything ever acknowledged: on the primary, and whether every replica agrees with it.
func (r *instance) check(t *testing.T) int {
	t.Helper()
	pods, err := r.pods(t.Context(), r.member)
	if err != nil {
		t.Fatalf("listing the Pods: %v", err)
	}
	lost := r.lost(t, pods[redisName+"-0"], 10*time.Second)
	for name, pod := range pods {
		if missing := r.lost(t, pod, 30*time.Second); missing != lost {
			t.Errorf("%s lacks %d acknowledged writes and the primary %d", name, missing, lost)
		}
	}
	return lost
}

// forget says that what was written so far is gone for good.
func (r *instance) forget() { r.ledgers = nil }
