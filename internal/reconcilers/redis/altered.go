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
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis/drift"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// A webhook or a policy in a member may store an object with other fields than were applied. Applying it again in each
// pass would change nothing and block every update. Therefore the response of the API server is remembered: an object
// that still equals the response to what would be applied is up to date, and its altered fields are reported. An object
// that was changed by anything else differs from the response and is applied again.

// answerLife is how long an answer is valid. No watch reports that a webhook was removed.
const answerLife = time.Hour

// answer is the response of an API server to the apply of a child.
type answer struct {
	// sent is the hash of what was applied, and stored that of the fields that were stored differently.
	sent, stored string
	at           time.Time
}

// altered is an object that the member stores with other fields than were applied.
type altered struct {
	kind, name string
	uid        types.UID
	// fields are the paths of the altered fields.
	fields []string
	answer answer
}

// alteredBy returns the altered object for the differences between what was sent and what is stored.
func alteredBy(kind, name string, uid types.UID, sent string, differences []drift.Difference, now time.Time) altered {
	found := altered{kind: kind, name: name, uid: uid, answer: answer{sent: sent, stored: redisspec.ShortHash(differences), at: now}}
	for _, d := range differences {
		found.fields = append(found.fields, d.Path)
	}
	return found
}

// answered reports whether an object is the response to what would be applied now.
func (s *state) answered(found *altered) bool {
	last, known := s.answers[found.uid]
	if !known || last.sent != found.answer.sent || last.stored != found.answer.stored || s.now.Sub(last.at) >= answerLife {
		return false
	}
	found.answer = last
	return true
}

// decisive are the fields of a StatefulSet that determine the scripts, the configuration and the data of its Pods, and
// by which Pods of the current spec are recognised.
var decisive = append(decisiveFields(containerName, sentinelContainer, keeperContainer, proxyContainer),
	"spec.template.metadata.annotations["+flotillav1.AnnotationSpecHash+"]",
	"spec.template.metadata.annotations["+flotillav1.AnnotationConfig+"]",
	"spec.template.metadata.labels["+flotillav1.LabelRedisProxy+"]",
	"spec.template.spec.volumes",
)

func decisiveFields(containers ...string) []string {
	var fields []string
	for _, container := range containers {
		for _, field := range []string{"command", "env", "volumeMounts"} {
			fields = append(fields, "spec.template.spec.containers["+container+"]."+field)
		}
	}
	return fields
}

// stopping returns the altered fields that forbid the replacement of Pods: the new Pod would start with other content
// than rendered, or be replaced endlessly.
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

// stopAltered stops the rollout if Pods would start with altered content.
func (p *plan) stopAltered() {
	for _, a := range p.altered {
		if fields := a.stopping(); len(fields) > 0 {
			p.rollout = rollout{reason: flotillav1.ReasonFieldDropped, blocked: fmt.Sprintf(
				"No Pod is replaced because the member alters fields that Pods start with: %s %s: %s; exempt the object from the webhook or policy",
				a.kind, a.name, list(fields))}
			return
		}
	}
}

// kinds are the kinds of the children, the most important one first.
var kinds = []string{"StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget"}

// alteredSentence lists the objects and their altered fields in a fixed order.
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
	return "The member stores altered fields because of a webhook or policy: " + strings.Join(texts, "; ")
}

// answers stores the answers for the objects of each Redis, while this manager runs and the member is writable.
type answers struct {
	mu   sync.Mutex
	kept map[clusters.Request]map[types.UID]answer
}

// of returns the answers for the objects of a Redis. The result must not be modified.
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

// forget deletes the answers of a cluster.
func (a *answers) forget(clusterName multicluster.ClusterName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.kept, func(req clusters.Request, _ map[types.UID]answer) bool { return req.ClusterName == clusterName })
}
