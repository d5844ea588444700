// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package text

import "strings"

// maxWord is how long a word from a member may be; the status of a MemberCluster has room for no more.
const maxWord = 64

// IsWord reports whether a word from a member, like its version, may be published: one that is too long would make the
// status of its MemberCluster impossible to write, and one with control characters would reach the terminals of people.
func IsWord(text string) bool {
	return text != "" && len(text) <= maxWord && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
