// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strconv"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Promotion is what a person allows the present rollout of a hub object to skip.
type Promotion string

const (
	// PromotionNone skips nothing.
	PromotionNone Promotion = ""
	// PromotionSoak skips soakSeconds.
	PromotionSoak Promotion = "Soak"
	// PromotionFull skips soakSeconds, steps, batches and groups: all clusters that wait change together when those on trial are
	// ready. Clusters that fail still stop the others.
	PromotionFull Promotion = "Full"
	// PromotionRetry skips nothing. Like each of the others, it has a change tried again that was taken back.
	PromotionRetry Promotion = "Retry"
)

// suffixes follow the generation in the annotation.
var suffixes = map[Promotion]string{PromotionSoak: "", PromotionFull: "/full", PromotionRetry: "/retry"}

// Value returns the value of the annotation that promotes a generation.
func (p Promotion) Value(generation int64) string {
	return strconv.FormatInt(generation, 10) + suffixes[p]
}

// PromotionOf returns the promotion of the present generation of a hub object. It ends with the rollout, so that it does not
// apply to what the labels of a cluster, or a later edit, may change.
func PromotionOf(object flotillav1.Placeable) Promotion {
	progressing := apimeta.FindStatusCondition(*object.GetConditions(), flotillav1.ConditionProgressing)
	if progressing != nil && progressing.ObservedGeneration == object.GetGeneration() && progressing.Reason == flotillav1.ReasonSettled {
		return PromotionNone
	}
	value := object.GetAnnotations()[flotillav1.AnnotationPromote]
	for _, promotion := range []Promotion{PromotionSoak, PromotionFull, PromotionRetry} {
		if value == promotion.Value(object.GetGeneration()) {
			return promotion
		}
	}
	return PromotionNone
}
