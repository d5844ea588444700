// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

var (
	labelKey      = ownership.Key{Kind: ownership.Label, Name: "example.com/team"}
	annotationKey = ownership.Key{Kind: ownership.Annotation, Name: "example.com/team"}
	taintKey      = ownership.Key{Kind: ownership.Taint, Name: "example.com/team", Effect: corev1.TaintEffectNoSchedule}
	evictKey      = ownership.Key{Kind: ownership.Taint, Name: "example.com/drain", Effect: corev1.TaintEffectNoExecute}
)

// absent stands for a key that is not there.
const absent = "<none>"

// surveyOf surveys nodes for a pool that is alone in its member.
func surveyOf(pool *flotillav1.NodePool, nodes ...corev1.Node) ownership.Survey {
	return ownership.SurveyNodes(ownership.SurveyInput{
		Pool: pool, Views: ownership.Views([]flotillav1.NodePool{*pool}), Nodes: nodes, Now: ownershiptest.Now.Time,
		Failure: func(string) ownership.Failure { return ownership.Failure{} },
		Fought:  func(*corev1.Node, ownership.Key) bool { return false },
	})
}
