// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Effective is the spec that the copy in one member should have.
type Effective struct {
	// Spec has no placement and lacks every field that is left to the member.
	Spec map[string]any
	// Hash of Spec.
	Hash string
}

// DeepCopy returns a copy that may be changed.
func (e Effective) DeepCopy() Effective {
	return Effective{Spec: runtime.DeepCopyJSON(e.Spec), Hash: e.Hash}
}

// Specs computes the effective spec for each member. Members that the same overrides apply to share one result. It may be
// used by several goroutines at once.
type Specs struct {
	kind      Kind
	base      map[string]any
	overrides []override
	template  func() (string, error)

	mu      sync.Mutex
	results map[string]result
}

type override struct {
	clusters []string
	selector labels.Selector
	patch    []byte
}

type result struct {
	effective Effective
	err       error
}

// strict decodes objects of our kinds and refuses unknown fields.
var strict = newStrictDecoder()

func newStrictDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := flotillav1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// NewSpecs prepares the overrides of a hub object. An override whose selector does not parse makes it fail.
func NewSpecs(kind Kind, object Object) (*Specs, error) {
	specs := &Specs{kind: kind, results: map[string]result{}}
	specs.template = sync.OnceValues(specs.hashTemplate)
	base, err := toMap(kind.Spec(object))
	if err != nil {
		return nil, fmt.Errorf("encoding the spec: %w", err)
	}
	delete(base, "placement")
	dropEmptyMaps(base)
	specs.base = base

	placement := object.GetPlacement()
	if placement == nil {
		return specs, nil
	}
	for i, o := range placement.Overrides {
		compiled, err := compile(o)
		if err != nil {
			return nil, fmt.Errorf("override %d: %w", i+1, err)
		}
		specs.overrides = append(specs.overrides, compiled)
	}
	return specs, nil
}

func compile(o flotillav1.Override) (override, error) {
	compiled := override{clusters: o.Clusters, selector: labels.Nothing()}
	if o.ClusterSelector != nil {
		selector, err := parseSelector(o.ClusterSelector)
		if err != nil {
			return override{}, fmt.Errorf("parsing clusterSelector: %w", err)
		}
		compiled.selector = selector
	}
	if o.Patch == nil {
		return override{}, errors.New("patch is missing")
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(o.Patch.Raw, &keys); err != nil || keys == nil {
		return override{}, errors.New("patch is not an object")
	}
	if _, found := keys["placement"]; found {
		return override{}, errors.New("placement cannot be overridden")
	}
	compiled.patch = o.Patch.Raw
	return compiled, nil
}

// Template is a hash of everything that effective specs are made from, so that it names a change.
func (s *Specs) Template() (string, error) { return s.template() }

func (s *Specs) hashTemplate() (string, error) {
	parts := map[string]any{"spec": s.base}
	for i, o := range s.overrides {
		parts[fmt.Sprint("override ", i)] = []any{o.clusters, o.selector.String(), json.RawMessage(o.patch)}
	}
	return hashOf(parts)
}

// For returns what the copy in a member should be. The error is for people: it names the override and the field.
func (s *Specs) For(name string, memberLabels map[string]string) (Effective, error) {
	var matching []int
	for i, o := range s.overrides {
		if slices.Contains(o.clusters, name) || o.selector.Matches(labels.Set(memberLabels)) {
			matching = append(matching, i)
		}
	}
	key := fmt.Sprint(matching)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.results[key]; found {
		return known.effective, known.err
	}
	effective, err := s.compute(matching)
	s.results[key] = result{effective, err}
	return effective, err
}

func (s *Specs) compute(matching []int) (Effective, error) {
	document, err := json.Marshal(s.base)
	if err != nil {
		return Effective{}, fmt.Errorf("encoding the spec: %w", err)
	}
	for _, i := range matching {
		if document, err = jsonpatch.MergePatch(document, s.overrides[i].patch); err != nil {
			return Effective{}, fmt.Errorf("override %d: %w", i+1, err)
		}
		if _, err := s.decode(document); err != nil {
			return Effective{}, fmt.Errorf("override %d: %w", i+1, err)
		}
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(document, &spec); err != nil {
		return Effective{}, fmt.Errorf("decoding the spec: %w", err)
	}
	typed, err := s.decode(document)
	if err != nil {
		return Effective{}, err
	}
	spec, _ = canonical(spec, typed).(map[string]any)
	hash, err := hashOf(spec)
	if err != nil {
		return Effective{}, err
	}
	return Effective{Spec: spec, Hash: hash}, nil
}

// decode reads a spec strictly and returns it as its Go type writes it.
func (s *Specs) decode(spec []byte) (map[string]any, error) {
	document := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"spec":%s}`, flotillav1.GroupVersion.String(), s.kind.Name, spec)
	object := s.kind.New()
	if _, _, err := strict.Decode(document, nil, object); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "strict decoding error: "))
	}
	return toMap(s.kind.Spec(object))
}

// canonical gives each value of a document the form that its Go type writes, so that "1024Mi" and "1Gi" are the same.
// Fields that only the Go type writes are left out, and those that it omits because they are zero stay.
func canonical(document, typed any) any {
	switch value := document.(type) {
	case map[string]any:
		fields, ok := typed.(map[string]any)
		if !ok {
			return document
		}
		out := make(map[string]any, len(value))
		for key, field := range value {
			out[key] = field
			if other, found := fields[key]; found {
				out[key] = canonical(field, other)
			}
		}
		return out
	case []any:
		items, ok := typed.([]any)
		if !ok || len(items) != len(value) {
			return document
		}
		out := make([]any, len(value))
		for i := range value {
			out[i] = canonical(value[i], items[i])
		}
		return out
	default:
		if typed == nil {
			return document
		}
		return typed
	}
}

// toMap returns the fields of a spec as they are in JSON. A map is returned itself.
func toMap(spec any) (map[string]any, error) {
	if fields, ok := spec.(map[string]any); ok {
		return fields, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
}

// dropEmptyMaps removes what Go writes for structs that nobody filled in: a copy must not claim such fields.
func dropEmptyMaps(fields map[string]any) {
	for key, value := range fields {
		if nested, ok := value.(map[string]any); ok {
			dropEmptyMaps(nested)
			if len(nested) == 0 {
				delete(fields, key)
			}
		}
	}
}

// hashOf relies on encoding/json writing the keys of maps in order.
func hashOf(spec map[string]any) (string, error) {
	document, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("hashing the spec: %w", err)
	}
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])[:16], nil
}
