// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the suite of real Redis on real nodes: what goes wrong in a fleet, under load, and what it costs.
//
// `make e2e` runs it on clusters that it starts on this machine. With E2E_HUB and E2E_MEMBERS it runs on clusters that
// exist already: Flotilla is installed there and its members are registered. It is a module of its own, so that its Redis
// client is no dependency of the product.
package e2e
