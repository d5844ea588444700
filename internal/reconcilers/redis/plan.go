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
)

// plan is what one pass will do. It is decided from the state alone.
type plan struct {
	// stop says why no object is touched; nil when all is well.
	stop *problem
	// createSecret asks for a generated password; everything else waits for it, because the Pods are started with it.
	createSecret bool
	// hash is what Pods should carry; empty while the password is not known.
	hash string
	// changes are the children to create or to put right, in this order.
	changes []change
	// compared says that every child was compared with what is asked for, and altered are those that stay other than that.
	compared bool
	altered  []altered
	// dropBudget asks for the removal of the budget, which is ours.
	dropBudget bool
	// dropConfigs are ConfigMaps of ours that no Pod seems to be started with.
	dropConfigs []*corev1.ConfigMap
	// mark are changes of the metadata of the Secret and of claims.
	mark []metadataPatch
	// grow are the claims that ask for less than the spec.
	grow []*corev1.PersistentVolumeClaim
	// forgetForce asks for the removal of an annotation that has done its work.
	forgetForce bool
	rollout     rollout
}

// problem is a reason with its sentence.
type problem struct{ reason, message string }

// change is one server-side apply.
type change struct {
	kind    string
	desired client.Object
	// uid is that of the object to change; empty to create it.
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
	p.hash = podHash(&s.spec, s.password.versions()...)
	for i := range s.pods {
		s.pods[i].risk = riskOf(&s.spec, s.pods[i], s.claims[s.pods[i].ordinal])
	}
	p.rollout = rolloutOf(s, p.hash, s.pods)
	if s.spec.Paused {
		p.rollout.replace = nil
		return p
	}
	config := renderConfigMap(s.redis, &s.spec)
	startable := s.startable(config)
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
	if keepsData(&s.spec) {
		primary, found := s.podAt(0)
		p.forgetForce = forceEmptyPrimary(s) && found && primary.ready
	}
	// A Pod deleted now must come back from the template of this spec, so the StatefulSet's controller must have seen it.
	if !atRest {
		p.rollout.replace = nil
	}
	return p
}

// riskOf says why a Pod must not be replaced, nil when it may be.
func riskOf(s *flotillav1.RedisSpec, p pod, claim *corev1.PersistentVolumeClaim) *problem {
	return cmp.Or(volumeRisk(s, p.name, p.ordinal, claim), memoryRisk(s, p))
}

// stopFor says why a pass must not touch anything.
func stopFor(s *state) *problem {
	if message := configProblem(s.spec.Config); message != "" {
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

// previousAccepted reports whether some Pod accepts the previous password, by the hash that it was started with. Without
// Pods, or with one that does not say, there is nothing to compare with.
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
		running := wiring{Port: p.port, Auth: flotillav1.RedisAuthPassword, Password: s.password.previous}
		if slices.Contains(wiringsOf(p.hash), shortHash(running)) {
			return true
		}
	}
	return !known
}

// passwordWasMade tells whether there was a generated password that something still depends on.
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
	// An earlier Redis of this name left its data, and its clients the password that they know.
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

// currentTopology is the record as it should be now. What was recorded once stays, unless something newer is seen.
func currentTopology(s *state) topology {
	t := topology{initialized: s.recorded.initialized, passwordGenerated: s.recorded.passwordGenerated, addresses: map[string]string{}}
	if keepsData(&s.spec) {
		primary, found := s.podAt(0)
		t.initialized = t.initialized || initializedClaim(s) || (found && primary.ready)
	}
	if s.spec.Auth.Mode == flotillav1.RedisAuthPassword && s.spec.Auth.SecretRef == nil {
		t.passwordGenerated = true
	}
	maps.Copy(t.addresses, s.recorded.addresses)
	for _, suffix := range addressSuffixes {
		if live := s.services[serviceName(s.redis.Name, suffix)]; live != nil && live.Spec.ClusterIP != "" {
			t.addresses[suffix] = live.Spec.ClusterIP
		}
	}
	return t
}

// forceEmptyPrimary tells whether a person has accepted that this very volume is empty.
func forceEmptyPrimary(s *state) bool {
	claim := s.claims[0]
	return claim != nil && s.redis.Annotations[flotillav1.AnnotationForceEmptyPrimary] == string(claim.UID)
}

// planChanges returns what has to be applied, and what stays other than asked for because the member stores it so.
func planChanges(s *state, hash string, config *corev1.ConfigMap, startable bool) ([]change, []altered) {
	var changes []change
	var stay []altered
	add := func(desired, live client.Object, exists bool) *change {
		kind := kindOf(desired)
		if slices.Contains(s.foreign, kind+" "+desired.GetName()) {
			return nil
		}
		want, applied := stampHash(desired)
		if !exists {
			changes = append(changes, change{kind: kind, desired: desired, sent: applied})
			return &changes[len(changes)-1]
		}
		// What is being deleted will be gone, and created again then.
		differ := differencesTo(live, want)
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
	for _, desired := range renderServices(s.redis, &s.spec) {
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
	// Pods must find what they are started with, and find no foreign scripts there: the next pass adds the StatefulSet.
	if startable {
		add(renderStatefulSet(s.redis, &s.spec, hash, config.Name, s.statefulSet), s.statefulSet, s.statefulSet != nil)
	}
	return changes, stay
}

// settled tells whether the StatefulSet is as it should be, or as the member stores it, and its controller has seen that.
func settled(s *state, changes []change) bool {
	return s.statefulSet != nil && s.statefulSet.DeletionTimestamp == nil &&
		s.statefulSet.Status.ObservedGeneration >= s.statefulSet.Generation &&
		!slices.ContainsFunc(changes, func(c change) bool { return c.kind == "StatefulSet" || c.kind == "ConfigMap" })
}
