// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

// protoField is a field of a message in protobuf.
func protoField(number int, body []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(number<<3|2)), uint64(len(body))), body...)
}

// protoObject is an object in its envelope.
func protoObject(apiVersion, kind string, body []byte) []byte {
	meta := append(protoField(1, []byte(apiVersion)), protoField(2, []byte(kind))...)
	return append([]byte("k8s\x00"), append(protoField(1, meta), protoField(2, body)...)...)
}

// nodeWith returns a Node, or a list with it, whose capacity is a text. Marshal would write another one.
func nodeWith(media, text string, list bool) []byte {
	if media == runtime.ContentTypeJSON {
		node := `{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"},"status":{"capacity":{"cpu":` + text + `}}}`
		if list {
			return []byte(`{"kind":"NodeList","apiVersion":"v1","items":[` + node + `]}`)
		}
		return []byte(node)
	}
	entry := append(protoField(1, []byte("cpu")), protoField(2, protoField(1, []byte(text)))...)
	node := protoField(3, protoField(1, entry))
	if list {
		return protoObject("v1", "NodeList", protoField(2, node))
	}
	return protoObject("v1", "Node", node)
}

func TestQuantities_that_are_expensive_are_not_decoded(t *testing.T) {
	texts := map[string]string{"a small one": "1e-30000000", "a long one": strings.Repeat("9", 2_000_000)}
	for name, text := range texts {
		for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			written := text
			if media == runtime.ContentTypeJSON && name == "a small one" {
				written = `"` + text + `"`
			}
			bodies := map[string][]byte{
				"/api/v1/nodes": nodeWith(media, written, true), "/api/v1/nodes/a": nodeWith(media, written, false),
				"/api/v1/nodes?watch=true": event(t, media, nodeWith(media, written, false)),
			}
			for path, body := range bodies {
				t.Run(name+" "+media+" "+path, func(t *testing.T) {
					l, err := NewLink(credentialFor(t, clusterstest.TLSServer(t, answering{media, body}), "one"), clock.RealClock{}, Limits{})
					if err != nil {
						t.Fatal(err)
					}
					f := &transportFixture{transport: New(l, clock.RealClock{}, Options{Kick: func() {}})}
					f.client = Client(f.transport)
					t.Cleanup(f.transport.Close)
					if _, _, err = f.get(t.Context(), path); err == nil || errors.Is(err, errMalformed) {
						began := time.Now()
						_, _, err := serializerFor(t, media).Serializer.Decode(nodeWith(media, written, true), nil, nil)
						t.Errorf("it is decoded, which takes %v: %v", time.Since(began), err)
					}
					cause := f.transport.Cause()
					if ends := path != "/api/v1/nodes/a"; (cause != nil) != ends || (ends && !strings.Contains(cause.Error(), "a quantity of more than 64 characters")) {
						t.Errorf("the session: %v", cause)
					}
				})
			}
		}
	}
}

// quantitiesIn calls found with the names that lead to each quantity in a type, and the numbers of their fields in
// protobuf, nil if there is none. An empty name is an element of an array, and "*" any key.
func quantitiesIn(kind reflect.Type, path []string, above []reflect.Type, found func(path []string)) {
	switch kind.Kind() {
	case reflect.Pointer:
		quantitiesIn(kind.Elem(), path, above, found)
	case reflect.Slice:
		quantitiesIn(kind.Elem(), append(slices.Clone(path), ""), above, found)
	case reflect.Map:
		quantitiesIn(kind.Elem(), append(slices.Clone(path), "*"), above, found)
	case reflect.Struct:
		if kind == reflect.TypeFor[resource.Quantity]() {
			found(path)
			return
		}
		if slices.Contains(above, kind) {
			return
		}
		for field := range kind.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-" || !field.IsExported():
			case name == "":
				quantitiesIn(field.Type, path, append(slices.Clone(above), kind), found)
			default:
				quantitiesIn(field.Type, append(slices.Clone(path), name), append(slices.Clone(above), kind), found)
			}
		}
	}
}

func TestQuantities_are_found_in_all_kinds(t *testing.T) {
	paths := 0
	for gvk, kind := range decodable().AllKnownTypes() {
		quantitiesIn(kind, nil, nil, func(path []string) {
			paths++
			for _, text := range []string{`"1e-1000"`, `1e1000`, ` "\u0031e-9999"`, `"1e\u002d9999"`, `"\r1e-9999"`, strings.Repeat("1", 65)} {
				document := text
				for _, name := range slices.Backward(path) {
					document = map[bool]string{true: "[" + document + "]", false: `{"` + name + `":` + document + "}"}[name == ""]
				}
				for _, body := range []string{document, strings.NewReplacer("s", `\u0073`, "c", `\u0063`, "*", "cpu").Replace(document), `{"object":` + document + "}"} {
					if !json.Valid([]byte(body)) {
						t.Fatal(body)
					}
					if _, err := measured(runtime.ContentTypeJSON, false, []byte(body), 1); !errors.Is(err, errQuantity) {
						t.Errorf("%s %s: %v", gvk, body, err)
					}
				}
			}
		})
	}
	if paths < 100 {
		t.Errorf("only %d were tried", paths)
	}
}

func TestQuantities_of_API_servers_pass(t *testing.T) {
	texts := []string{
		"0", "-9223372036854775808", "9223372036854775807999999999n", "1500m", "64897220Ki", "1Ei", "12E", "1e3", "100e-9", "1E999",
		"0.10000000000000000000000000000000000000000000000000000000000001", "",
	}
	for _, text := range texts {
		for media, body := range map[string][]byte{
			runtime.ContentTypeJSON: nodeWith(runtime.ContentTypeJSON, `"`+text+`"`, true), runtime.ContentTypeProtobuf: nodeWith(runtime.ContentTypeProtobuf, text, true),
		} {
			if _, err := measured(media, false, body, 1); err != nil {
				t.Errorf("%s %q: %v", media, text, err)
			}
		}
	}
	for _, document := range []string{
		`{"data":{"size":"1e123456789","cpu":"1e99999","limits":"1e99999"},"metadata":{"labels":{"size":"1e99999","capacity":"1e99999"}}}`,
		`{"spec":{"containers":[{"args":["1e99999"],"env":[{"name":"COMMIT","value":"1e99999"}],"image":"1e99999"}]}}`,
		`{"properties":{"limits":{"description":"Minimum that is described in ` + strings.Repeat("many words ", 20) + `","type":"object"}}}`,
		`{"metadata":{"managedFields":[{"fieldsV1":{"f:limits":{"cpu":"1e99999"}}}]}}`,
	} {
		if _, err := measured(runtime.ContentTypeJSON, false, []byte(document), 1); err != nil {
			t.Errorf("%s: %v", document, err)
		}
	}
}
