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
	"strconv"
	"strings"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Effective is the desired spec of the copy in one member.
type Effective struct {
	// Spec contains neither the placement nor the fields that are left to the member.
	Spec map[string]any
	// Hash of Spec.
	Hash string
	// Left are the sorted paths of the fields that overrides leave to the member. They must not be modified.
	Left [][]string
}

// DeepCopy returns a copy that may be modified.
func (e Effective) DeepCopy() Effective {
	return Effective{Spec: runtime.DeepCopyJSON(e.Spec), Hash: e.Hash, Left: e.Left}
}

// Idle reports whether the spec makes the reconcilers of a member only observe.
func (e Effective) Idle() bool { return e.Spec["paused"] == true || e.Spec["dryRun"] == true }

// Evicts reports whether creating a copy with this spec may evict Pods.
func (e Effective) Evicts() bool {
	taints, _ := e.Spec["taints"].([]any)
	return !e.Idle() && slices.ContainsFunc(taints, func(taint any) bool {
		fields, ok := taint.(map[string]any)
		return ok && fields["effect"] == string(corev1.TaintEffectNoExecute)
	})
}

// LeftNames returns the fields that are left to the member as a comma-separated list.
func (e Effective) LeftNames() string {
	names := make([]string, 0, len(e.Left))
	for _, path := range e.Left {
		names = append(names, strings.Join(path, "."))
	}
	return strings.Join(names, ",")
}

// Onto returns the spec that results from applying this one to a copy: the fields that are left to the member keep their
// present values.
func (e Effective) Onto(present any) (map[string]any, error) {
	have, err := toMap(present)
	if err != nil {
		return nil, fmt.Errorf("encoding the present spec: %w", err)
	}
	spec := runtime.DeepCopyJSON(e.Spec)
	for _, path := range e.Left {
		if _, applied := valueAt(spec, path); applied {
			continue
		}
		value, found := valueAt(have, path)
		if nested, ok := value.(map[string]any); found && (!ok || len(nested) > 0) {
			setField(spec, path, runtime.DeepCopyJSONValue(value))
		}
	}
	return spec, nil
}

// Specs computes the effective spec for each member. Members with the same overrides share one result. It is safe for
// concurrent use.
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
	// patch is nil if the override sets nothing; fields is its content.
	patch  []byte
	fields map[string]any
	// leave are the paths of the fields that the override leaves to the member.
	leave [][]string
	// invalid is the error of an override that cannot be applied, or nil.
	invalid error
}

type result struct {
	effective Effective
	err       error
}

// strict decodes objects of the API group and refuses unknown fields.
var strict = newStrictDecoder()

func newStrictDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := flotillav1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// NewSpecs parses the overrides of a hub object. It fails if a selector does not parse, because the members of the
// override are then unknown. All other errors of an override only affect the members that it applies to.
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
		compiled, err := compile(kind, o)
		if err != nil {
			return nil, fmt.Errorf("override %d: %w", i+1, err)
		}
		specs.overrides = append(specs.overrides, compiled)
	}
	return specs, nil
}

func compile(kind Kind, o flotillav1.Override) (override, error) {
	compiled := override{clusters: o.Clusters, selector: labels.Nothing()}
	if o.ClusterSelector != nil {
		selector, err := parseSelector(o.ClusterSelector)
		if err != nil {
			return override{}, fmt.Errorf("parsing clusterSelector: %w", err)
		}
		compiled.selector = selector
	}
	compiled.invalid = compiled.read(kind, o)
	return compiled, nil
}

// read parses an override and validates it.
func (o *override) read(kind Kind, from flotillav1.Override) error {
	if from.Patch != nil {
		o.patch = from.Patch.Raw
		if err := utiljson.Unmarshal(o.patch, &o.fields); err != nil || o.fields == nil {
			return errors.New("the patch is not an object: write the fields to set")
		}
		if _, found := o.fields["placement"]; found {
			return errors.New("placement cannot be overridden")
		}
		if err := kind.checkPatch(o.fields); err != nil {
			return err
		}
	}
	if from.Patch == nil && len(from.LeaveToMember) == 0 {
		return errors.New("it does nothing: set fields in patch, or name those that the member decides in leaveToMember")
	}
	for _, text := range slices.Sorted(slices.Values(from.LeaveToMember)) {
		path, err := kind.parsePath(text)
		switch {
		case err != nil:
			return fmt.Errorf("leaveToMember: %w", err)
		case path[0] == "placement":
			return errors.New("leaveToMember: placement is the hub's and cannot be left to a member")
		}
		if _, sets := valueAt(o.fields, path); sets {
			return fmt.Errorf("%q is both in patch and in leaveToMember: remove it from one of them", text)
		}
		o.leave = append(o.leave, path)
	}
	return nil
}

// Invalid returns the error of the first invalid override, whether or not it applies to a chosen member, or nil.
func (s *Specs) Invalid() error {
	for i, o := range s.overrides {
		if o.invalid != nil {
			return fmt.Errorf("override %d: %w", i+1, o.invalid)
		}
	}
	return nil
}

// Template returns a hash of the inputs of all effective specs. It identifies a change.
func (s *Specs) Template() (string, error) { return s.template() }

func (s *Specs) hashTemplate() (string, error) {
	parts := map[string]any{"spec": s.base}
	for i, o := range s.overrides {
		part := []any{o.clusters, o.selector.String(), json.RawMessage(o.patch)}
		if len(o.leave) > 0 {
			part = append(part, o.leave)
		}
		parts[fmt.Sprint("override ", i)] = part
	}
	return hashOf(parts)
}

// For returns the effective spec for a member. The error is shown to users: it names the override and the field.
func (s *Specs) For(name string, memberLabels map[string]string) (Effective, error) {
	// Every copy pass calls this, and most find a cached result, so that looking it up must not allocate.
	matching, key := make([]int, 0, 16), make([]byte, 0, 64)
	for i := range s.overrides {
		o := &s.overrides[i]
		if slices.Contains(o.clusters, name) || o.selector.Matches(labels.Set(memberLabels)) {
			matching, key = append(matching, i), strconv.AppendInt(append(key, ' '), int64(i), 10)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.results[string(key)]; found {
		return known.effective, known.err
	}
	effective, err := s.compute(matching)
	s.results[string(key)] = result{effective, err}
	return effective, err
}

func (s *Specs) compute(matching []int) (Effective, error) {
	document, err := json.Marshal(s.base)
	if err != nil {
		return Effective{}, fmt.Errorf("encoding the spec: %w", err)
	}
	var left [][]string
	for _, i := range matching {
		if document, left, err = s.override(s.overrides[i], document, left); err != nil {
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
	slices.SortFunc(left, slices.Compare[[]string])
	return Effective{Spec: spec, Hash: hash, Left: slices.CompactFunc(left, slices.Equal[[]string])}, nil
}

// override applies one override to a spec. Fields that it sets are no longer left to the member, and fields that it leaves
// to the member are removed from the spec.
func (s *Specs) override(o override, document []byte, left [][]string) ([]byte, [][]string, error) {
	if o.invalid != nil {
		return nil, nil, o.invalid
	}
	if o.patch != nil {
		var err error
		if document, err = jsonpatch.MergePatch(document, o.patch); err != nil {
			return nil, nil, err
		}
		if _, err := s.decode(document); err != nil {
			return nil, nil, err
		}
		left = slices.DeleteFunc(left, func(path []string) bool {
			value, found := valueAt(o.fields, path)
			_, isObject := value.(map[string]any)
			return found && !isObject
		})
	}
	if len(o.leave) == 0 {
		return document, left, nil
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(document, &spec); err != nil {
		return nil, nil, err
	}
	for _, path := range o.leave {
		dropField(spec, path)
	}
	document, err := json.Marshal(spec)
	return document, append(left, o.leave...), err
}

// decode decodes a spec strictly and returns it as its Go type encodes it.
func (s *Specs) decode(spec []byte) (map[string]any, error) {
	document := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"spec":%s}`, flotillav1.GroupVersion.String(), s.kind.Name, spec)
	object := s.kind.New()
	if _, _, err := strict.Decode(document, nil, object); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "strict decoding error: "))
	}
	return toMap(s.kind.Spec(object))
}

// canonical converts each value of a document to the form that its Go type encodes, so that "1024Mi" and "1Gi" are equal.
// Fields that only the Go type encodes are not added, and zero values that it omits are kept.
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

// toMap converts a spec to a map. A map is returned unchanged.
func toMap(spec any) (map[string]any, error) {
	if fields, ok := spec.(map[string]any); ok {
		return fields, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
}

// dropEmptyMaps removes the objects that Go encodes for unset structs: a copy must not own such fields.
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

// hashOf returns a hash of the JSON encoding, in which the keys of maps are sorted.
func hashOf(spec map[string]any) (string, error) {
	document, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("hashing the spec: %w", err)
	}
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])[:16], nil
}
