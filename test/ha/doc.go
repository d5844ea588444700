// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ha is a laboratory of Redis that fails over: real servers, voters, proxies and the scripts of their Pods, as
// processes in network namespaces, without containers, nodes or API servers. What goes wrong in a fleet happens to them
// under load, and each scenario tells for how long writes failed and which acknowledged writes were lost.
//
// `make ha` runs it. A stand-in for the kubelet starts containers again, runs probes and hooks, and creates deleted Pods
// again. A Pod has a network namespace, each of its containers a process namespace and a root with nothing but the
// programs that official images are relied on for. A Pod keeps its address, as the Service of an ordinal does, which
// refuses connections while nothing listens.
package ha
