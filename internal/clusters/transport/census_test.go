// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// decoding is the codecs that the tests encode and decode with.
var decoding = serializer.NewCodecFactory(decodable())

// serializerFor returns the serializers of a media type.
func serializerFor(t testing.TB, media string) runtime.SerializerInfo {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(decoding.SupportedMediaTypes(), media)
	if !ok {
		t.Fatal(media)
	}
	return info
}

// encode encodes an object as API servers do.
func encode(t testing.TB, media string, gvk schema.GroupVersionKind, object runtime.Object) []byte {
	t.Helper()
	object.GetObjectKind().SetGroupVersionKind(gvk)
	var out bytes.Buffer
	if err := serializerFor(t, media).Serializer.Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(out.Bytes())
}

// event encodes a watch event.
func event(t testing.TB, media string, object []byte) []byte {
	t.Helper()
	if media == runtime.ContentTypeJSON {
		return []byte(`{"type":"ADDED","object":` + string(object) + "}\n")
	}
	body, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: object}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// measured scans a body in pieces.
func measured(media string, watch bool, body []byte, piece int) (total tally, err error) {
	c := newCensus(&http.Response{Header: http.Header{"Content-Type": {media}}}, watch)
	for len(body) > 0 && err == nil {
		n := min(piece, len(body))
		err = c.scan(body[:n], &total)
		body = body[n:]
	}
	return total, err
}

// grow adds to an object until its protobuf, or JSON without one, is as large as etcd can store with a request of 3 MiB.
func grow(t testing.TB, media string, gvk schema.GroupVersionKind, object runtime.Object, add func(i int)) []byte {
	t.Helper()
	const limit = 3 << 20
	n, step := 0, 1000
	for ; n < step; n++ {
		add(n)
	}
	size := len(encode(t, media, gvk, object))
	for most := step * (limit / size); n < most; n++ {
		add(n)
	}
	return encode(t, media, gvk, object)
}

var (
	podGVK         = corev1.SchemeGroupVersion.WithKind("Pod")
	nodeGVK        = corev1.SchemeGroupVersion.WithKind("Node")
	configMapGVK   = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	statefulSetGVK = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	crdGVK         = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
)

// largest returns objects of real shapes that are as large as an API server stores them.
func largest(t testing.TB, media string) map[string][]byte {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: "default"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: map[string]string{}}}
	data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}, Data: map[string]string{}}
	managed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "managed", Namespace: "default"}}
	objects := map[string][]byte{
		"a Pod with variables": grow(t, media, podGVK, pod, func(i int) {
			app := &pod.Spec.Containers[0]
			app.Env = append(app.Env, corev1.EnvVar{Name: fmt.Sprintf("SERVICE_%05d_HOST", i), Value: "10.0.0.1"})
		}),
		"a StatefulSet with containers": grow(t, media, statefulSetGVK, set, func(i int) {
			set.Spec.Template.Spec.Containers = append(set.Spec.Template.Spec.Containers, corev1.Container{
				Name: fmt.Sprint("container-", i), Image: "registry.example.com/team/image:v1", Args: []string{"--verbose", "--port=8080"},
				Ports:        []corev1.ContainerPort{{ContainerPort: 8080, Name: "http"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "config", MountPath: "/config"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
					Limits:   corev1.ResourceList{"memory": resource.MustParse("128Mi")},
				},
			})
		}),
		"a Node with images": grow(t, media, nodeGVK, node, func(i int) {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/image-%d:v1", i)}, SizeBytes: 1 << 28})
		}),
		"a ConfigMap with short keys": grow(t, media, configMapGVK, data, func(i int) { data.Data[fmt.Sprintf("key-%06d", i)] = "true" }),
		"a Pod with managed fields": grow(t, media, podGVK, managed, func(i int) {
			if i%1000 == 0 {
				managed.ManagedFields = append(managed.ManagedFields, metav1.ManagedFieldsEntry{Manager: fmt.Sprint("manager-", i), FieldsV1: metav1.NewFieldsV1(
					`{"f:metadata":{"f:labels":{` + strings.Repeat(`"f:x":{},`, 1000) + `"f:y":{}}}}`)})
			}
		}),
	}
	return objects
}

func TestCensus_lets_the_largest_objects_pass(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for name, object := range largest(t, media) {
			t.Run(media+"/"+name, func(t *testing.T) {
				if len(object) < 2<<20 || len(object) > maxEventBytes {
					t.Fatalf("%d KiB", len(object)>>10)
				}
				total, err := measured(media, true, event(t, media, object), 32<<10)
				t.Logf("%d KiB cost %d KiB", len(object)>>10, total.eventCost>>10)
				if err != nil || total.events != 1 || total.eventCost > shareCost || total.eventBytes > maxEventBytes {
					t.Errorf("%+v %v", total, err)
				}
			})
		}
	}
	t.Run("a CRD", func(t *testing.T) {
		properties := map[string]apiextensionsv1.JSONSchemaProps{}
		crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: properties}},
		}}}}
		for i := range 14_000 {
			properties[fmt.Sprintf("property%d", i)] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: "What this property is for."}
		}
		object := encode(t, runtime.ContentTypeJSON, crdGVK, crd)
		total, err := measured(runtime.ContentTypeJSON, false, object, 32<<10)
		t.Logf("%d KiB cost %d KiB", len(object)>>10, total.cost>>10)
		if err != nil || total.cost > shareCost || len(object) < MaxAnswerBytes {
			t.Errorf("%+v %v", total, err)
		}
	})
}

// hostileObjects are cheap to send and expensive to decode. 64 KiB of each are enough to tell.
func hostileObjects() map[string]struct {
	media string
	body  []byte
	into  runtime.Object
} {
	type hostile = struct {
		media string
		body  []byte
		into  runtime.Object
	}
	many := func(text string) string { return strings.Repeat(text, 64<<10/len(text)) }
	object := func(kind string, body []byte) []byte { return protoObject("v1", kind, body) }
	const jsonType, protoType = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	return map[string]hostile{
		"empty items":               {jsonType, []byte(`{"kind":"PodList","apiVersion":"v1","items":[` + many(`{},`) + `{}]}`), &corev1.PodList{}},
		"empty items, type last":    {jsonType, []byte(`{"items":[` + many(`{},`) + `{}],"kind":"PodList","apiVersion":"v1"}`), &corev1.PodList{}},
		"empty items, disguised":    {jsonType, []byte(`{"kind":"PodList","apiVersion":"v1","\u0069tems":[` + many(`{},`) + `{}]}`), &corev1.PodList{}},
		"empty items in protobuf":   {protoType, object("PodList", []byte(many("\x12\x00"))), &corev1.PodList{}},
		"empty metadata, proto":     {protoType, protoObject("meta.k8s.io/v1", "PartialObjectMetadataList", []byte(many("\x12\x00"))), nil},
		"empty containers":          {jsonType, []byte(`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[` + many(`{},`) + `{}]}}`), &corev1.Pod{}},
		"empty containers, proto":   {protoType, object("Pod", protoField(2, []byte(many("\x12\x00")))), &corev1.Pod{}},
		"a long resource list":      {jsonType, []byte(`{"kind":"Node","apiVersion":"v1","status":{"capacity":{` + numbered(`"%d":"1",`, 6000) + `"x":"1"}}}`), &corev1.Node{}},
		"empty strings":             {protoType, object("Pod", protoField(2, protoField(2, []byte(many("\x1a\x00"))))), &corev1.Pod{}},
		"properties of a CRD":       {jsonType, []byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"validation":{},"versions":[{"schema":{"openAPIV3Schema":{"properties":{` + numbered(`"%d":{},`, 7000) + `"x":{}}}}}]}}`), &apiextensionsv1.CustomResourceDefinition{}},
		"alternatives in a CRD":     {jsonType, []byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":{"openAPIV3Schema":{"items":[` + many(`{},`) + `{}]}}}]}}`), &apiextensionsv1.CustomResourceDefinition{}},
		"properties in fieldsV1":    {jsonType, []byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{"fieldsV1":{"properties":{` + numbered(`"%d":{},`, 7000) + `"x":{}}}}}}}]}}`), &apiextensionsv1.CustomResourceDefinition{}},
		"labels":                    {jsonType, []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{` + numbered(`"%d":"",`, 6000) + `"x":""}}}`), &corev1.Pod{}},
		"a list where an object is": {jsonType, []byte(`{"kind":"NodeList","apiVersion":"v1","items":[` + many(`{},`) + `{}]}`), &corev1.Pod{}},
	}
}

// numbered repeats a text with numbers.
func numbered(format string, times int) string {
	var out strings.Builder
	for i := range times {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

func TestCensus_counts_what_decoding_needs(t *testing.T) {
	cases := hostileObjects()
	for name, object := range largest(t, runtime.ContentTypeJSON) {
		c := cases["empty items"]
		c.media, c.body, c.into = runtime.ContentTypeJSON, object, nil
		cases[name] = c
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			needs := decodingNeeds(t, tc.media, tc.body)
			total, err := measured(tc.media, false, tc.body, 1<<10)
			t.Logf("%d KiB need %d KiB, counted %d KiB", len(tc.body)>>10, needs>>10, total.cost>>10)
			if err != nil || total.cost < needs*9/10-(64<<10) || total.cost > 12*needs+1<<20 {
				t.Errorf("counted %d KiB of %d: %v", total.cost>>10, needs>>10, err)
			}
			whole, _ := measured(tc.media, false, tc.body, len(tc.body))
			if single, _ := measured(tc.media, false, tc.body, 1); single != whole {
				t.Errorf("byte by byte it is %+v, at once %+v", single, whole)
			}
		})
	}
}

// decodingNeeds returns by how many bytes the heap grows when a body is decoded: the median of three times, because
// what other tests left behind comes and goes in the same heap.
func decodingNeeds(t *testing.T, media string, body []byte) int64 {
	t.Helper()
	serializer := serializerFor(t, media).Serializer
	needs := make([]int64, 3)
	for i := range needs {
		before := heapInUse()
		decoded, _, err := serializer.Decode(body, nil, nil)
		needs[i] = heapInUse() - before
		goruntime.KeepAlive(decoded)
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(needs)
	return needs[len(needs)/2]
}

// heapInUse returns the size of the heap without garbage.
func heapInUse() int64 {
	goruntime.GC()
	goruntime.GC()
	stats := &goruntime.MemStats{}
	goruntime.ReadMemStats(stats)
	return int64(stats.HeapAlloc)
}

func TestCensus_counts_items_and_events(t *testing.T) {
	pods := &corev1.PodList{Items: make([]corev1.Pod, 123)}
	listGVK := corev1.SchemeGroupVersion.WithKind("PodList")
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		total, err := measured(media, false, encode(t, media, listGVK, pods), 7)
		if err != nil || total.items != 123 {
			t.Errorf("%s: %+v %v", media, total, err)
		}
		one := event(t, media, encode(t, media, podGVK, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
		total, err = measured(media, true, bytes.Repeat(one, 123), 7)
		if err != nil || total.events != 123 || total.eventBytes != int64(len(one)) && total.eventBytes != int64(len(one)-1) {
			t.Errorf("%s: %+v %v", media, total, err)
		}
	}
}

func TestCensus_refuses_what_it_cannot_measure(t *testing.T) {
	schemaProps := &apiextensionsv1.JSONSchemaProps{}
	for range maxDepth {
		schemaProps = &apiextensionsv1.JSONSchemaProps{Not: schemaProps}
	}
	deep := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schemaProps},
	}}}}
	for name, tc := range map[string]struct {
		media, body string
		want        error
	}{
		"deep protobuf":                          {runtime.ContentTypeProtobuf, string(encode(t, runtime.ContentTypeProtobuf, crdGVK, deep)), errTooDeep},
		"deep JSON":                              {runtime.ContentTypeJSON, strings.Repeat(`{"a":[`, maxDepth), errTooDeep},
		"closed before opened":                   {runtime.ContentTypeJSON, `]`, errMalformed},
		"protobuf without a mark":                {runtime.ContentTypeProtobuf, "\x0a\x00\x00\x00\x00", errMalformed},
		"protobuf of a kind that is not decoded": {runtime.ContentTypeProtobuf, string(protoObject("v1", "Other", nil)), errMalformed},
		"protobuf without a type":                {runtime.ContentTypeProtobuf, "k8s\x00\x12\x02\x12\x00", errMalformed},
		"a field that is too long":               {runtime.ContentTypeProtobuf, "k8s\x00\x0a\x02\x0a\x7f", errMalformed},
		"two types":                              {runtime.ContentTypeProtobuf, "k8s\x00\x0a\x04\x0a\x02v1\x0a\x04\x0a\x02v1", errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := measured(tc.media, false, []byte(tc.body), 3); !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, media := range []string{"application/yaml", "application/cbor", "", ";", "application/json;;"} {
		resp := &http.Response{Header: http.Header{"Content-Type": {media}}}
		if _, ok := newCensus(resp, false).(*uncounted); !ok || resp.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%q is decoded", media)
		}
	}
}

// answering answers everything with a body.
type answering struct {
	media string
	body  []byte
}

// ServeHTTP implements http.Handler.
func (a answering) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", a.media)
	_, _ = w.Write(a.body)
}

func TestLimits_of_memory(t *testing.T) {
	const jsonType, protoType = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	pods := func(times int) []byte {
		return []byte(`{"kind":"PodList","items":[` + strings.Repeat(`{},`, times) + `{}]}`)
	}
	small := event(t, protoType, encode(t, protoType, podGVK, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	for name, tc := range map[string]struct {
		path   string
		answer answering
		breaks string
		fine   bool
	}{
		"too many items":              {path: "/api/v1/pods", answer: answering{jsonType, pods(1000)}, breaks: "more than 1000 objects"},
		"as many items as allowed":    {path: "/api/v1/pods", answer: answering{jsonType, pods(999)}, fine: true},
		"an expensive list":           {path: "/api/v1/pods", answer: answering{jsonType, []byte(`{"items":[{"spec":{"containers":[` + strings.Repeat(`{},`, 100_000) + `{}]}}]}`)}, breaks: "needs more than 16 MiB of memory"},
		"an expensive event":          {path: "/api/v1/pods?watch=true", answer: answering{jsonType, event(t, jsonType, []byte(`{"spec":{"containers":[`+strings.Repeat(`{},`, 100_000)+`{}]}}`))}, breaks: "an event that needs more than 32 MiB of memory"},
		"an event with line breaks":   {path: "/api/v1/pods?watch=true", answer: answering{jsonType, []byte(`{"type":` + strings.Repeat("\n", 5<<20))}, breaks: "an event larger than 4 MiB"},
		"a deep event":                {path: "/api/v1/pods?watch=true", answer: answering{jsonType, []byte(strings.Repeat(`[`, 10_000))}, breaks: "nested deeper"},
		"too many initial events":     {path: "/api/v1/pods?watch=true&sendInitialEvents=true", answer: answering{protoType, bytes.Repeat(small, 1200)}, breaks: "more than 1000 objects"},
		"an object that is expensive": {path: "/api/v1/pods/a", answer: answering{jsonType, []byte(`{"spec":{"containers":[` + strings.Repeat(`{},`, 300_000) + `{}]}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := NewLink(credentialFor(t, clusterstest.TLSServer(t, tc.answer), "one"), clock.RealClock{},
				Limits{AnswerBytes: 2 << 20, ListBytes: 4 << 20, CachedObjects: 1000, WatchEvents: 1 << 40})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(name, "line breaks") {
				l.limits.ListBytes = 64 << 20
			}
			f := &transportFixture{transport: New(l, clock.RealClock{}, Options{Kick: func() {}})}
			f.client = Client(f.transport)
			t.Cleanup(f.transport.Close)
			_, _, err = f.get(t.Context(), tc.path)
			if errors.Is(err, verdict.ErrAnswerTooLarge) == tc.fine {
				t.Errorf("got %v", err)
			}
			if cause := f.transport.Cause(); (cause != nil) != (tc.breaks != "") || (cause != nil && !strings.Contains(cause.Error(), tc.breaks)) {
				t.Errorf("the session: %v", cause)
			}
		})
	}
}

// BenchmarkCensus compares measuring a list with decoding it.
func BenchmarkCensus(b *testing.B) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cart-0", Namespace: "shop", Labels: map[string]string{"app.kubernetes.io/name": "redis", "flotilla.dev/redis": "cart"}}}
	pod.Spec.Containers = []corev1.Container{{
		Name: "redis", Image: "redis:8", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}, Ports: []corev1.ContainerPort{{ContainerPort: 6379}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"memory": resource.MustParse("64Mi")}},
	}}
	pod.Status.Conditions = make([]corev1.PodCondition, 5)
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{` + strings.Repeat(`"f:status":{"f:conditions":{}},`, 20) + `"f:x":{}}`)}}
	list := &corev1.PodList{}
	for range 1000 {
		list.Items = append(list.Items, pod)
	}
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		body := encode(b, media, corev1.SchemeGroupVersion.WithKind("PodList"), list)
		b.Run("measuring "+media, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := measured(media, false, body, 32<<10); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decoding "+media, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, _, err := serializerFor(b, media).Serializer.Decode(body, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
