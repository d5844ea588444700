// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestReasons keeps the list of known reasons in step with those that the member kinds declare.
func TestReasons(t *testing.T) {
	for _, file := range []string{"redis_conditions.go", "nodepool_conditions.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "..", "api", "v1alpha1", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
				return true
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if Reason(value) != value {
				t.Errorf("%s of %s is not among the reasons that are taken from members", spec.Names[0].Name, file)
			}
			return true
		})
	}
	if got := Reason("HackedByMember"); got != "Other" {
		t.Errorf("a foreign reason became %q", got)
	}
}
