// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ago returns a time in the past, to the second.
func ago(d time.Duration) metav1.Time {
	return metav1.NewTime(time.Now().Add(-d).Truncate(time.Second))
}

// condition returns a condition that changed some time ago.
func condition(kind string, status metav1.ConditionStatus, reason, message string, since time.Duration) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(since), ObservedGeneration: 1}
}

// joined are the conditions of a member that is ready.
func joined(since time.Duration) []metav1.Condition {
	return []metav1.Condition{
		condition(flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonConnected, "The member is engaged", since),
		condition(flotillav1.ConditionCredentialsAccepted, metav1.ConditionTrue, flotillav1.ReasonAccepted, "The credential in the registration is in use", since),
		condition(flotillav1.ConditionReachable, metav1.ConditionTrue, flotillav1.ReasonProbeSucceeded, "The API server answers", since),
		condition(flotillav1.ConditionAPIsServed, metav1.ConditionTrue, flotillav1.ReasonAllServed, "All kinds are served", since),
		condition(flotillav1.ConditionClaimed, metav1.ConditionTrue, flotillav1.ReasonHeld, "This hub holds the claim", since),
		condition(flotillav1.ConditionCachesSynced, metav1.ConditionTrue, flotillav1.ReasonSynced, "The caches are filled", since),
	}
}

// not makes conditions those of a member that is not ready because of one of them.
func not(conditions []metav1.Condition, kind, reason, message string, since time.Duration) []metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == kind || conditions[i].Type == flotillav1.ConditionReady {
			conditions[i] = condition(conditions[i].Type, metav1.ConditionFalse, reason, message, since)
		}
	}
	return conditions
}

// status returns the status of a member.
func status(uid string, conditions []metav1.Condition) flotillav1.MemberClusterStatus {
	return flotillav1.MemberClusterStatus{
		Conditions: conditions, ObservedGeneration: 1, UID: uid, KubernetesVersion: "v1.36.2", Endpoint: "10.20.0.1:6443",
		Credentials: &flotillav1.CredentialStatus{Kind: "Token", ExpirationTime: new(ago(-90 * 24 * time.Hour))},
		Summary: &flotillav1.MemberClusterSummary{
			Redises: flotillav1.ObjectCounts{Total: 12, Ready: 12}, NodePools: flotillav1.ObjectCounts{Total: 3, Ready: 3}, Nodes: flotillav1.ObjectCounts{Total: 24, Ready: 24},
		},
	}
}

// addMember makes a member with a status.
func addMember(ctx context.Context, to *testenv.Cluster, name string, labels map[string]string, status flotillav1.MemberClusterStatus) error {
	object := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: flotillav1.RegistrationNamespace, Name: name}},
	}
	if err := to.Client.Create(ctx, object); err != nil {
		return err
	}
	object.Status = status
	return to.Client.Status().Update(ctx, object)
}

// setReady changes the status of a member as the manager does when it stops answering, or answers again.
func setReady(t *testing.T, on *testenv.Cluster, name string, ready bool) {
	t.Helper()
	must(t, changeReady(on, name, ready))
}

func changeReady(on *testenv.Cluster, name string, ready bool) error {
	object := &flotillav1.MemberCluster{}
	if err := on.Client.Get(context.Background(), client.ObjectKey{Name: name}, object); err != nil {
		return err
	}
	object.Status.Conditions = joined(time.Hour)
	if !ready {
		object.Status.Conditions = not(joined(time.Hour), flotillav1.ConditionReachable, flotillav1.ReasonTimeout, "The API server does not answer within 5s", 0)
	}
	return on.Client.Status().Update(context.Background(), object)
}

// atOnce calls a function for each number below n, several at a time.
func atOnce(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var group sync.WaitGroup
	next, failed := make(chan int), make(chan error, n)
	for range 16 {
		group.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
}

// The size of the large fleet.
const (
	manyMembers = 1000
	manyObjects = 100
)

// thousand makes a thousand members and a hundred objects that are placed in all of them, once.
func thousand(t *testing.T) {
	t.Helper()
	thousandOnce.Do(func() { makeThousand(t) })
}

var thousandOnce sync.Once

func makeThousand(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	names := make([]string, manyMembers)
	for i := range names {
		names[i] = fmt.Sprintf("member-%04d", i)
	}
	regions := []string{"ap", "eu", "sa", "us"}
	atOnce(t, manyMembers, func(i int) error {
		conditions := joined(time.Duration(i+1) * time.Minute)
		switch {
		case i%97 == 13:
			conditions = not(conditions, flotillav1.ConditionReachable, flotillav1.ReasonTimeout, "The API server does not answer within 5s", time.Duration(i)*time.Second)
		case i%211 == 17:
			conditions = not(conditions, flotillav1.ConditionCredentialsAccepted, flotillav1.ReasonUnauthorized, "The member refuses the credential", time.Hour)
		}
		is := status(fmt.Sprint("uid-", i), conditions)
		if i%41 == 7 {
			is.Summary.Redises.Ready = 10
		}
		return addMember(ctx, large, names[i], map[string]string{"region": regions[i%len(regions)], "tier": []string{"gold", "silver"}[i%2]}, is)
	})
	must(t, client.IgnoreAlreadyExists(large.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})))
	atOnce(t, manyObjects, func(i int) error {
		redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("cache-%02d", i)}, Spec: flotillav1.RedisSpec{Placement: &flotillav1.Placement{All: true}}}
		if err := large.Client.Create(ctx, redis); err != nil {
			return err
		}
		redis.Status.PlacedIn = names
		redis.Status.ClusterCounts = &flotillav1.ClusterCounts{Desired: manyMembers, Applied: manyMembers, Ready: manyMembers - 10, NotReady: 10}
		redis.Status.ClustersOmitted = manyMembers - 100
		redis.Status.ObservedGeneration = 1
		redis.Status.Conditions = []metav1.Condition{
			condition(flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonClustersNotReady, "10 clusters are not ready", time.Hour),
			condition(flotillav1.ConditionProgressing, metav1.ConditionFalse, flotillav1.ReasonSettled, "No change is in progress", time.Hour),
		}
		for j := range 100 {
			entry := flotillav1.RedisClusterStatus{ClusterStatus: flotillav1.ClusterStatus{Name: names[j*10], Ready: metav1.ConditionTrue, Since: new(ago(time.Hour)), ObservedGeneration: 1}}
			if j < 10 {
				entry.Ready, entry.Reason, entry.Message = metav1.ConditionFalse, "ImageUnavailable", "Pod cache-0: back-off pulling image \"redis:8.9\""
			}
			redis.Status.Clusters = append(redis.Status.Clusters, entry)
		}
		return large.Client.Status().Update(ctx, redis)
	})
}

// story makes a small fleet in which something of everything goes on. eu-1 is a cluster that exists.
func story(t *testing.T) {
	t.Helper()
	storyOnce.Do(func() { makeStory(t) })
}

var storyOnce sync.Once

func makeStory(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	for _, on := range []*testenv.Cluster{hub, member} {
		must(t, client.IgnoreAlreadyExists(on.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})))
	}
	system := &corev1.Namespace{}
	must(t, member.Client.Get(ctx, client.ObjectKey{Name: "kube-system"}, system))
	names := storyMembers(t, string(system.UID))
	storyObjects(t, names)
	storyCopy(t)
	storyEvents(t)
}

// storyMembers makes the members of the story, and returns their names.
func storyMembers(t *testing.T, uid string) []string {
	t.Helper()
	ctx := context.Background()
	var names []string
	for i := range 48 {
		region := []string{"eu", "us", "ap"}[i%3]
		name := fmt.Sprintf("%s-%d", region, i/3+1)
		is := status(fmt.Sprint("uid-", i), joined(time.Duration(i+3)*37*time.Minute))
		switch name {
		case "eu-1":
			is.UID = uid
		case "us-3", "us-4":
			is.Conditions = not(is.Conditions, flotillav1.ConditionReachable, flotillav1.ReasonTimeout, "The API server does not answer within 5s", 17*time.Minute)
		case "ap-2":
			is.Conditions = not(is.Conditions, flotillav1.ConditionCredentialsAccepted, flotillav1.ReasonUnauthorized, "The member refuses the credential: the token is not valid any more", 3*time.Hour)
			is.Conditions = append(is.Conditions, condition(flotillav1.ConditionStalled, metav1.ConditionTrue, flotillav1.ReasonUnauthorized, "Give the hub a new credential: kubectl flotilla rotate ap-2", 3*time.Hour))
		case "eu-7":
			is.Conditions = not(is.Conditions, flotillav1.ConditionAPIsServed, flotillav1.ReasonCRDMissing, "The CRDs of Flotilla are missing; apply config/member", 26*time.Hour)
		case "ap-5":
			is.Conditions[1] = condition(flotillav1.ConditionCredentialsAccepted, metav1.ConditionTrue, flotillav1.ReasonExpiresSoon, "The credential expires in 5 days", 2*time.Hour)
			is.Credentials.ExpirationTime = new(ago(-5 * 24 * time.Hour))
		case "us-9":
			is.Conditions = nil
		case "eu-4":
			is.Summary.Redises.Ready, is.Summary.Nodes.Ready = 10, 22
			is.Attention = []flotillav1.Attention{
				{Kind: "Redis", Namespace: "lab", Name: "sessions", Reason: "Unschedulable", Since: new(ago(90 * time.Minute))},
				{Kind: "Redis", Namespace: "lab", Name: "queue", Reason: "VolumesPending", Since: new(ago(80 * time.Minute))},
			}
		}
		labels := map[string]string{"region": region, "tier": []string{"gold", "silver", "bronze"}[i%5%3]}
		must(t, addMember(ctx, hub, name, labels, is))
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// storyObjects makes the objects of the story.
func storyObjects(t *testing.T, names []string) {
	t.Helper()
	ctx := context.Background()
	entry := func(name string, ready metav1.ConditionStatus, reason, message string, since time.Duration, generation int64) flotillav1.RedisClusterStatus {
		return flotillav1.RedisClusterStatus{ClusterStatus: flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: reason, Message: message, Since: new(ago(since)), ObservedGeneration: generation}}
	}
	add := func(name string, placement *flotillav1.Placement, fill func(redis *flotillav1.Redis)) {
		redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1}, Spec: flotillav1.RedisSpec{Placement: placement, Replicas: new(int32(3))}}
		must(t, hub.Client.Create(ctx, redis))
		redis.Status.PlacedIn, redis.Status.ObservedGeneration = names, redis.Generation
		well := int32(len(names))
		redis.Status.ClusterCounts = &flotillav1.ClusterCounts{Desired: well, Applied: well, Ready: well}
		redis.Status.Conditions = []metav1.Condition{
			condition(flotillav1.ConditionReady, metav1.ConditionTrue, flotillav1.ReasonAllReady, "All clusters are ready", 30*time.Hour),
			condition(flotillav1.ConditionFullyReady, metav1.ConditionTrue, flotillav1.ReasonAllReady, "All clusters are ready", 30*time.Hour),
			condition(flotillav1.ConditionPlaced, metav1.ConditionTrue, flotillav1.ReasonAllPlaced, "All clusters have the copy", 30*time.Hour),
			condition(flotillav1.ConditionClustersReachable, metav1.ConditionTrue, flotillav1.ReasonAllReachable, "All clusters can be observed", 30*time.Hour),
			condition(flotillav1.ConditionProgressing, metav1.ConditionFalse, flotillav1.ReasonSettled, "No change is in progress", 30*time.Hour),
		}
		for _, name := range names {
			redis.Status.Clusters = append(redis.Status.Clusters, entry(name, metav1.ConditionTrue, "", "", 30*time.Hour, redis.Generation))
		}
		if fill != nil {
			fill(redis)
		}
		must(t, hub.Client.Status().Update(ctx, redis))
	}
	override := []flotillav1.Override{
		{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "ap"}}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas": 5}`)}},
		{Clusters: []string{"eu-1"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"image": "redis:8.4"}`)}},
	}
	add("cache", &flotillav1.Placement{All: true, Overrides: override}, func(redis *flotillav1.Redis) { halt(redis, names, entry) })
	add("sessions", &flotillav1.Placement{All: true}, func(redis *flotillav1.Redis) {
		for i := range redis.Status.Clusters {
			if name := redis.Status.Clusters[i].Name; name == "us-3" || name == "us-4" {
				redis.Status.Clusters[i] = entry(name, metav1.ConditionUnknown, flotillav1.ReasonClusterUnreachable, "The API server does not answer within 5s", 17*time.Minute, 1)
			}
		}
		redis.Status.ClusterCounts.Ready, redis.Status.ClusterCounts.Unknown = int32(len(names)-2), 2
		redis.Status.Conditions[1] = condition(flotillav1.ConditionFullyReady, metav1.ConditionFalse, flotillav1.ReasonClustersUnknown, "us-3 and us-4 cannot be observed", 17*time.Minute)
		redis.Status.Conditions[3] = condition(flotillav1.ConditionClustersReachable, metav1.ConditionFalse, flotillav1.ReasonClustersUnknown, "us-3 and us-4 cannot be observed", 17*time.Minute)
	})
	for _, name := range []string{"carts", "features", "limits", "queue"} {
		add(name, &flotillav1.Placement{All: true}, nil)
	}
}

// halt makes the status of an object that of a rollout that has halted.
func halt(redis *flotillav1.Redis, names []string, entry func(string, metav1.ConditionStatus, string, string, time.Duration, int64) flotillav1.RedisClusterStatus) {
	failed := []string{"ap-1", "ap-3", "eu-1"}
	for i := range redis.Status.Clusters {
		name := redis.Status.Clusters[i].Name
		switch {
		case slices.Contains(failed, name):
			redis.Status.Clusters[i] = entry(name, metav1.ConditionFalse, "ImageUnavailable", "Pod cache-2: back-off pulling image \"redis:8.9\": not found", 41*time.Minute, redis.Generation)
		case name == "us-3" || name == "us-4":
			redis.Status.Clusters[i] = entry(name, metav1.ConditionUnknown, flotillav1.ReasonClusterUnreachable, "The API server does not answer within 5s", 17*time.Minute, 0)
		case i > 14:
			redis.Status.Clusters[i] = entry(name, metav1.ConditionTrue, "", "", 30*time.Hour, 0)
		}
	}
	redis.Status.Trials = []flotillav1.Trial{{SpecHash: "5f1d", Since: metav1.NewMicroTime(time.Now().Add(-55 * time.Minute)), Clusters: failed}}
	redis.Status.Rollout = &flotillav1.RolloutStatus{Done: 12, Failed: 3, Waiting: 31}
	redis.Status.ClusterCounts.Ready, redis.Status.ClusterCounts.NotReady, redis.Status.ClusterCounts.Unknown = int32(len(names)-5), 3, 2
	redis.Status.Conditions[0] = condition(flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonClustersNotReady, "Not ready in ap-1, ap-3, eu-1", 41*time.Minute)
	redis.Status.Conditions[1] = condition(flotillav1.ConditionFullyReady, metav1.ConditionFalse, flotillav1.ReasonClustersNotReady, "Not ready in ap-1, ap-3, eu-1", 41*time.Minute)
	redis.Status.Conditions[4] = condition(flotillav1.ConditionProgressing, metav1.ConditionFalse, flotillav1.ReasonRolloutHalted, "3 clusters failed: ap-1, ap-3, eu-1", 25*time.Minute)
	redis.Status.Conditions = append(redis.Status.Conditions, condition(flotillav1.ConditionStalled, metav1.ConditionTrue, flotillav1.ReasonRolloutHalted, "3 clusters failed: ap-1, ap-3, eu-1", 25*time.Minute))
}

// storyCopy makes what eu-1 has of shop/cache: somebody there scaled it down, and the image of a Pod cannot be pulled.
func storyCopy(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache"}, Spec: flotillav1.RedisSpec{Image: "redis:8.4", Replicas: new(int32(2))}}
	must(t, member.Client.Create(ctx, redis))
	redis.Status.Conditions = []metav1.Condition{condition(flotillav1.ConditionReady, metav1.ConditionFalse, "ImageUnavailable", "Pod cache-2: back-off pulling image \"redis:8.9\": not found", 41*time.Minute)}
	must(t, member.Client.Status().Update(ctx, redis))

	labels := map[string]string{flotillav1.LabelRedis: "cache"}
	containers := []corev1.Container{{Name: "redis", Image: "redis:8.9"}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: containers}},
	}}
	must(t, member.Client.Create(ctx, set))
	set.Status.Replicas, set.Status.ReadyReplicas = 3, 2
	must(t, member.Client.Status().Update(ctx, set))
	for i := range 3 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}}
		must(t, member.Client.Create(ctx, node))
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: ago(30 * time.Hour)}}
		must(t, member.Client.Status().Update(ctx, node))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("cache-", i), Labels: labels}, Spec: corev1.PodSpec{NodeName: node.Name, Containers: containers}}
		must(t, member.Client.Create(ctx, pod))
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(30 * time.Hour)}
		pod.Status.Phase = corev1.PodRunning
		if i == 2 {
			pod.Status.Phase, ready.Status, ready.LastTransitionTime = corev1.PodPending, corev1.ConditionFalse, ago(41*time.Minute)
			waiting := &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "back-off pulling image \"redis:8.9\": not found"}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "redis", State: corev1.ContainerState{Waiting: waiting}}}
		}
		pod.Status.Conditions = []corev1.PodCondition{ready}
		must(t, member.Client.Status().Update(ctx, pod))
	}
}

// storyEvents makes the events of the story, and the Lease of a manager.
func storyEvents(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	add := func(i int, kind, namespace, name, reason, note string, since time.Duration) {
		in := namespace
		if in == "" {
			in = metav1.NamespaceDefault
		}
		must(t, hub.Client.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: fmt.Sprintf("event-%d", i)}, EventTime: metav1.NewMicroTime(time.Now().Add(-since)),
			ReportingController: "flotilla", ReportingInstance: "manager", Action: "Reconcile", Reason: reason, Note: note, Type: corev1.EventTypeWarning,
			Regarding: corev1.ObjectReference{APIVersion: flotillav1.GroupVersion.String(), Kind: kind, Namespace: namespace, Name: name},
		}))
	}
	add(1, "MemberCluster", "", "us-3", "Unreachable", "The API server does not answer within 5s", 17*time.Minute)
	add(2, "MemberCluster", "", "us-4", "Unreachable", "The API server does not answer within 5s", 17*time.Minute)
	add(3, "MemberCluster", "", "ap-2", "Unauthorized", "The member refuses the credential: the token is not valid any more", 3*time.Hour)
	add(4, "Redis", "shop", "cache", "RolloutHalted", "3 clusters failed: ap-1, ap-3, eu-1", 25*time.Minute)
	for i := range 5 {
		add(10+i, "Redis", "shop", "cache", "ImageUnavailable", "eu-1: Pod cache-2: back-off pulling image \"redis:8.9\": not found", time.Duration(26+i)*time.Minute)
	}
}
