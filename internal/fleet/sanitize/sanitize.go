// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sanitize limits what members report before the hub publishes it: texts, reasons, numbers, resources, groups of nodes
// and times. A member must not make a status of the hub impossible to write, or reach the terminals of people.
package sanitize

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Content from members is published on the hub only within these limits: a hostile or broken member must not be able to
// make the status of the hub object too large or invalid.
const (
	maxMessageBytes  = 256
	maxResourceNames = 64
	maxResourceName  = 253
	maxGroups        = 64
	maxGroupName     = 63
)

// Clip sanitises a text from a member: the result is valid UTF-8 without control characters, of at most 256 bytes.
func Clip(said string) string {
	// Truncating first bounds the cost; the result cannot contain more than this.
	return text.Clip(text.Line(text.Cut(said, 4*maxMessageBytes)), maxMessageBytes)
}

// Count sanitises a counter from a member: it is not negative.
func Count(value int32) int32 { return max(value, 0) }

// Sum adds counters and saturates at the maximum.
func Sum(a, b int32) int32 {
	return int32(min(int64(Count(a))+int64(Count(b)), math.MaxInt32))
}

// Resources sanitises quantities from a member: none is negative, all names are valid, and there are at most 64.
func Resources(list corev1.ResourceList) corev1.ResourceList {
	return AddResources(nil, list)
}

// AddResources adds a list of quantities to sum, which it modifies. If there are too many names, the alphabetically first
// are kept.
func AddResources(sum, list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return sum
	}
	if sum == nil {
		sum = make(corev1.ResourceList, len(list))
	}
	for name, quantity := range list {
		if len(name) == 0 || len(name) > maxResourceName || Clip(string(name)) != string(name) {
			continue
		}
		if quantity.Sign() < 0 {
			quantity = resource.Quantity{Format: quantity.Format}
		}
		total, found := sum[name]
		if !found {
			sum[name] = quantity.DeepCopy()
			continue
		}
		total.Add(quantity)
		sum[name] = total
	}
	if len(sum) > maxResourceNames {
		names := slices.Sorted(maps.Keys(sum))
		for _, name := range names[maxResourceNames:] {
			delete(sum, name)
		}
	}
	return sum
}

// AddGroups adds node counts by name to sum, which it modifies and which is sorted by name. At most 64 groups are kept.
func AddGroups(sum, groups []flotillav1.NodeGroup) []flotillav1.NodeGroup {
	for _, group := range groups {
		if group.Name == "" || len(group.Name) > maxGroupName || Clip(group.Name) != group.Name {
			continue
		}
		i, found := slices.BinarySearchFunc(sum, group.Name, func(g flotillav1.NodeGroup, name string) int { return strings.Compare(g.Name, name) })
		if !found {
			sum = slices.Insert(sum, i, flotillav1.NodeGroup{Name: group.Name})
		}
		sum[i].NodeCount, sum[i].ReadyNodes = Sum(sum[i].NodeCount, group.NodeCount), Sum(sum[i].ReadyNodes, group.ReadyNodes)
	}
	return sum[:min(len(sum), maxGroups)]
}

// When sanitises a time from a member. It returns nil if the time cannot be published.
func When(moment metav1.Time) *metav1.Time {
	if moment.Unix() <= 0 || moment.UTC().Year() > 9999 {
		return nil
	}
	return Moment(moment.Time)
}

// Moment returns a time as the API server stores it, in whole seconds.
func Moment(now time.Time) *metav1.Time {
	moment := metav1.NewTime(now).Rfc3339Copy()
	return &moment
}
