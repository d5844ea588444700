// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

var (
	RequestsOf = requestsOf
	Damped     = damped
)
