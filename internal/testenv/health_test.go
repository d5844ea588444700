// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestHealthOf(t *testing.T) {
	now := metav1.Now()
	redis := func(observed int64, conditions ...string) *flotillav1.Redis {
		object := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		object.Status.ObservedGeneration = observed
		for i := 0; i < len(conditions); i += 2 {
			object.Status.Conditions = append(object.Status.Conditions, metav1.Condition{Type: conditions[i], Status: metav1.ConditionStatus(conditions[i+1])})
		}
		return object
	}
	deleted := redis(2, "Ready", "True")
	deleted.DeletionTimestamp = &now
	for name, tc := range map[string]struct {
		object *flotillav1.Redis
		want   testenv.Health
	}{
		"a status that nobody has written is taken for done": {redis(0), testenv.Current},
		"the schema's mark that nobody has keeps it waiting": {redis(-1), testenv.InProgress},
		"ready":                       {redis(2, "Ready", "True"), testenv.Current},
		"ready at another generation": {redis(1, "Ready", "True"), testenv.InProgress},
		"not ready":                   {redis(2, "Ready", "False"), testenv.InProgress},
		"not known":                   {redis(2, "Ready", "Unknown"), testenv.InProgress},
		"reconciling":                 {redis(2, "Ready", "True", "Reconciling", "True"), testenv.InProgress},
		"stalled":                     {redis(2, "Ready", "True", "Stalled", "True"), testenv.Failed},
		"being deleted":               {deleted, testenv.Terminating},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := testenv.HealthOf(tc.object)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("health %s, want %s", got, tc.want)
			}
		})
	}
}
