// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// maxQuantityBytes and maxExponentDigits limit the text of a quantity. To decode 1e-1000000000, or to compare
	// 1e1000000000, needs gigabytes; a million digits need seconds. Machines and programs write at most 19 digits before
	// the point, nine behind it, and a suffix. API servers round what is smaller than 1n, but store large numbers as they
	// are sent.
	maxQuantityBytes  = 64
	maxExponentDigits = 3
	// quantityCost is what a quantity needs at most besides its struct.
	quantityCost = 192
)

// quantityProblem is what an answer has that is refused with errQuantity.
const quantityProblem = "a quantity of more than %d characters, or with an exponent of more than %d digits"

// errQuantity means that a quantity is too expensive to decode.
var errQuantity = fmt.Errorf("the answer has "+quantityProblem, maxQuantityBytes, maxExponentDigits)

// quantityText checks the text of a quantity while it is read.
type quantityText struct {
	length, digits int
	// exponent is true after an e. It is also the beginning of Ei.
	exponent bool
	// other is true once the text is no quantity. Decoders refuse it before it costs anything, and a field of another type
	// may have the name of a quantity.
	other bool
}

// scan reads on. A backslash stands for an escaped character, which API servers do not use in quantities.
func (q *quantityText) scan(p []byte) error {
	for _, b := range p {
		switch {
		case q.other:
			return nil
		case b == '\\':
			return errQuantity
		case b <= ' ' || b >= utf8.RuneSelf:
			// Decoders trim space, of which there is a lot in Unicode.
			continue
		case b == 'e' || b == 'E':
			q.exponent, q.digits = true, 0
		case b >= '0' && b <= '9':
			q.digits++
		case !strings.ContainsRune("+-.inumkKMGTP", rune(b)):
			q.other = true
			continue
		}
		q.length++
		if q.length > maxQuantityBytes || (q.exponent && q.digits > maxExponentDigits) {
			return errQuantity
		}
	}
	return nil
}

// amounts are the members of an object that are quantities.
type amounts struct {
	all bool // It is a map.
	// names are the fields, or those of its members if it is a map of objects.
	names map[string]bool
}

// has reports whether the member of a name may be a quantity.
func (f *jsonFrame) has(name string, unclear bool) bool {
	in, above := f.amounts, f.above
	return (in != nil && (in.all || unclear || in.names[name])) || (above != nil && (above == anyAmounts || unclear || above.names[name]))
}

// anyAmounts are those of an object whose name is not clear.
var anyAmounts = &amounts{all: true}

var quantityType = reflect.TypeFor[resource.Quantity]()

// fieldOf is a type and the name of the field that has it.
type fieldOf struct {
	name string
	kind reflect.Type
}

// single returns the type of a value, or of the elements of an array.
func single(kind reflect.Type) reflect.Type {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	return kind
}

// amountsIn adds the quantities in a type to those of each name of an object.
func amountsIn(of fieldOf, found map[string]*amounts, seen map[fieldOf]bool) {
	of.kind = single(of.kind)
	if seen[of] {
		return
	}
	seen[of] = true
	at := func() *amounts {
		if found[of.name] == nil {
			found[of.name] = &amounts{names: map[string]bool{}}
		}
		return found[of.name]
	}
	switch {
	case of.kind.Kind() == reflect.Map && single(of.kind.Elem()) == quantityType:
		at().all = true
	case of.kind.Kind() == reflect.Map:
		amountsIn(fieldOf{of.name, of.kind.Elem()}, found, seen)
	case of.kind.Kind() == reflect.Struct:
		for field := range of.kind.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-" || !field.IsExported():
			case single(field.Type) == quantityType:
				at().names[name] = true
			default:
				amountsIn(fieldOf{cmp.Or(name, of.name), field.Type}, found, seen)
			}
		}
	}
}
