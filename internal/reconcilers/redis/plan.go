// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis/drift"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// plan is what a pass will do. It depends on the state only.
type plan struct {
	// stop explains why no object is changed, or is nil.
	stop *problem
	// createSecret requests a generated password. Everything else waits for it, because the Pods start with it.
	createSecret bool
	// hash is the desired hash of the Pods; empty while the password is unknown.
	hash string
	// changes are the children to create or to update, in this order.
	changes []change
	// compared reports whether every child was compared with its rendered form. altered are those that the member keeps
	// altered.
	compared bool
	altered  []altered
	// dropBudget requests the removal of the budget of this Redis.
	dropBudget bool
	// dropConfigs are ConfigMaps of this Redis that no cached Pod was started with.
	dropConfigs []*corev1.ConfigMap
	// mark are changes of the metadata of the Secret and of claims.
	mark []metadataPatch
	// grow are the claims that request less than the spec.
	grow []*corev1.PersistentVolumeClaim
	// forgetForce requests the removal of an annotation that has been processed.
	forgetForce bool
	rollout     rollout
}

// problem is a reason with its message.
type problem struct{ reason, message string }

// change is one server-side apply.
type change struct {
	kind    string
	desired client.Object
	// uid is the UID of the object to change; empty to create it.
	uid types.UID
	// sent is the hash of what is applied.
	sent string
	// address is the cluster IP that a Service is created with again; empty for any.
	address string
}

func planFor(s *state) plan {
	var p plan
	if p.stop = stopFor(s); p.stop != nil {
		return p
	}
	if s.spec.Auth.Mode == flotillav1.RedisAuthPassword && !s.password.exists {
		p.createSecret = !s.spec.Paused
		if p.createSecret {
			return p
		}
	}
	p.hash = redisspec.PodHash(&s.spec, s.password.versions()...)
	s.markPrimary(s.pods)
	for i := range s.pods {
		s.pods[i].risk = riskOf(&s.spec, s.pods[i], s.claims[s.pods[i].ordinal])
	}
	p.rollout = rolloutOf(s, p.hash, s.pods)
	if s.spec.Paused {
		p.rollout.replace = nil
		return p
	}
	config := renderConfigMap(s.redis, &s.spec)
	startable := s.startable(config) && s.addressed()
	p.changes, p.altered = planChanges(s, p.hash, config, startable)
	p.compared = true
	atRest := startable && settled(s, p.changes)
	p.stopAltered()
	p.dropBudget = !*s.spec.PodDisruptionBudget.Enabled && s.budget != nil && s.budget.DeletionTimestamp == nil
	p.dropConfigs = configsToDrop(s, atRest)
	p.grow = claimsToGrow(s)
	p.mark = claimsToMark(s)
	if s.password.keep != nil {
		p.mark = append(p.mark, *s.password.keep)
	}
	primary, found := s.primary()
	p.forgetForce = found && primary.ready && (keepsData(&s.spec) && forceEmptyPrimary(s) || forcedPrimary(s) != "")
	// A Pod that is deleted now must be created from the template of this spec, so the StatefulSet controller must have
	// observed it.
	if !atRest {
		p.rollout.replace = nil
	}
	return p
}

// riskOf returns the problem that forbids replacing a Pod, or nil.
func riskOf(s *flotillav1.RedisSpec, p pod, claim *corev1.PersistentVolumeClaim) *problem {
	// In mode Sentinel any Pod can become the primary.
	return cmp.Or(volumeRisk(s, p.name, p.primary || redisspec.IsSentinel(s), claim), memoryRisk(s, p))
}

// stopFor returns the problem that forbids any change, or nil.
func stopFor(s *state) *problem {
	if message := redisspec.ConfigProblem(s.spec.Config); message != "" {
		return &problem{flotillav1.ReasonConfigRejected, message}
	}
	if s.spec.Auth.Mode != flotillav1.RedisAuthPassword {
		return nil
	}
	ref := secretRef(s.redis, &s.spec)
	referenced := s.spec.Auth.SecretRef != nil
	switch {
	case s.password.problem != "" && !referenced && strings.Contains(s.password.problem, flotillav1.LabelRedisAuth):
		return &problem{flotillav1.ReasonNameConflict, s.password.problem}
	case s.password.problem != "":
		return &problem{flotillav1.ReasonSecretMissing, s.password.problem}
	case !s.password.exists && referenced:
		return &problem{flotillav1.ReasonSecretMissing, fmt.Sprintf("Secret %s does not exist", ref.Name)}
	case !s.password.exists && passwordWasMade(s):
		return &problem{flotillav1.ReasonAuthLost, fmt.Sprintf(
			"Secret %s with the password of existing data is gone and nothing is changed until it is back; restore it with key %s and label %s=true",
			ref.Name, ref.Key, flotillav1.LabelRedisAuth)}
	case s.password.previous != "" && !previousAccepted(s):
		return &problem{flotillav1.ReasonPreviousRejected, fmt.Sprintf(
			"Key %s of Secret %s is not a password that a Pod runs with, so that all Pods would restart together; correct it, or remove the key to restart them together",
			previousKey(ref.Key), ref.Name)}
	}
	return nil
}

// previousAccepted reports whether a Pod accepts the previous password, according to the hash that it was started with.
// Without Pods, or with a Pod without a hash, there is nothing to compare with.
func previousAccepted(s *state) bool {
	known := false
	for _, p := range s.pods {
		if p.ordinal >= *s.spec.Replicas {
			continue
		}
		if p.hash == "" || p.port == 0 {
			return true
		}
		known = true
		if redisspec.Accepts(p.hash, p.port, s.password.previous) {
			return true
		}
	}
	return !known
}

// passwordWasMade reports whether there was a generated password that something still depends on.
func passwordWasMade(s *state) bool {
	if s.recorded.passwordGenerated {
		return true
	}
	if s.statefulSet != nil {
		return slices.ContainsFunc(s.statefulSet.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(source corev1.VolumeProjection) bool {
				return source.Secret != nil && source.Secret.Name == secretName(s.redis.Name)
			})
		})
	}
	// An earlier Redis of this name has left its data, and its clients know its password.
	return initializedClaim(s)
}

func initializedClaim(s *state) bool {
	for _, claim := range s.claims {
		if claim.Annotations[flotillav1.AnnotationInitialized] == "true" {
			return true
		}
	}
	return false
}

// currentTopology returns the record as it should be now. A recorded value stays unless a newer one is observed.
func currentTopology(s *state) topology {
	t := topology{initialized: s.recorded.initialized, passwordGenerated: s.recorded.passwordGenerated, addresses: map[string]string{}}
	if keepsData(&s.spec) {
		primary, found := s.primary()
		t.initialized = t.initialized || initializedClaim(s) || (found && primary.ready)
	}
	if s.spec.Auth.Mode == flotillav1.RedisAuthPassword && s.spec.Auth.SecretRef == nil {
		t.passwordGenerated = true
	}
	if redisspec.IsSentinel(&s.spec) {
		t.migrating, t.forcedPrimary = migrating(s), forcedPrimary(s)
	}
	maps.Copy(t.addresses, s.recorded.addresses)
	for _, suffix := range addressSuffixes {
		if live := s.services[serviceName(s.redis.Name, suffix)]; live != nil && live.Spec.ClusterIP != "" {
			t.addresses[suffix] = live.Spec.ClusterIP
		}
	}
	return t
}

// forceEmptyPrimary reports whether a person has accepted that this volume is empty.
func forceEmptyPrimary(s *state) bool {
	claim := s.claims[0]
	return !redisspec.IsSentinel(&s.spec) && claim != nil && s.redis.Annotations[flotillav1.AnnotationForceEmptyPrimary] == string(claim.UID)
}

// planChanges returns the changes to apply, and the objects that stay altered because the member stores them so.
func planChanges(s *state, hash string, config *corev1.ConfigMap, startable bool) ([]change, []altered) {
	var changes []change
	var stay []altered
	add := func(desired, live client.Object, exists bool) *change {
		kind := kindOf(desired)
		if slices.Contains(s.foreign, kind+" "+desired.GetName()) {
			return nil
		}
		want, applied := drift.Stamp(desired)
		if !exists {
			changes = append(changes, change{kind: kind, desired: desired, sent: applied})
			return &changes[len(changes)-1]
		}
		// An object that is being deleted is created again when it is gone.
		differ := drift.To(live, want)
		if live.GetDeletionTimestamp() != nil || len(differ) == 0 {
			return nil
		}
		found := alteredBy(kind, desired.GetName(), live.GetUID(), applied, differ, s.now)
		if s.answered(&found) {
			stay = append(stay, found)
			return nil
		}
		changes = append(changes, change{kind: kind, desired: desired, uid: live.GetUID(), sent: applied})
		return nil
	}
	for _, desired := range s.renderServices() {
		live, exists := s.services[desired.Name]
		if created := add(desired, live, exists); created != nil && desired.Spec.ClusterIP == "" {
			created.address = s.recorded.addresses[strings.TrimPrefix(desired.Name, s.redis.Name+"-")]
		}
	}
	add(renderRecord(s.redis, &s.spec, currentTopology(s), forceEmptyPrimary(s)), s.record, s.record != nil)
	add(config, s.configMap, s.configMap != nil)
	if former := renderFormer(s); former != nil {
		add(former, s.former, true)
	}
	if *s.spec.PodDisruptionBudget.Enabled {
		add(renderBudget(s.redis), s.budget, s.budget != nil)
	}
	// Pods must find the files that they start with, and no foreign scripts: the next pass adds the StatefulSet.
	if startable {
		add(renderStatefulSet(s.redis, &s.spec, hash, config.Name, s.statefulSet), s.statefulSet, s.statefulSet != nil)
	}
	return changes, stay
}

// settled reports whether the StatefulSet is up to date, or as the member stores it, and its controller has observed
// it.
func settled(s *state, changes []change) bool {
	return s.statefulSet != nil && s.statefulSet.DeletionTimestamp == nil &&
		s.statefulSet.Status.ObservedGeneration >= s.statefulSet.Generation &&
		!slices.ContainsFunc(changes, func(c change) bool { return c.kind == "StatefulSet" || c.kind == "ConfigMap" })
}
