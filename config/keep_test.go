// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestHub_keeps_what_the_fleet_hangs_on_while_members_are_registered deletes what is in the file, as a dry run.
func TestHub_keeps_what_the_fleet_hangs_on_while_members_are_registered(t *testing.T) {
	ctx, cluster := t.Context(), testenv.Start(t)
	objects := install(t, cluster, hubBundle)
	refused := func() (names []string) {
		for _, object := range objects {
			err := cluster.Client.Delete(ctx, object.DeepCopy(), client.DryRunAll)
			if keptBy(err) == "flotilla-keep" {
				names = append(names, object.GetName())
			} else if err != nil {
				t.Fatalf("deleting %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
		return names
	}
	eventually := func(what string, want int) {
		t.Helper()
		var names []string
		err := wait.PollUntilContextTimeout(context.Background(), 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			names = refused()
			return len(names) == want, nil
		})
		if err != nil {
			t.Fatalf("%s: not to be deleted are %v, want %d", what, names, want)
		}
	}
	eventually("nobody is registered", 0)
	must(t, client.IgnoreAlreadyExists(cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "flotilla-clusters"}})))
	for _, name := range []string{"eu-1", "us-1"} {
		must(t, cluster.Client.Create(ctx, &flotillav1.MemberCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: name}},
		}))
	}
	eventually("members are registered", 4)
	must(t, cluster.Client.DeleteAllOf(ctx, &flotillav1.MemberCluster{}))
	eventually("no member is registered any more", 0)
}
