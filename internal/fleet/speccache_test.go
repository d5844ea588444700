// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestSpecCache_keeps_specs_until_the_object_changes(t *testing.T) {
	cache := &SpecCache{}
	object := redisWith()
	object.Name, object.UID, object.Generation = "cache", "one", 1
	of := func() *Specs {
		t.Helper()
		specs, err := cache.Of(Redis, object)
		if err != nil {
			t.Fatal(err)
		}
		return specs
	}
	first := of()
	if of() != first {
		t.Error("the specs of an object that did not change are computed anew")
	}
	object.Generation = 2
	second := of()
	if second == first {
		t.Error("the specs of a generation are taken for those of the next")
	}
	object.UID = "another"
	third := of()
	if third == second {
		t.Error("the specs of an object are taken for those of another of its name")
	}
	cache.Forget(ObjectKey{Kind: "Redis", Object: types.NamespacedName{Name: object.Name}})
	if of() == third {
		t.Error("what is forgotten is still there")
	}
}
