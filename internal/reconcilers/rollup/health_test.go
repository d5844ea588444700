// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// phases goes through the life of a hub object, with the status that GitOps tools compute for it.
type phases struct {
	*fixture
	hubObject, placed fleet.Object
	// place sets the clusters, change changes the spec in another way, and ready makes a copy report.
	place  func(*flotillav1.Placement)
	change func()
	ready  func(copied fleet.Object, status metav1.ConditionStatus)
}

func (p *phases) want(phase string, want testenv.Health) {
	p.t.Helper()
	p.read(p.hub, p.hubObject)
	got, err := testenv.HealthOf(p.hubObject)
	if err != nil {
		p.t.Fatal(err)
	}
	if got != want {
		p.t.Errorf("%s: health %s, want %s; conditions %+v", phase, got, want, *p.hubObject.GetConditions())
	}
}

func (p *phases) report(status metav1.ConditionStatus) {
	p.t.Helper()
	p.read(p.member, p.placed)
	before := p.placed.DeepCopyObject().(client.Object)
	p.ready(p.placed, status)
	if err := p.member.Status().Patch(context.Background(), p.placed, client.MergeFrom(before)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *phases) run() {
	p.t.Helper()
	p.want("nobody has looked at it", testenv.InProgress)
	p.settle(p.hubObject)
	p.want("no placement, which only a person can give it", testenv.Failed)
	p.place(&flotillav1.Placement{Clusters: []string{eu1}})
	p.want("a new spec that nobody has looked at", testenv.InProgress)
	p.settle(p.hubObject)
	p.want("the copy is not there", testenv.InProgress)
	p.fixture.place(p.hubObject, p.placed)
	if got, err := testenv.HealthOf(p.placed); err != nil || got != testenv.InProgress {
		p.t.Errorf("a copy that nobody has looked at: health %s, %v", got, err)
	}
	p.settle(p.hubObject)
	p.want("the copy has not been looked at", testenv.InProgress)
	p.report(metav1.ConditionFalse)
	p.settle(p.hubObject)
	p.want("the copy is not ready", testenv.InProgress)
	p.report(metav1.ConditionTrue)
	p.settle(p.hubObject)
	p.want("all is well", testenv.Current)
	p.change()
	p.want("a change that nobody has looked at", testenv.InProgress)
	p.settle(p.hubObject)
	p.want("a change that the copy does not have", testenv.InProgress)
	p.fixture.place(p.hubObject, p.placed)
	p.settle(p.hubObject)
	p.want("a change that the member has not looked at", testenv.InProgress)
	p.report(metav1.ConditionTrue)
	p.settle(p.hubObject)
	p.want("the change is done", testenv.Current)
	p.directory.Set(snapshotOf(eu1, clusters.StateUnreachable, true))
	p.settle(p.hubObject)
	p.want("the only cluster cannot be seen", testenv.InProgress)
	p.directory.Set(snapshotOf(eu1, clusters.StateReady, true))
	p.settle(p.hubObject)
	p.want("it can be seen again", testenv.Current)
	if err := p.hub.Delete(context.Background(), p.hubObject); err != nil {
		p.t.Fatal(err)
	}
	p.clock.Step(2 * time.Second)
	p.pass(p.hubObject)
	p.want("being deleted", testenv.Terminating)
	p.hubObject.SetFinalizers(nil)
	if err := p.hub.Update(context.Background(), p.hubObject); err != nil {
		p.t.Fatal(err)
	}
}

func TestReconcile_Redis_in_every_phase_is_what_GitOps_tools_take_it_for(t *testing.T) {
	f := newFixture(t, redisKind)
	namespace := hubServer.Namespace(t)
	f.create(f.member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	hubObject := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache", Finalizers: []string{"example.com/test"}}}
	f.create(f.hub, hubObject)
	p := &phases{fixture: f, hubObject: hubObject, placed: &flotillav1.Redis{}}
	p.place = func(placement *flotillav1.Placement) {
		spec(f, f.hub, hubObject, func(r *flotillav1.Redis) { r.Spec.Placement = placement })
	}
	p.change = func() {
		spec(f, f.hub, hubObject, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(5)) })
		spec(f, f.member, p.placed.(*flotillav1.Redis), func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(5)) })
	}
	p.ready = func(copied fleet.Object, status metav1.ConditionStatus) {
		redis := copied.(*flotillav1.Redis)
		redis.Status.ObservedGeneration = redis.Generation
		redis.Status.Conditions = ready(status, flotillav1.ReasonReplicasNotReady, "")
	}
	p.run()
}

func TestReconcile_NodePool_in_every_phase_is_what_GitOps_tools_take_it_for(t *testing.T) {
	f := newFixture(t, nodePoolKind)
	hubObject := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: hubServer.Namespace(t), Finalizers: []string{"example.com/test"}}}
	f.create(f.hub, hubObject)
	p := &phases{fixture: f, hubObject: hubObject, placed: &flotillav1.NodePool{}}
	p.place = func(placement *flotillav1.Placement) {
		spec(f, f.hub, hubObject, func(r *flotillav1.NodePool) { r.Spec.Placement = placement })
	}
	p.change = func() {
		labels := map[string]flotillav1.LabelValue{"example.com/team": "web"}
		spec(f, f.hub, hubObject, func(r *flotillav1.NodePool) { r.Spec.Labels = labels })
		spec(f, f.member, p.placed.(*flotillav1.NodePool), func(r *flotillav1.NodePool) { r.Spec.Labels = labels })
	}
	p.ready = func(copied fleet.Object, status metav1.ConditionStatus) {
		pool := copied.(*flotillav1.NodePool)
		pool.Status.ObservedGeneration = pool.Generation
		pool.Status.Conditions = ready(status, flotillav1.ReasonNodesNotReady, "")
	}
	p.run()
}

func TestMemberCluster_that_nobody_has_looked_at_is_not_taken_for_done(t *testing.T) {
	f := newFixture(t, redisKind)
	memberCluster := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: hubServer.Namespace(t)},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: "new"}},
	}
	f.create(f.hub, memberCluster)
	if got, err := testenv.HealthOf(memberCluster); err != nil || got != testenv.InProgress {
		t.Errorf("health %s, %v", got, err)
	}
}
