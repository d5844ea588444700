// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import "reflect"

// memorySize returns the approximate size of an object in memory. What objects share is counted for each of them.
func memorySize(object any) int64 {
	value := reflect.ValueOf(object)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return 0
	}
	return int64(value.Type().Elem().Size()) + referenced(value.Elem())
}

// referenced returns the size of what a value refers to.
func referenced(value reflect.Value) (size int64) {
	switch value.Kind() {
	case reflect.String:
		return int64(value.Len())
	case reflect.Pointer:
		if !value.IsNil() {
			return int64(value.Type().Elem().Size()) + referenced(value.Elem())
		}
	case reflect.Slice:
		size = int64(value.Cap()) * int64(value.Type().Elem().Size())
		if refers(value.Type().Elem()) {
			for i := range value.Len() {
				size += referenced(value.Index(i))
			}
		}
	case reflect.Map:
		// Maps are at most 7/8 full, and half of that after they have grown.
		size = int64(value.Len()) * int64(value.Type().Key().Size()+value.Type().Elem().Size()) * 3 / 2
		for entries := value.MapRange(); entries.Next(); {
			size += referenced(entries.Key()) + referenced(entries.Value())
		}
	case reflect.Struct:
		for i := range value.NumField() { //nolint:modernize // Fields() describes each field as well, in several times this time.
			if field := value.Field(i); field.CanInterface() {
				size += referenced(field)
			}
		}
	}
	return size
}

// refers reports whether values of a type may refer to memory.
func refers(kind reflect.Type) bool {
	switch kind.Kind() {
	case reflect.String, reflect.Pointer, reflect.Slice, reflect.Map, reflect.Struct:
		return true
	default:
		return false
	}
}
