// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verdict describes why a member is not engaged, as conditions of its MemberCluster.
//
// A Verdict is the content of one condition. A Refusal is an error that carries one, with the resulting state of the
// member. Explain converts an error of a call to a Verdict. Messages depend only on the problem and its remedy, never on
// ports, addresses or times, so that a status does not change with each attempt.
package verdict
