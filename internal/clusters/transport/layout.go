// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// layout describes what the fields of a message cost once they are decoded.
type layout struct {
	fields map[uint64]*fieldLayout
	list   bool // The message is a list, and its field 2 has the items.
}

// fieldLayout describes a field of a message.
type fieldLayout struct {
	cost    int64   // Of each occurrence.
	message *layout // Nil for scalars, whose bytes are their cost.
	// quantity is true for the text of a quantity.
	quantity bool
}

// nameCost is what the values of a JSON field of some name cost at most, in whatever type the field is.
type nameCost struct {
	element int64 // Each element, if the value is an array.
	entry   int64 // Each entry, if the value is an object.
	pointer int64 // The value itself, if it is an object.
}

const (
	minElementCost = 24 // Of an element of an array, like a string, and of a member of an object that is no map.
	minEntryCost   = 96 // Of an entry of a map, like a label.
)

// layouts knows all types that an answer can be decoded into. An answer says itself which type it has.
type layouts struct {
	kinds map[schema.GroupVersionKind]*layout
	// names has the fields of all types together, because the type may be known only at the end of a JSON document.
	names map[string]nameCost
	// amounts has the quantities of all types, by the name of the object that they are in.
	amounts map[string]*amounts
	// item is the cost of the largest item of a list.
	item int64

	seen map[reflect.Type]*layout
}

// decodable has all kinds that clients of a member decode. Most have the scheme of package kinds, but those of events have
// that of client-go.
func decodable() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, metav1.AddMetaToScheme, flotillav1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// known is built once: it does not depend on the member.
var known = sync.OnceValue(func() *layouts {
	l := &layouts{
		kinds: map[schema.GroupVersionKind]*layout{}, names: map[string]nameCost{}, amounts: map[string]*amounts{},
		seen: map[reflect.Type]*layout{quantityType: {fields: map[uint64]*fieldLayout{1: {cost: quantityCost, quantity: true}}}},
	}
	for gvk, kind := range decodable().AllKnownTypes() {
		l.kinds[gvk] = l.of(kind)
		// An object is the document itself, or that of an event. Those of a list are below the name of its items.
		seen := map[fieldOf]bool{}
		amountsIn(fieldOf{"", kind}, l.amounts, seen)
		amountsIn(fieldOf{"object", kind}, l.amounts, seen)
		if items, ok := kind.FieldByName("Items"); ok && items.Type.Kind() == reflect.Slice {
			l.kinds[gvk].list = true
			l.item = max(l.item, grown(items.Type.Elem()))
		}
	}
	l.seen = nil
	return l
})

// grown is the cost of an element of a slice that grows while it is decoded.
func grown(element reflect.Type) int64 { return int64(element.Size()) * 3 / 2 }

// of returns the layout of a struct.
func (l *layouts) of(kind reflect.Type) *layout {
	if made, ok := l.seen[kind]; ok {
		return made
	}
	made := &layout{fields: map[uint64]*fieldLayout{}}
	l.seen[kind] = made
	for field := range kind.Fields() {
		if !field.IsExported() {
			continue
		}
		l.name(field)
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		described := l.field(field.Type)
		if len(tag) < 2 {
			continue
		}
		if number, err := strconv.ParseUint(tag[1], 10, 32); err == nil {
			made.fields[number] = described
		}
	}
	return made
}

// field returns the layout of a field.
func (l *layouts) field(kind reflect.Type) *fieldLayout {
	switch kind.Kind() {
	case reflect.Struct:
		return &fieldLayout{message: l.of(kind)}
	case reflect.Pointer:
		return &fieldLayout{cost: int64(kind.Elem().Size()), message: l.field(kind.Elem()).message}
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			return &fieldLayout{}
		}
		return &fieldLayout{cost: grown(kind.Elem()), message: l.field(kind.Elem()).message}
	case reflect.Map:
		entry := &layout{fields: map[uint64]*fieldLayout{2: {message: l.field(kind.Elem()).message}}}
		return &fieldLayout{cost: max(minEntryCost, int64(kind.Key().Size())+grown(kind.Elem())), message: entry}
	default:
		return &fieldLayout{}
	}
}

// name records what a field costs in JSON.
func (l *layouts) name(field reflect.StructField) {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if name == "" || name == "-" {
		return
	}
	cost := l.names[name]
	kind := field.Type
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
		cost.pointer = max(cost.pointer, int64(kind.Size()))
	}
	switch kind.Kind() {
	case reflect.Slice:
		cost.element = max(cost.element, grown(kind.Elem()))
	case reflect.Map:
		cost.entry = max(cost.entry, minEntryCost, int64(kind.Key().Size())+grown(kind.Elem()))
	case reflect.Struct:
		// A type with a decoder of its own may be any of its fields.
		if kind.NumField() > 0 && reflect.PointerTo(kind).Implements(reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]()) {
			for field := range kind.Fields() {
				switch inner := field.Type; inner.Kind() {
				case reflect.Pointer:
					cost.pointer = max(cost.pointer, int64(kind.Size()+inner.Elem().Size()))
				case reflect.Slice:
					cost.element = max(cost.element, grown(inner.Elem()))
				}
			}
		}
	}
	l.names[name] = cost
}
