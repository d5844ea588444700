// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
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

// What a user reads when a NodePool is refused.
const (
	refusedName          = "the name of a NodePool is a DNS label of at most 53 characters: its role label and RuntimeClass are named after it"
	refusedSelector      = "an empty nodeSelector is refused: leave it out to use the label node-role.kubernetes.io/<pool>"
	refusedSelectorKey   = "a key of nodeSelector is a label key, as in team or example.com/team"
	refusedValues        = "In and NotIn need values; Exists and DoesNotExist take none"
	refusedLoop          = "labels must not set keys that nodeSelector selects on: nodes would join or leave by the pool's own labels"
	refusedHandler       = "handler needs a nodeSelector with matchLabels only: a RuntimeClass cannot express matchExpressions"
	refusedHandlerName   = "handler is a DNS label, as in runc or gvisor"
	refusedKey           = "a key needs a prefix and a name, as in example.com/team"
	refusedSystemLabel   = "labels under kubernetes.io and k8s.io belong to the system, except node-role.kubernetes.io and node-restriction.kubernetes.io"
	refusedOthersLabel   = "this label prefix belongs to another controller"
	refusedRole          = "control-plane role labels cannot be set by a pool"
	refusedOwnRole       = "without nodeSelector the role label is what makes a node a member: a pool cannot set it"
	refusedOthersRole    = "a pool may set only its own node-role.kubernetes.io label"
	refusedLabelValue    = "a label value consists of letters, digits, dashes, underscores and dots, and starts and ends with a letter or digit"
	refusedAnnotation    = "annotations under this prefix belong to the system or to another controller"
	refusedTaint         = "this taint prefix belongs to the system or to another controller"
	refusedTaintValue    = "the value of a taint consists of letters, digits, dashes, underscores and dots, and starts and ends with a letter or digit"
	refusedControlPlane  = "control-plane taints need allowControlPlane: true"
	refusedBudget        = "maxUnavailable is a number of nodes or a percentage from 0% to 100%"
	refusedLong          = "Too long: may not be more than 63 bytes"
	refusedLongAnnotated = "Too long: may not be more than 1024 bytes"
)

func TestNodePool_Validation(t *testing.T) {
	matching := flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/gpu": "yes"}}
	requiring := func(operator metav1.LabelSelectorOperator, values ...string) flotillav1.NodeSelector {
		return flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{Key: "example.com/gpu", Operator: operator, Values: values}}}
	}
	selecting := func(key, value string) flotillav1.NodeSelector {
		return flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{key: flotillav1.LabelValue(value)}}
	}
	handler := func(p *flotillav1.NodePool) { p.Spec.Handler = "runc" }
	taintValue := func(value string) func(*flotillav1.NodePool) {
		return func(p *flotillav1.NodePool) {
			p.Spec.Taints = []flotillav1.NodePoolTaint{{Key: "example.com/x", Value: value, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	budget := func(v intstr.IntOrString) func(*flotillav1.NodePool) {
		return func(p *flotillav1.NodePool) { p.Spec.Rollout = &flotillav1.NodePoolRollout{MaxUnavailable: &v} }
	}
	for name, tc := range map[string]struct {
		change func(*flotillav1.NodePool)
		want   string
	}{
		"nothing but a name":    {func(*flotillav1.NodePool) {}, ""},
		"name of 53 characters": {func(p *flotillav1.NodePool) { p.Name = strings.Repeat("a", 53) }, ""},
		"name of 54 characters": {func(p *flotillav1.NodePool) { p.Name = strings.Repeat("a", 54) }, refusedName},
		"name with a dot":       {func(p *flotillav1.NodePool) { p.Name = "a.b" }, refusedName},

		"selector":                           {nodeSelector(matching), ""},
		"selector on a key without a prefix": {nodeSelector(selecting("team", "x")), ""},
		"selector on a system label":         {nodeSelector(selecting("kubernetes.io/arch", "arm64")), ""},
		"empty selector":                     {nodeSelector(flotillav1.NodeSelector{}), refusedSelector},
		"selector on what is no key":         {nodeSelector(selecting("team!", "x")), refusedSelectorKey},
		"selector on what is no value":       {nodeSelector(selecting("team", "a b")), refusedLabelValue},
		"expression on what is no key": {nodeSelector(flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{
			{Key: "a/b/c", Operator: metav1.LabelSelectorOpExists},
		}}), refusedSelectorKey},
		"In with values":               {nodeSelector(requiring(metav1.LabelSelectorOpIn, "a")), ""},
		"In without values":            {nodeSelector(requiring(metav1.LabelSelectorOpIn)), refusedValues},
		"In with what is no value":     {nodeSelector(requiring(metav1.LabelSelectorOpIn, "a b")), refusedLabelValue},
		"Exists with values":           {nodeSelector(requiring(metav1.LabelSelectorOpExists, "a")), refusedValues},
		"unknown operator":             {nodeSelector(requiring("Gt", "1")), "Unsupported value"},
		"handler and matchLabels":      {nodeSelector(matching, handler), ""},
		"handler and no selector":      {handler, ""},
		"handler and matchExpressions": {nodeSelector(requiring(metav1.LabelSelectorOpExists), handler), refusedHandler},
		"handler that is no DNS label": {func(p *flotillav1.NodePool) { p.Spec.Handler = "Runc" }, refusedHandlerName},

		"label":                        {nodeLabels("example.com/team", "ml"), ""},
		"label with an empty value":    {nodeLabels("example.com/team", ""), ""},
		"label that is selected on":    {nodeSelector(matching, nodeLabels("example.com/gpu", "no")), refusedLoop},
		"label in an expression":       {nodeSelector(requiring(metav1.LabelSelectorOpExists), nodeLabels("example.com/gpu", "no")), refusedLoop},
		"label without a prefix":       {nodeLabels("team", "ml"), refusedKey},
		"label that almost has one":    {nodeLabels("node-poolXlailin.xyz/", "ml"), refusedKey},
		"hostname":                     {nodeLabels("kubernetes.io/hostname", "x"), refusedSystemLabel},
		"operating system":             {nodeLabels("kubernetes.io/os", "x"), refusedSystemLabel},
		"old architecture":             {nodeLabels("beta.kubernetes.io/arch", "x"), refusedSystemLabel},
		"zone":                         {nodeLabels("topology.kubernetes.io/zone", "x"), refusedSystemLabel},
		"old zone":                     {nodeLabels("failure-domain.beta.kubernetes.io/zone", "x"), refusedSystemLabel},
		"instance type":                {nodeLabels("node.kubernetes.io/instance-type", "x"), refusedSystemLabel},
		"feature label":                {nodeLabels("feature.node.kubernetes.io/cpu", "x"), refusedSystemLabel},
		"label under k8s.io":           {nodeLabels("x.k8s.io/y", "x"), refusedSystemLabel},
		"label that only looks like":   {nodeLabels("notkubernetes.io/x", "x"), ""},
		"label of karpenter":           {nodeLabels("karpenter.sh/nodepool", "x"), refusedOthersLabel},
		"label of Cluster API":         {nodeLabels("node.cluster.x-k8s.io/x", "x"), refusedOthersLabel},
		"label of Flotilla":            {nodeLabels("flotilla.dev/x", "x"), refusedOthersLabel},
		"node-restriction label":       {nodeLabels("team.node-restriction.kubernetes.io/x", "x"), ""},
		"control-plane role":           {nodeLabels("node-role.kubernetes.io/control-plane", ""), refusedRole},
		"old control-plane role":       {nodeLabels("node-role.kubernetes.io/master", ""), refusedRole},
		"own role with a selector":     {nodeSelector(matching, nodeLabels("node-role.kubernetes.io/gpu", "")), ""},
		"own role without a selector":  {nodeLabels("node-role.kubernetes.io/gpu", ""), refusedOwnRole},
		"role of another pool":         {nodeSelector(matching, nodeLabels("node-role.kubernetes.io/cpu", "")), refusedOthersRole},
		"own role and another":         {nodeSelector(matching, nodeLabels("node-role.kubernetes.io/gpu", "", "node-role.kubernetes.io/cpu", "")), refusedOthersRole},
		"label value with a space":     {nodeLabels("example.com/team", "a b"), refusedLabelValue},
		"label value of 64 characters": {nodeLabels("example.com/team", strings.Repeat("a", 64)), refusedLong},

		"annotation":                  {nodeAnnotation("example.com/x"), ""},
		"annotation of the system":    {nodeAnnotation("node.alpha.kubernetes.io/ttl"), refusedAnnotation},
		"annotation of Cluster API":   {nodeAnnotation("cluster.x-k8s.io/machine"), refusedAnnotation},
		"annotation of Flotilla":      {nodeAnnotation("flotilla.dev/node-record"), refusedAnnotation},
		"annotation without a prefix": {nodeAnnotation("x"), refusedKey},
		"annotation of 1025 characters": {func(p *flotillav1.NodePool) {
			p.Spec.Annotations = map[string]flotillav1.AnnotationValue{"example.com/x": flotillav1.AnnotationValue(strings.Repeat("x", 1025))}
		}, refusedLongAnnotated},

		"taint":                           {nodeTaint("example.com/x", corev1.TaintEffectNoExecute), ""},
		"taint with an unknown effect":    {nodeTaint("example.com/x", "Never"), "Unsupported value"},
		"taint with a bad value":          {taintValue("a b"), refusedTaintValue},
		"taint of the system":             {nodeTaint("node.kubernetes.io/not-ready", corev1.TaintEffectNoExecute), refusedTaint},
		"taint for a node out of service": {nodeTaint("node.kubernetes.io/out-of-service", corev1.TaintEffectNoExecute), refusedTaint},
		"taint of the cloud provider":     {nodeTaint("node.cloudprovider.kubernetes.io/uninitialized", corev1.TaintEffectNoSchedule), refusedTaint},
		"taint of a readiness rule":       {nodeTaint("readiness.k8s.io/network", corev1.TaintEffectNoSchedule), refusedTaint},
		"taint of karpenter":              {nodeTaint("karpenter.sh/disrupted", corev1.TaintEffectNoSchedule), refusedTaint},
		"taint of Cluster API":            {nodeTaint("node.cluster.x-k8s.io/uninitialized", corev1.TaintEffectNoSchedule), refusedTaint},
		"taint of the autoscaler":         {nodeTaint("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule), refusedKey},
		"control-plane taint":             {nodeTaint("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule), refusedControlPlane},
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
		"weight under 0":          {func(p *flotillav1.NodePool) { p.Spec.Weight = -1 }, "greater than or equal to 0"},
		"unknown conflict policy": {func(p *flotillav1.NodePool) { p.Spec.ConflictPolicy = "Fight" }, "Unsupported value"},
		"unknown deletion policy": {func(p *flotillav1.NodePool) { p.Spec.DeletionPolicy = "Keep" }, "Unsupported value"},
		"budget of none":          {budget(intstr.FromInt32(0)), ""},
		"budget as a percentage":  {budget(intstr.FromString("10%")), ""},
		"budget of all":           {budget(intstr.FromString("100%")), ""},
		"budget below none":       {budget(intstr.FromInt32(-1)), refusedBudget},
		"budget above all":        {budget(intstr.FromString("101%")), refusedBudget},
		"budget in words":         {budget(intstr.FromString("some")), refusedBudget},
		"requests reported":       {func(p *flotillav1.NodePool) { p.Spec.Reporting = &flotillav1.NodePoolReporting{Requested: true} }, ""},
	} {
		t.Run(name, func(t *testing.T) { expectAnswer(t, newNodePool(tc.change), tc.want) })
	}
}

// TestNodePool_older_than_the_rules makes objects under a schema without rules, as one of an earlier version, and
// changes them under today's.
func TestNodePool_older_than_the_rules(t *testing.T) {
	old := testenv.Start(t)
	ctx := t.Context()
	today := &apiextensionsv1.CustomResourceDefinition{}
	if err := old.Client.Get(ctx, client.ObjectKey{Name: "nodepools.flotilla.dev"}, today); err != nil {
		t.Fatal(err)
	}
	install := func(schema *apiextensionsv1.JSONSchemaProps) {
		t.Helper()
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := old.Client.Get(ctx, client.ObjectKeyFromObject(today), crd); err != nil {
			t.Fatal(err)
		}
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
		if err := old.Client.Update(ctx, crd); err != nil {
			t.Fatal(err)
		}
	}
	loose := today.Spec.Versions[0].Schema.OpenAPIV3Schema.DeepCopy()
	withoutRules(loose)
	install(loose)

	selector := flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/gpu": "yes"}}
	pools := map[string]func(*flotillav1.NodePool){
		"a.dotted.name":  func(*flotillav1.NodePool) {},
		"system-label":   nodeLabels("kubernetes.io/os", "x"),
		"plain-label":    nodeLabels("team", "x"),
		"bad-value":      nodeLabels("example.com/x", "a b"),
		"others-role":    nodeLabels("node-role.kubernetes.io/cpu", ""),
		"own-role":       nodeLabels("node-role.kubernetes.io/own-role", ""),
		"loop":           nodeSelector(selector, nodeLabels("example.com/gpu", "no")),
		"empty-selector": nodeSelector(flotillav1.NodeSelector{}),
		"bad-selector":   nodeSelector(flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"a!": "b c"}}),
		"handler-expression": func(p *flotillav1.NodePool) {
			p.Spec.Handler = "runc"
			p.Spec.NodeSelector = &flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}}
		},
		"bad-handler":         func(p *flotillav1.NodePool) { p.Spec.Handler = "Runc" },
		"system-annotation":   nodeAnnotation("node.alpha.kubernetes.io/ttl"),
		"system-taint":        nodeTaint("node.kubernetes.io/not-ready", corev1.TaintEffectNoSchedule),
		"control-plane-taint": nodeTaint("node-role.kubernetes.io/master", corev1.TaintEffectNoSchedule),
		"bad-budget": func(p *flotillav1.NodePool) {
			v := intstr.FromString("some")
			p.Spec.Rollout = &flotillav1.NodePoolRollout{MaxUnavailable: &v}
		},
	}
	eventually := func(check func() error) {
		t.Helper()
		NewWithT(t).Eventually(check).WithPolling(100 * time.Millisecond).Should(Succeed())
	}
	for name, change := range pools {
		pool := newNodePool(change)
		pool.Name = name
		// The API server takes a moment to serve another schema.
		eventually(func() error { return client.IgnoreAlreadyExists(old.Client.Create(ctx, pool.DeepCopy())) })
	}
	install(today.Spec.Versions[0].Schema.OpenAPIV3Schema)
	eventually(func() error {
		if err := old.Client.Create(ctx, newNodePool(nodeLabels("team", "x")), client.DryRunAll); err == nil {
			return errors.New("the rules do not hold yet")
		}
		return nil
	})
	for name, change := range pools {
		t.Run(name, func(t *testing.T) {
			again := newNodePool(change)
			again.Name = strings.ReplaceAll(name, "-", "") + "2"
			if err := old.Client.Create(ctx, again, client.DryRunAll); err == nil {
				t.Fatal("a new one like this is accepted, so the case shows nothing")
			}
			pool := &flotillav1.NodePool{}
			if err := old.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
				t.Fatal(err)
			}
			pool.Spec.Weight, pool.Spec.Paused = 7, true
			pool.Finalizers = []string{flotillav1.FinalizerNodePool}
			if err := old.Client.Update(ctx, pool); err != nil {
				t.Errorf("another field of spec cannot be changed: %v", err)
			}
			pool.Status.Status, pool.Status.ObservedGeneration = 500, pool.Generation
			if err := old.Client.Status().Update(ctx, pool); err != nil {
				t.Errorf("its status cannot be written: %v", err)
			}
			if err := old.Client.Delete(ctx, pool); err != nil {
				t.Errorf("it cannot be deleted: %v", err)
			}
			if err := old.Client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Errorf("its finalizer cannot be taken off: %v", err)
			}
		})
	}
}

// withoutRules takes all rules and patterns out of a schema.
func withoutRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations, schema.Pattern = nil, ""
	for name, property := range schema.Properties {
		withoutRules(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		withoutRules(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		withoutRules(schema.AdditionalProperties.Schema)
	}
}

func TestNodePoolCounts_utilize(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return out
	}
	counts := flotillav1.NodePoolCounts{
		Allocatable: list("cpu", "4", "memory", "8Gi", "pods", "110", "example.com/gpu", "0"),
		Requested:   list("cpu", "1999m", "memory", "12Gi", "example.com/gpu", "1", "example.com/gone", "1"),
	}
	counts.Utilize()
	if want := (map[corev1.ResourceName]int32{"cpu": 49, "memory": 150}); !maps.Equal(counts.Utilization, want) {
		t.Errorf("got %v, want %v", counts.Utilization, want)
	}
	counts.Requested = nil
	if counts.Utilize(); counts.Utilization != nil {
		t.Errorf("what is not known is not 0: %v", counts.Utilization)
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
