// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestAuditedSince(t *testing.T) {
	g := NewWithT(t)
	env := shared
	mark := env.AuditMark(t)
	g.Expect(env.Client.List(t.Context(), &corev1.NodeList{})).To(Succeed())
	lists := func(a testenv.Audited) bool { return a.IsList() && a.ObjectRef.Resource == "nodes" }
	g.Eventually(func() []testenv.Audited { return env.AuditedSince(t, mark, lists) }).Should(HaveLen(1))
	mark = env.AuditMark(t)
	env.Namespace(t)
	writes := func(a testenv.Audited) bool { return a.IsWrite() && a.ObjectRef.Resource == "namespaces" }
	g.Eventually(func() []testenv.Audited { return env.AuditedSince(t, mark, writes) }).Should(HaveLen(1))
	g.Expect(env.AuditedSince(t, mark, lists)).To(BeEmpty())
}
