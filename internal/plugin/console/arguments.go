// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ExactlyOne accepts one argument, which the message names.
func ExactlyOne(usage string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s is needed, and nothing else; see %s --help", usage, c.CommandPath())
		}
		return nil
	}
}

// CheckOneOf refuses a value that is none of the known ones. what says what the value is.
func CheckOneOf(what, value string, known []string) error {
	if !slices.Contains(known, value) {
		return Faultf("use "+strings.Join(known, " or "), "the %s %q is not known", what, value)
	}
	return nil
}

// Qualified returns NAMESPACE/NAME, or NAME without a namespace.
func Qualified(namespace, name string) string { return strings.Trim(namespace+"/"+name, "/") }

// Describe names an object with its kind: Redis shop/cache.
func Describe(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + Qualified(object.GetNamespace(), object.GetName())
}
