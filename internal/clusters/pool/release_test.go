// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// releasing returns a releaser of a member with Redises that have our finalizer. patch decides the outcome of each write.
func releasing(count int, patch func(context.Context, client.Object) error) *releaser {
	builder := fake.NewClientBuilder().WithScheme(testenv.Scheme())
	for i := range count {
		builder.WithObjects(&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint("cache-", i), Finalizers: []string{flotillav1.FinalizerRedis},
		}})
	}
	member := builder.WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, p client.Patch, options ...client.PatchOption) error {
			if err := patch(ctx, object); err != nil {
				return err
			}
			return c.Patch(ctx, object, p, options...)
		},
	}).Build()
	return &releaser{
		member: member, clock: clock.RealClock{}, hold: func(context.Context) error { return nil }, renewal: time.Hour,
		patience: 2 * time.Second, pause: 10 * time.Millisecond, timeout: 200 * time.Millisecond,
	}
}

func TestReleaser_goes_on_while_there_is_progress(t *testing.T) {
	// Few writes succeed at a time: all of them take longer than there is patience without progress.
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	r := releasing(40, func(context.Context, client.Object) error {
		select {
		case <-ticker.C:
			return nil
		default:
			return apierrors.NewServiceUnavailable("starting")
		}
	})
	r.patience, r.pause = 3*time.Second, 10*time.Millisecond
	found, err := r.run(context.Background())
	if err != nil || found.released != 40 || len(found.left) > 0 || found.unknown {
		t.Errorf("released %d, left %v, unknown %t: %v", found.released, found.left, found.unknown, err)
	}
}

func TestReleaser_an_object_that_hangs_stops_no_other(t *testing.T) {
	r := releasing(20, func(ctx context.Context, object client.Object) error {
		if object.GetName() == "cache-7" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	r.patience = time.Second
	found, err := r.run(context.Background())
	if !errors.Is(err, errNoProgress) {
		t.Errorf("ended with %v", err)
	}
	if diff := cmp.Diff([]string{"Redis shop/cache-7"}, found.left); diff != "" || found.released != 19 {
		t.Errorf("released %d; left (-want +got):\n%s", found.released, diff)
	}
}

func TestReleaser_writes_nothing_without_the_claim(t *testing.T) {
	r := releasing(3, func(context.Context, client.Object) error {
		t.Error("an object is written")
		return nil
	})
	lost := errors.New("another hub has it")
	r.renewal, r.patience, r.hold = 0, 100*time.Millisecond, func(context.Context) error { return lost }
	if found, err := r.run(context.Background()); !errors.Is(err, lost) || !found.unknown || found.released > 0 {
		t.Errorf("found %+v: %v", found, err)
	}
}

// finalizedRedises are Redises of a fake member.
func finalizedRedises(count int) []client.Object {
	var objects []client.Object
	for i := range count {
		objects = append(objects, &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint("cache-", i), Finalizers: []string{flotillav1.FinalizerRedis},
		}})
	}
	return objects
}

func TestPool_offboards_for_as_long_as_it_takes(t *testing.T) {
	const redises = 300
	server := clusterstest.Start(t, finalizedRedises(redises)...)
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("large", server.Kubeconfig())
	f.Eventually(f.condition("large", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	// One after the other takes 45 seconds.
	server.Misbehave(t, clusterstest.Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/redises/") {
			<-time.After(150 * time.Millisecond)
		}
		well.ServeHTTP(w, req)
	}}, true)
	f.unregister(secret)
	f.Expect(f.offboardNote("large")()).To(Equal(fmt.Sprintf(`Normal: Offboarded cluster "large"; its objects stay; the finalizers of %d objects were removed`, redises)))
}

func TestPool_removes_nothing_from_a_member_that_another_hub_has_claimed(t *testing.T) {
	ctx := context.Background()
	workloads := memberOne.Namespace(t)
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.ClaimRenewal = time.Hour })
	kept := redisIn(t, workloads, "kept", nil, flotillav1.FinalizerRedis)
	secret := f.register("taken", memberOne.Kubeconfig())
	f.Eventually(f.condition("taken", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	lease := &coordinationv1.Lease{}
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease)).To(Succeed())
	lease.Spec.HolderIdentity = new("other/uid")
	f.Expect(memberOne.Client.Update(ctx, lease)).To(Succeed())

	f.unregister(secret)
	f.Eventually(f.offboardNote("taken")).Should(Equal(`Warning: Offboarded cluster "taken"; its objects stay; not removed: the finalizers of Redis ` + workloads + `/kept`))
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
	f.Expect(slices.Contains(kept.Finalizers, flotillav1.FinalizerRedis)).To(BeTrue(), "it is the other hub's now")
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
}
