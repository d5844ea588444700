// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestUncovered_is_what_a_comparison_of_JSON_says compares random specs with others and with changes of themselves, as Go
// types and as maps.
func TestUncovered_is_what_a_comparison_of_JSON_says(t *testing.T) {
	covered, differing := 0, 0
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		kind := []Kind{Redis, NodePool}[seed%2]
		spec, other := randomSpec(rng, kind), randomSpec(rng, kind)
		have := mustMap(t, spec)
		want := runtime.DeepCopyJSON(have)
		if rng.IntN(4) == 0 {
			want = runtime.DeepCopyJSON(mustMap(t, other))
		}
		for range rng.IntN(4) {
			mutate(rng, want)
		}
		expected := uncoveredInJSON(want, have)
		for _, form := range []any{spec, have} {
			got, err := Uncovered(want, form)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Fatalf("seed %d, %T: want %v\nhave %v\n(-want +got):\n%s", seed, form, want, have, diff)
			}
		}
		if len(expected) == 0 {
			covered++
		} else {
			differing++
		}
	}
	if covered < 500 || differing < 500 {
		t.Errorf("%d specs were covered and %d not: the comparison is one-sided", covered, differing)
	}
}

func TestUncovered_refuses_what_is_no_spec(t *testing.T) {
	for _, spec := range []any{nil, "text", (*flotillav1.RedisSpec)(nil)} {
		if _, err := Uncovered(map[string]any{"replicas": int64(3)}, spec); err == nil {
			t.Errorf("%#v is compared", spec)
		}
	}
}

func mustMap(t *testing.T, spec any) map[string]any {
	t.Helper()
	fields, err := toMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// uncoveredInJSON is Uncovered for two documents.
func uncoveredInJSON(want, have map[string]any) []string {
	var uncovered []string
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if !documentCovers(field, want[field], have[field]) {
			uncovered = append(uncovered, "spec."+field)
		}
	}
	return uncovered
}

func documentCovers(field string, want, have any) bool {
	if have == nil {
		return isZero(want)
	}
	switch value := want.(type) {
	case map[string]any:
		nested, ok := have.(map[string]any)
		return ok && len(uncoveredInJSON(value, nested)) == 0
	case []any:
		items, ok := have.([]any)
		if !ok {
			return false
		}
		keys := listKeys[field]
		if keys == nil {
			return slices.EqualFunc(value, items, func(a, b any) bool { return documentCovers("", a, b) })
		}
		return !slices.ContainsFunc(value, func(wanted any) bool {
			i := slices.IndexFunc(items, func(item any) bool { return sameKeys(keys, wanted, item) })
			return i < 0 || !documentCovers("", wanted, items[i])
		})
	default:
		return reflect.DeepEqual(want, have)
	}
}

func sameKeys(keys []string, a, b any) bool {
	first, ok := a.(map[string]any)
	second, both := b.(map[string]any)
	return ok && both && !slices.ContainsFunc(keys, func(key string) bool { return !reflect.DeepEqual(first[key], second[key]) })
}

// randomSpec returns a pointer to a spec without placement, as a copy has it.
func randomSpec(rng *rand.Rand, kind Kind) any {
	object := kind.New()
	spec := reflect.ValueOf(kind.Spec(object)).Elem()
	fillRandomly(rng, spec)
	spec.FieldByName("Placement").SetZero()
	return spec.Addr().Interface()
}

// fillRandomly gives a value, and what is in it, one of few values; half of what may be absent is.
func fillRandomly(rng *rand.Rand, v reflect.Value) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf([]resource.Quantity{{}, resource.MustParse("0"), resource.MustParse("1024Mi"), resource.MustParse("1Gi"), resource.MustParse("250m")}[rng.IntN(5)]))
		return
	case intstr.IntOrString:
		v.Set(reflect.ValueOf([]intstr.IntOrString{{}, intstr.FromInt32(1), intstr.FromString("10%")}[rng.IntN(3)]))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() && rng.IntN(2) == 0 {
				fillRandomly(rng, field)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillRandomly(rng, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rng.IntN(3), 3))
		for i := range v.Len() {
			fillRandomly(rng, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"a", "example.com/b"}[:rng.IntN(3)] {
			value := reflect.New(v.Type().Elem()).Elem()
			fillRandomly(rng, value)
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
		}
	case reflect.String:
		v.SetString([]string{"", "a", "b"}[rng.IntN(3)])
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(rng.Int64N(3))
	}
}

// mutate changes something in a document, somewhere.
func mutate(rng *rand.Rand, fields map[string]any) {
	keys := slices.Sorted(maps.Keys(fields))
	if len(keys) == 0 || rng.IntN(8) == 0 {
		fields["added"] = []any{"", false, int64(0), map[string]any{}, []any{}, "x", nil}[rng.IntN(7)]
		return
	}
	key := keys[rng.IntN(len(keys))]
	switch value := fields[key].(type) {
	case map[string]any:
		if rng.IntN(3) > 0 {
			mutate(rng, value)
			return
		}
	case []any:
		if len(value) == 0 {
			break
		}
		i := rng.IntN(len(value))
		if item, ok := value[i].(map[string]any); ok && rng.IntN(2) == 0 {
			mutate(rng, item)
			return
		}
		if rng.IntN(2) == 0 {
			fields[key] = slices.Delete(slices.Clone(value), i, i+1)
			return
		}
	}
	if rng.IntN(2) == 0 {
		delete(fields, key)
		return
	}
	fields[key] = []any{"", "a", false, true, int64(0), int64(1), 1.5, nil, map[string]any{}, []any{}}[rng.IntN(10)]
}
