// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func newNodePool(change func(*flotillav1.NodePool)) *flotillav1.NodePool {
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	change(pool)
	return pool
}

func nodeLabels(keysAndValues ...string) func(*flotillav1.NodePool) {
	return func(p *flotillav1.NodePool) {
		p.Spec.Labels = map[string]flotillav1.LabelValue{}
		for i := 0; i < len(keysAndValues); i += 2 {
			p.Spec.Labels[keysAndValues[i]] = flotillav1.LabelValue(keysAndValues[i+1])
		}
	}
}

func nodeAnnotation(key string) func(*flotillav1.NodePool) {
	return func(p *flotillav1.NodePool) { p.Spec.Annotations = map[string]flotillav1.AnnotationValue{key: "x"} }
}

func nodeTaint(key string, effect corev1.TaintEffect) func(*flotillav1.NodePool) {
	return func(p *flotillav1.NodePool) { p.Spec.Taints = []flotillav1.NodePoolTaint{{Key: key, Effect: effect}} }
}

func nodeSelector(selector flotillav1.NodeSelector, more ...func(*flotillav1.NodePool)) func(*flotillav1.NodePool) {
	return func(p *flotillav1.NodePool) {
		p.Spec.NodeSelector = &selector
		for _, change := range more {
			change(p)
		}
	}
}

func TestNodePool_Validation(t *testing.T) {
	matching := flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/gpu": "yes"}}
	requiring := func(operator metav1.LabelSelectorOperator, values ...string) flotillav1.NodeSelector {
		return flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{Key: "example.com/gpu", Operator: operator, Values: values}}}
	}
	handler := func(p *flotillav1.NodePool) { p.Spec.Handler = "runc" }
	for name, tc := range map[string]struct {
		change func(*flotillav1.NodePool)
		want   string
	}{
		"nothing but a name":           {func(*flotillav1.NodePool) {}, ""},
		"name of 53 characters":        {func(p *flotillav1.NodePool) { p.Name = strings.Repeat("a", 53) }, ""},
		"name of 54 characters":        {func(p *flotillav1.NodePool) { p.Name = strings.Repeat("a", 54) }, "at most 53 characters"},
		"name with a dot":              {func(p *flotillav1.NodePool) { p.Name = "a.b" }, "DNS label"},
		"selector":                     {nodeSelector(matching), ""},
		"empty selector":               {nodeSelector(flotillav1.NodeSelector{}), "an empty nodeSelector is refused"},
		"In with values":               {nodeSelector(requiring(metav1.LabelSelectorOpIn, "a")), ""},
		"In without values":            {nodeSelector(requiring(metav1.LabelSelectorOpIn)), "In and NotIn need values"},
		"Exists with values":           {nodeSelector(requiring(metav1.LabelSelectorOpExists, "a")), "take none"},
		"handler and matchLabels":      {nodeSelector(matching, handler), ""},
		"handler and matchExpressions": {nodeSelector(requiring(metav1.LabelSelectorOpExists), handler), "matchLabels only"},
		"handler that is no DNS label": {func(p *flotillav1.NodePool) { p.Spec.Handler = "Runc" }, "should match"},
		"label":                        {nodeLabels("example.com/team", "ml"), ""},
		"label that is selected on":    {nodeSelector(matching, nodeLabels("example.com/gpu", "no")), "join or leave by the pool's own labels"},
		"label in an expression":       {nodeSelector(requiring(metav1.LabelSelectorOpExists), nodeLabels("example.com/gpu", "no")), "join or leave by the pool's own labels"},
		"label without a prefix":       {nodeLabels("team", "ml"), "needs a prefix"},
		"label of the system":          {nodeLabels("kubernetes.io/os", "x"), "belong to the system"},
		"label of the topology":        {nodeLabels("topology.kubernetes.io/zone", "x"), "belong to the system"},
		"label of another controller":  {nodeLabels("karpenter.sh/nodepool", "x"), "another controller"},
		"label of Flotilla":            {nodeLabels("flotilla.dev/x", "x"), "another controller"},
		"node-restriction label":       {nodeLabels("team.node-restriction.kubernetes.io/x", "x"), ""},
		"control-plane role":           {nodeLabels("node-role.kubernetes.io/control-plane", ""), "control-plane role"},
		"own role with a selector":     {nodeSelector(matching, nodeLabels("node-role.kubernetes.io/gpu", "")), ""},
		"own role without a selector":  {nodeLabels("node-role.kubernetes.io/gpu", ""), "a pool cannot set it"},
		"role of another pool":         {nodeSelector(matching, nodeLabels("node-role.kubernetes.io/cpu", "")), "only its own"},
		"own role and another":         {nodeSelector(matching, nodeLabels("node-role.kubernetes.io/gpu", "", "node-role.kubernetes.io/cpu", "")), "only its own"},
		"label value with a space":     {nodeLabels("example.com/team", "a b"), "should match"},
		"label value of 64 characters": {nodeLabels("example.com/team", strings.Repeat("a", 64)), "63"},
		"annotation":                   {nodeAnnotation("example.com/x"), ""},
		"annotation of the system":     {nodeAnnotation("node.alpha.kubernetes.io/ttl"), "belong to the system"},
		"annotation of Flotilla":       {nodeAnnotation("flotilla.dev/node-record"), "belong to the system"},
		"annotation without a prefix":  {nodeAnnotation("x"), "needs a prefix"},
		"taint":                        {nodeTaint("example.com/x", corev1.TaintEffectNoExecute), ""},
		"taint with an unknown effect": {nodeTaint("example.com/x", "Never"), "Unsupported value"},
		"taint of the system":          {nodeTaint("node.kubernetes.io/not-ready", corev1.TaintEffectNoExecute), "belongs to the system"},
		"taint of the cloud provider":  {nodeTaint("node.cloudprovider.kubernetes.io/uninitialized", corev1.TaintEffectNoSchedule), "belongs to the system"},
		"taint without a prefix":       {nodeTaint("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule), "should match"},
		"control-plane taint":          {nodeTaint("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule), "allowControlPlane"},
		"control-plane taint, allowed": {func(p *flotillav1.NodePool) {
			nodeTaint("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule)(p)
			p.Spec.AllowControlPlane = true
		}, ""},
		"two taints of a key and effect": {func(p *flotillav1.NodePool) {
			p.Spec.Taints = []flotillav1.NodePoolTaint{{Key: "example.com/x", Effect: "NoSchedule"}, {Key: "example.com/x", Value: "y", Effect: "NoSchedule"}}
		}, "Duplicate value"},
		"one key with two effects": {func(p *flotillav1.NodePool) {
			p.Spec.Taints = []flotillav1.NodePoolTaint{{Key: "example.com/x", Effect: "NoSchedule"}, {Key: "example.com/x", Effect: "NoExecute"}}
		}, ""},
		"weight over 100":         {func(p *flotillav1.NodePool) { p.Spec.Weight = 101 }, "less than or equal to 100"},
		"unknown conflict policy": {func(p *flotillav1.NodePool) { p.Spec.ConflictPolicy = "Fight" }, "Unsupported value"},
		"budget as a percentage": {func(p *flotillav1.NodePool) {
			v := intstr.FromString("10%")
			p.Spec.Rollout = &flotillav1.NodePoolRollout{MaxUnavailable: &v}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) { expectAnswer(t, newNodePool(tc.change), tc.want) })
	}
}

func TestNodePool_Defaults(t *testing.T) {
	pool := newNodePool(func(p *flotillav1.NodePool) {
		p.Spec.Rollout = &flotillav1.NodePoolRollout{}
		nodeTaint("example.com/x", corev1.TaintEffectNoSchedule)(p)
	})
	if err := server.Client.Create(t.Context(), pool, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if pool.Spec.ConflictPolicy != flotillav1.NodeConflictPolicyPreserve || pool.Spec.DeletionPolicy != flotillav1.NodeDeletionPolicyClean ||
		pool.Spec.Taints[0].Propagation != flotillav1.TaintPropagationAlways || pool.Spec.Rollout.MaxUnavailable.IntValue() != 1 {
		t.Errorf("defaults: got %+v", pool.Spec)
	}
}
