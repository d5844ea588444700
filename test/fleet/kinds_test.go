// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// removeKinds deletes our CustomResourceDefinitions from a cluster, with all objects of them, and waits for their end.
func (f *fleet) removeKinds(t *testing.T, c client.Client) {
	t.Helper()
	g := NewWithT(t)
	for _, name := range []string{"redises.flotilla.dev", "nodepools.flotilla.dev"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		g.Expect(c.Delete(f.ctx, crd)).To(Succeed())
		g.Eventually(func() bool {
			return apierrors.IsNotFound(c.Get(f.ctx, client.ObjectKeyFromObject(crd), crd))
		}, 45*time.Second, 200*time.Millisecond).Should(BeTrue(), "%s goes; its objects: %v", name, crd.Status.Conditions)
	}
}
