// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestVersions(t *testing.T) {
	versions := Versions{}
	key := ObjectKey{Kind: "Redis", Object: types.NamespacedName{Namespace: "shop", Name: "cache"}}
	object := func(uid types.UID, version string) Object {
		return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}
	if versions.Predates(key, object("a", "1")) {
		t.Error("nothing was written yet")
	}
	versions.Wrote(key, object("a", "100"))
	for version, want := range map[string]bool{"99": true, "100": false, "101": false, "opaque": false} {
		if versions.Predates(key, object("a", version)) != want {
			t.Errorf("version %s: %t", version, !want)
		}
	}
	if versions.Predates(key, object("b", "99")) {
		t.Error("another object of the name was not written")
	}
	versions.Forget(key)
	if versions.Predates(key, object("a", "99")) {
		t.Error("forgotten")
	}
}
