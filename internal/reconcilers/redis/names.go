// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// fieldOwner owns the fields of everything that this package applies.
	fieldOwner = "flotilla-redis"
	// dataVolume is the volume, and the claim template, that holds the data.
	dataVolume = "data"
	// maxOrdinals bounds the ordinals that a Redis can ever have had.
	maxOrdinals = 10

	suffixPrimary  = "primary"
	suffixOrdinal0 = "0"
	suffixAny      = "any"
	suffixHeadless = "headless"
)

// configName is the name of a ConfigMap that Pods are started with.
func configName(redis, contentHash string) string { return redis + "-config-" + contentHash }

// formerConfigName is the name of the one mutable ConfigMap of versions up to v0.1.
func formerConfigName(redis string) string { return redis + "-config" }

// isConfigName reports whether a ConfigMap of this name is one that Pods are started with, in any version.
func isConfigName(name, redis string) bool {
	former := formerConfigName(redis)
	hash, found := strings.CutPrefix(name, former+"-")
	return name == former || found && len(hash) == hashLength
}

func recordName(redis string) string { return redis + "-record" }

func secretName(redis string) string { return redis + "-auth" }

func serviceName(redis, suffix string) string { return redis + "-" + suffix }

func podName(redis string, ordinal int32) string { return fmt.Sprintf("%s-%d", redis, ordinal) }

func claimName(redis string, ordinal int32) string {
	return fmt.Sprintf("%s-%s-%d", dataVolume, redis, ordinal)
}

// ordinalOf returns the ordinal in the name of a Pod or claim, given what stands before it.
func ordinalOf(name, prefix string) (int32, bool) {
	digits, found := strings.CutPrefix(name, prefix+"-")
	if !found {
		return 0, false
	}
	ordinal, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || ordinal < 0 || strconv.FormatInt(ordinal, 10) != digits {
		return 0, false
	}
	return int32(ordinal), true
}

// selectorLabels select the Pods. They can never change: a StatefulSet's selector is immutable.
func selectorLabels(redis string) map[string]string {
	return map[string]string{flotillav1.LabelRedis: redis}
}

func childLabels(redis string) map[string]string {
	return map[string]string{
		flotillav1.LabelRedis:          redis,
		"app.kubernetes.io/name":       "redis",
		labelInstance:                  redis,
		"app.kubernetes.io/managed-by": "flotilla",
	}
}

// childMeta is the metadata of an object that goes when its Redis goes.
func childMeta(redis *flotillav1.Redis, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: redis.Namespace,
		Name:      name,
		Labels:    childLabels(redis.Name),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         flotillav1.GroupVersion.String(),
			Kind:               "Redis",
			Name:               redis.Name,
			UID:                redis.UID,
			Controller:         new(true),
			BlockOwnerDeletion: new(true),
		}},
	}
}

// spec returns what the Redis asks for with the defaults of the schema filled in, which an object stored before a
// default existed does not have.
func spec(redis *flotillav1.Redis) flotillav1.RedisSpec {
	s := *redis.Spec.DeepCopy()
	setDefault(&s.Mode, flotillav1.RedisModeReplication)
	setDefault(&s.Image, "redis:8.2")
	setDefault(&s.Port, 6379)
	setDefault(&s.Storage.Type, flotillav1.RedisStoragePVC)
	setDefault(&s.Persistence.Mode, flotillav1.RedisPersistenceAOF)
	setDefault(&s.Persistence.AppendFsync, "everysec")
	setDefault(&s.Auth.Mode, flotillav1.RedisAuthPassword)
	setDefault(&s.PodAntiAffinity, flotillav1.RedisPodAntiAffinityPreferred)
	setDefault(&s.ImagePullPolicy, "IfNotPresent")
	if s.Replicas == nil {
		s.Replicas = ptr.To[int32](1)
	}
	if s.TerminationGracePeriodSeconds == nil {
		s.TerminationGracePeriodSeconds = ptr.To[int64](60)
	}
	if s.Storage.Size.IsZero() {
		s.Storage.Size = defaultStorageSize
	}
	if s.Auth.SecretRef != nil {
		setDefault(&s.Auth.SecretRef.Key, flotillav1.RedisSecretKeyPassword)
	}
	if s.Memory == nil {
		s.Memory = &flotillav1.RedisMemory{}
	}
	setDefault(&s.Memory.MaxMemoryPolicy, "noeviction")
	setDefault(&s.Replication.MinReplicasMaxLagSeconds, 10)
	setDefault(&s.Service.Type, corev1.ServiceTypeClusterIP)
	setDefault(&s.UpdateStrategy.Primary, flotillav1.RedisPrimaryAutomatic)
	if s.PodDisruptionBudget.Enabled == nil {
		s.PodDisruptionBudget.Enabled = new(true)
	}
	return s
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// keepsData tells whether an empty primary would mean that data was lost.
func keepsData(s *flotillav1.RedisSpec) bool {
	return s.Storage.Type == flotillav1.RedisStoragePVC && s.Persistence.Mode != flotillav1.RedisPersistenceNone
}
