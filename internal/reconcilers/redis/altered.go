// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// A webhook or a policy in a member may store other fields than were asked for. To apply such an object in each pass would
// change nothing and hold up every update, so that what the API server answered is remembered: an object that still is the
// answer to what would be applied now is as good as it gets, and only its fields are reported. An object that anything else
// has changed is not that answer, and is put back.

// answerLife is for how long an answer stands. No watch tells that a webhook is gone.
const answerLife = time.Hour

// answer is what an API server has made of an object of ours.
type answer struct {
	// sent is the hash of what was applied, stored that of the fields that came out differently.
	sent, stored string
	at           time.Time
}

// altered is an object that the member stores with other fields than were asked for.
type altered struct {
	kind, name string
	uid        types.UID
	// fields are the paths of these fields.
	fields []string
	answer answer
}

// alteredBy returns what is known of an object that is stored with these differences from what was sent.
func alteredBy(kind, name string, uid types.UID, sent string, differences []difference, now time.Time) altered {
	found := altered{kind: kind, name: name, uid: uid, answer: answer{sent: sent, stored: shortHash(differences), at: now}}
	for _, d := range differences {
		found.fields = append(found.fields, d.Path)
	}
	return found
}

// answered reports whether an object is what the API server has answered to what would be applied now.
func (s *state) answered(found *altered) bool {
	last, known := s.answers[found.uid]
	if !known || last.sent != found.answer.sent || last.stored != found.answer.stored || s.now.Sub(last.at) >= answerLife {
		return false
	}
	found.answer = last
	return true
}

// decisive are the fields of a StatefulSet that decide with which scripts, configuration and data its Pods start, and by
// which a Pod of the present spec is told from others.
var decisive = []string{
	"spec.template.metadata.annotations[" + flotillav1.AnnotationSpecHash + "]",
	"spec.template.metadata.annotations[" + flotillav1.AnnotationConfig + "]",
	"spec.template.spec.volumes",
	"spec.template.spec.containers[" + containerName + "].command",
	"spec.template.spec.containers[" + containerName + "].env",
	"spec.template.spec.containers[" + containerName + "].volumeMounts",
}

// stopping returns the fields for which no Pod may be replaced: its successor would start with something else than ours, or
// be replaced for ever.
func (a altered) stopping() []string {
	return slices.DeleteFunc(slices.Clone(a.fields), func(field string) bool {
		switch a.kind {
		case "ConfigMap":
			return strings.HasPrefix(field, "metadata.")
		case "StatefulSet":
			return !slices.ContainsFunc(decisive, func(path string) bool {
				return strings.HasPrefix(field, path) || strings.HasPrefix(path, field)
			})
		default:
			return true
		}
	})
}

// stopAltered stops the rollout where what Pods start with is not ours.
func (p *plan) stopAltered() {
	for _, a := range p.altered {
		if fields := a.stopping(); len(fields) > 0 {
			p.rollout = rollout{reason: flotillav1.ReasonFieldDropped, blocked: fmt.Sprintf(
				"No Pod is replaced because the member stores other fields than were asked for in what Pods start with: %s %s: %s; exempt it from the webhook or policy",
				a.kind, a.name, list(fields))}
			return
		}
	}
}

// kinds are those of the children, the one that matters most first.
var kinds = []string{"StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget"}

// alteredSentence names the objects and their fields, in the same order whatever was found first.
func alteredSentence(all []altered) string {
	all = slices.SortedFunc(slices.Values(all), func(a, b altered) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.kind), slices.Index(kinds, b.kind)), cmp.Compare(a.name, b.name))
	})
	var texts []string
	for _, a := range all {
		texts = append(texts, fmt.Sprintf("%s %s: %s", a.kind, a.name, list(a.fields)))
	}
	if len(texts) > maxListed {
		texts = append(texts[:maxListed], fmt.Sprintf("and %d more objects", len(texts)-maxListed))
	}
	return "The member stores other fields than were asked for, because of a webhook or policy: " + strings.Join(texts, "; ")
}

// answers remembers, while this manager runs and the member can be written to, per Redis, the answers for the objects that it has now.
type answers struct {
	mu   sync.Mutex
	kept map[clusters.Request]map[types.UID]answer
}

// of returns the answers for the objects of a Redis, which the caller must not change.
func (a *answers) of(req clusters.Request) map[types.UID]answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept[req]
}

// keep replaces the answers for the objects of a Redis.
func (a *answers) keep(req clusters.Request, all []altered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(all) == 0 {
		delete(a.kept, req)
		return
	}
	if a.kept == nil {
		a.kept = map[clusters.Request]map[types.UID]answer{}
	}
	a.kept[req] = map[types.UID]answer{}
	for _, one := range all {
		a.kept[req][one.uid] = one.answer
	}
}

// forget drops the answers of a cluster.
func (a *answers) forget(clusterName multicluster.ClusterName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.kept, func(req clusters.Request, _ map[types.UID]answer) bool { return req.ClusterName == clusterName })
}
