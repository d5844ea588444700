// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestWaves_adoption_changes_one_cluster_first covers running objects of members that become copies.
func TestWaves_adoption_changes_one_cluster_first(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := &flotillav1.Redis{}
	redis.Namespace, redis.Name = hubServer.Namespace(t), "cache"
	for _, name := range f.names {
		own := copyOf(redis)
		own.Annotations = map[string]string{flotillav1.AnnotationAdoptBy: hubID}
		own.Spec.Image, own.Spec.Replicas = good, new(int32(3))
		member := apart{f.member, name}
		f.create(member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: redis.Namespace}})
		f.create(member, own)
		f.become(redis, metav1.ConditionTrue, name)
	}
	redis.Spec.Image, redis.Spec.Replicas = bad, new(int32(3))
	redis.Spec.Placement = &flotillav1.Placement{ClusterSelector: selectEU(), ConflictPolicy: flotillav1.ConflictPolicyAdopt}
	f.create(f.hub, redis)
	f.run(redis)
	f.wantImage(redis, bad, "m-1")
	if adopted := f.with(redis, ours); len(adopted) != 4 {
		t.Errorf("only %v are copies", adopted)
	}
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.wantImage(redis, bad, "m-1", "m-2")
}
