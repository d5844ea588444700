// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// fingerprint maps each object of ours in the members to its resourceVersion, and each MemberCluster to its conditions:
// its counts follow the member with a delay.
func (f *fleet) fingerprint(names ...string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out["mc/"+name] = fmt.Sprint(f.memberCluster(name).Status.Conditions)
		lists := []client.ObjectList{&flotillav1.RedisList{}, &flotillav1.NodePoolList{}, &appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}}
		for _, list := range lists {
			_ = f.members[name].List(f.ctx, list)
			_ = apimeta.EachListItem(list, func(o runtime.Object) error {
				object := o.(client.Object)
				out[name+"/"+object.GetNamespace()+"/"+string(object.GetUID())] = object.GetResourceVersion()
				return nil
			})
		}
	}
	return out
}

// settled waits until what earlier scenarios set off has come to rest, and returns the fingerprint.
func (f *fleet) settled(t *testing.T, names ...string) map[string]string {
	t.Helper()
	return quiet(t, time.Second, func() map[string]string { return f.fingerprint(names...) })
}

// settle waits until what other scenarios have caused is over: counts are written at most every 10 s.
func (f *fleet) settle(t *testing.T) {
	t.Helper()
	quiet(t, 12*time.Second, func() map[string]float64 { return f.writes(t) })
}

// quiet waits until what is looked at has stayed the same for a while, and returns it.
func quiet[V comparable](t *testing.T, during time.Duration, look func() map[string]V) map[string]V {
	t.Helper()
	last, since := look(), time.Now()
	NewWithT(t).Eventually(func() string {
		now := look()
		diff := cmp.Diff(last, now)
		if diff != "" {
			last, since = now, time.Now()
		}
		if time.Since(since) < during {
			return "quiet since " + since.Format(time.TimeOnly) + " only; the last change was\n" + diff
		}
		return ""
	}, 2*time.Minute, during/5).Should(BeEmpty(), "it does not come to rest")
	return last
}

// expectNoWrites counts what API servers accept for a while: only Leases, and what simulated kubelets report, may be written.
func (f *fleet) expectNoWrites(t *testing.T, during time.Duration, meanwhile func()) {
	t.Helper()
	before := f.writes(t)
	if meanwhile != nil {
		meanwhile()
	}
	select {
	case <-time.After(during):
	case <-f.ctx.Done():
	}
	if diff := cmp.Diff(before, f.writes(t)); diff != "" {
		t.Errorf("writes while nothing changed (-before +after):\n%s", diff)
	}
}

// writes sums the accepted requests of apiserver_request_total over writing verbs by cluster, verb and resource.
func (f *fleet) writes(t *testing.T) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for name, config := range f.configs {
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(f.ctx)
		if err != nil {
			t.Fatalf("reading the metrics of %q: %v", name, err)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		for _, metric := range families["apiserver_request_total"].GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			resourceName := labels["resource"]
			if labels["subresource"] != "" {
				resourceName += "/" + labels["subresource"]
			}
			accepted := strings.HasPrefix(labels["code"], "2")
			// client-go ends a series of events minutes after the last one of them.
			if labels["verb"] == "PATCH" && resourceName == "events" {
				continue
			}
			if !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, labels["verb"]) || notOurs(resourceName) || !accepted {
				continue
			}
			out[name+" "+labels["verb"]+" "+resourceName] += metric.GetCounter().GetValue()
		}
	}
	return out
}

// notOurs says that a resource is written by the control plane itself while nothing changes, or is a question rather than a write.
func notOurs(resourceName string) bool {
	switch resourceName {
	case "leases", "nodes/status", "deployments/status", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "serviceaccounts/token":
		return true
	}
	return false
}

// idleTime is how long nothing may be written; drills lengthen it.
var idleTime = 20 * time.Second
