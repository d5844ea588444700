// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// leave is an override that leaves fields of the copy in eu-1 to the member.
func leave(fields ...string) []flotillav1.Override {
	return []flotillav1.Override{{Clusters: []string{eu1}, LeaveToMember: fields}}
}

// manifest is a Redis with overrides as a person writes it.
func manifest(t *testing.T, redis *flotillav1.Redis, overrides string) []byte {
	t.Helper()
	return fmt.Appendf(nil, `{"apiVersion":"flotilla.dev/v1alpha1","kind":"Redis","metadata":{"namespace":%q,"name":%q},
		"spec":{"replicas":5,"image":"redis:7.0","placement":{"clusterSelector":{"matchLabels":{"region":"eu"}},"overrides":%s}}}`,
		redis.Namespace, redis.Name, overrides)
}

// kubectl runs the real kubectl against the hub, with a manifest as its input.
func kubectl(t *testing.T, stdin []byte, args ...string) (string, error) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, hubServer.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Binary(t, "kubectl"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// wantHandedOver expects the present values in the copy although placement does not apply these fields, and that the member
// may change them.
func (f *fixture) wantHandedOver(redis *flotillav1.Redis) {
	f.t.Helper()
	f.settle(redis)
	f.wantOutcome(redis, "")
	placed := copyOf(redis)
	f.get(f.member, placed)
	if *placed.Spec.Replicas != 5 || placed.Spec.Image != "redis:7.0" {
		f.t.Fatalf("a field that was handed over has another value: %d replicas, image %s", *placed.Spec.Replicas, placed.Spec.Image)
	}
	if f.owns(placed, "replicas") || f.owns(placed, "image") || !f.owns(placed, "port") {
		f.t.Errorf("placement owns other fields than it should: %s", placed.ManagedFields)
	}
	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(7)) })
	f.wantNoWrites(redis)
}

// owns reports whether placement applies a field.
func (f *fixture) owns(placed *flotillav1.Redis, field string) bool {
	return slices.ContainsFunc(placed.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == string(FieldOwner) && entry.Operation == "Apply" && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+field+`"`)
	})
}

func TestReconcile_an_override_gives_fields_up_whichever_client_writes_it(t *testing.T) {
	const overrides = `[{"clusters":["eu-1"],"leaveToMember":["replicas","image"]}]`
	apply := func(args ...string) func(*testing.T, *fixture, *flotillav1.Redis) {
		return func(t *testing.T, _ *fixture, redis *flotillav1.Redis) {
			if out, err := kubectl(t, manifest(t, redis, overrides), append([]string{"apply", "-f", "-"}, args...)...); err != nil {
				t.Fatal(out)
			}
		}
	}
	for name, write := range map[string]func(*testing.T, *fixture, *flotillav1.Redis){
		"kubectl apply":               apply(),
		"kubectl apply --server-side": apply("--server-side", "--force-conflicts"),
		"kubectl replace": func(t *testing.T, _ *fixture, redis *flotillav1.Redis) {
			if out, err := kubectl(t, manifest(t, redis, overrides), "replace", "-f", "-"); err != nil {
				t.Fatal(out)
			}
		},
		"a merge patch": func(t *testing.T, f *fixture, redis *flotillav1.Redis) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"placement":{"overrides":`+overrides+`}}}`))
			if err := f.hub.Patch(t.Context(), redis, patch); err != nil {
				t.Fatal(err)
			}
		},
		"an update": func(t *testing.T, f *fixture, redis *flotillav1.Redis) {
			f.get(f.hub, redis)
			redis.Spec.Placement.Overrides = leave("replicas", "image")
			if err := f.hub.Update(t.Context(), redis); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fleet.Redis)
			redis := &flotillav1.Redis{}
			redis.Namespace, redis.Name = hubServer.Namespace(t), "cache"
			if out, err := kubectl(t, manifest(t, redis, "[]"), "apply", "-f", "-"); err != nil {
				t.Fatal(out)
			}
			f.settle(redis)
			write(t, f, redis)
			f.wantHandedOver(redis)
		})
	}
}

func TestReconcile_a_new_copy_has_the_members_default_of_what_is_left_to_it(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := &flotillav1.Redis{}
	redis.Namespace, redis.Name = hubServer.Namespace(t), "cache"
	if out, err := kubectl(t, manifest(t, redis, `[{"clusters":["eu-1"],"leaveToMember":["replicas","image"]}]`), "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	f.settle(redis)
	placed := copyOf(redis)
	f.get(f.member, placed)
	if *placed.Spec.Replicas != 1 || f.owns(placed, "replicas") || placed.Annotations[flotillav1.AnnotationLeftToMember] != "image,replicas" {
		t.Errorf("%d replicas, annotations %v", *placed.Spec.Replicas, placed.Annotations)
	}
	f.wantNoWrites(redis)
}

// With null, kubectl apply sends an empty patch, and other clients send the null.
func TestReconcile_null_in_a_patch_is_refused(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Replicas, r.Spec.Image = new(int32(5)), "redis:7.0" })
	f.settle(redis)
	nulls := manifest(t, redis, `[{"clusters":["eu-1"],"patch":{"replicas":null}}]`)
	if out, err := kubectl(t, nulls, "apply", "-f", "-"); err == nil || !strings.Contains(out, "leaveToMember") {
		t.Errorf("kubectl apply: %v, %s", err, out)
	}
	if out, err := kubectl(t, nulls, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	f.settle(redis)
	f.wantOutcome(redis, flotillav1.ReasonOverrideInvalid)
	if message := f.r.Table.Get(f.r.key(redis), eu1).Message; !strings.Contains(message, "leaveToMember: [replicas]") {
		t.Errorf("the message does not say what to write: %s", message)
	}
	placed := copyOf(redis)
	if f.get(f.member, placed); *placed.Spec.Replicas != 5 {
		t.Errorf("the copy has %d replicas", *placed.Spec.Replicas)
	}
}

func TestReconcile_takes_a_field_back(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.PriorityClassName = "high" })
	f.settle(redis)
	placed := copyOf(redis)
	for range 2 {
		update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = leave("replicas", "priorityClassName") })
		f.settle(redis)
		if f.get(f.member, placed); placed.Spec.PriorityClassName != "high" || *placed.Spec.Replicas != 3 {
			t.Fatalf("handing over changed the copy: %+v", placed.Spec)
		}
		update(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(7)) })
		update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = nil })
		f.settle(redis)
		if f.get(f.member, placed); *placed.Spec.Replicas != 3 || placed.Annotations[flotillav1.AnnotationLeftToMember] != "" {
			t.Fatalf("%d replicas, annotations %v", *placed.Spec.Replicas, placed.Annotations)
		}
		f.wantNoWrites(redis)
	}
	// A field that was left to the member once is removed with the hub's value like any other.
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.PriorityClassName = "" })
	f.settle(redis)
	if f.get(f.member, placed); placed.Spec.PriorityClassName != "" {
		t.Errorf("a field that the hub dropped is still there: %s", placed.Spec.PriorityClassName)
	}
	f.wantNoWrites(redis)
}

func TestReconcile_keeps_what_was_handed_over_when_the_hub_drops_all_around_it(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	limits := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Resources.Limits = limits })
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = leave("resources.limits.memory") })
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Resources = corev1.ResourceRequirements{} })
	f.settle(redis)
	placed := copyOf(redis)
	f.get(f.member, placed)
	if memory := placed.Spec.Resources.Limits.Memory().String(); memory != "1Gi" || len(placed.Spec.Resources.Limits) != 1 {
		t.Errorf("limits %v, want the memory that was handed over", placed.Spec.Resources.Limits)
	}
	f.wantNoWrites(redis)
}

func TestReconcile_a_crash_while_handing_over_changes_no_value(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Replicas, r.Spec.Image = new(int32(5)), "redis:7.0" })
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = leave("replicas", "image") })
	working := f.engaged(eu1)
	f.directory.Engage(eu1, uncached{client: noApply{f.member}})
	f.pass(redis, "")
	for range 3 {
		if _, err := f.r.Reconcile(context.Background(), requestFor(eu1, redis)); err == nil {
			f.pass(redis, "")
		}
	}
	placed := copyOf(redis)
	if f.get(f.member, placed); *placed.Spec.Replicas != 5 || f.owns(placed, "replicas") {
		t.Fatalf("%d replicas; %s", *placed.Spec.Replicas, placed.ManagedFields)
	}
	// The next manager has no memory of this.
	f.r.Table = fleet.NewTable()
	f.directory.Engage(eu1, working)
	f.wantHandedOver(redis)
}

func TestReconcile_hands_over_in_an_object_that_was_a_copy_before(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis(func(r *flotillav1.Redis) {
		r.Spec.Replicas, r.Spec.Image, r.Spec.Placement.DeletionPolicy = new(int32(5)), "redis:7.0", flotillav1.DeletionPolicyOrphan
	})
	f.settle(redis)
	if err := f.hub.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.settle(redis)
	orphan := copyOf(redis)
	update(f, f.member, orphan, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationAdoptBy: hubID}
	})
	again := copyOf(redis)
	again.Spec = redis.Spec
	again.Spec.Placement.ConflictPolicy, again.Spec.Placement.Overrides = flotillav1.ConflictPolicyAdopt, leave("replicas", "image")
	f.create(f.hub, again)
	f.wantHandedOver(again)
}

func TestReconcile_a_stale_cache_resets_no_field_that_was_taken_back(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Replicas, r.Spec.Image = new(int32(5)), "redis:7.0" })
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = leave("replicas", "image") })
	f.settle(redis)
	stale := copyOf(redis)
	f.get(f.member, stale)
	stale.Spec.Port = 7000
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = nil })
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = leave("replicas", "image") })
	current := f.engaged(eu1)
	f.directory.Engage(eu1, staleCache{uncached{client: f.member}, stale})
	f.pass(redis, "")
	if result := f.pass(redis, eu1); result.RequeueAfter != conflictDelay {
		t.Errorf("want a silent retry, got %+v", result)
	}
	f.directory.Engage(eu1, current)
	f.wantHandedOver(redis)
}

// noApply is a member whose connection is lost before the manager applies anything.
type noApply struct{ client.Client }

func (noApply) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return context.DeadlineExceeded
}

func TestReconcile_hands_over_in_a_NodePool(t *testing.T) {
	f := newFixture(t, fleet.NodePool)
	pool := &flotillav1.NodePool{}
	pool.Name = hubServer.Namespace(t)
	pool.Spec = flotillav1.NodePoolSpec{
		Placement: &flotillav1.Placement{Clusters: []string{eu1}}, Weight: 7,
		Labels: map[string]flotillav1.LabelValue{"example.com/team": "ml", "example.com/tier": "a"},
		Taints: []flotillav1.NodePoolTaint{{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}},
	}
	f.create(f.hub, pool)
	f.settle(pool)
	update(f, f.hub, pool, func(p *flotillav1.NodePool) {
		p.Spec.Placement.Overrides = leave("weight", "taints", "labels.example.com/tier")
	})
	f.settle(pool)
	placed := &flotillav1.NodePool{}
	placed.Name = pool.Name
	f.get(f.member, placed)
	if placed.Spec.Weight != 7 || len(placed.Spec.Taints) != 1 || len(placed.Spec.Labels) != 2 {
		document, _ := json.Marshal(placed.Spec)
		t.Fatalf("handing over changed the copy: %s", document)
	}
	update(f, f.member, placed, func(p *flotillav1.NodePool) {
		p.Spec.Weight, p.Spec.Taints = 9, nil
		p.Spec.Labels["example.com/tier"] = "b"
	})
	f.wantNoWrites(pool)
	update(f, f.member, placed, func(p *flotillav1.NodePool) { p.Spec.Labels["example.com/team"] = "web" })
	f.settle(pool)
	f.get(f.member, placed)
	if placed.Spec.Weight != 9 || len(placed.Spec.Taints) != 0 || placed.Spec.Labels["example.com/tier"] != "b" || placed.Spec.Labels["example.com/team"] != "ml" {
		t.Errorf("putting drift back touched what was left to the member: %+v", placed.Spec)
	}
	if err := f.hub.Delete(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	f.settle(pool)
}
