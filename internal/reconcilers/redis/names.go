// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

const (
	// fieldOwner is the field manager of everything that this package applies.
	fieldOwner = "flotilla-redis"
	// dataVolume is the name of the data volume and of its claim template.
	dataVolume = "data"
	// maxOrdinals is the upper limit of the ordinals of a Redis.
	maxOrdinals = 10

	suffixPrimary  = "primary"
	suffixOrdinal0 = "0"
	suffixAny      = "any"
	suffixHeadless = "headless"
)

// configName returns the name of a ConfigMap that Pods start with.
func configName(redis, contentHash string) string { return redis + "-config-" + contentHash }

// formerConfigName returns the name of the mutable ConfigMap of versions up to v0.1.
func formerConfigName(redis string) string { return redis + "-config" }

// isConfigName reports whether a name is that of a ConfigMap that Pods start with, in any version.
func isConfigName(name, redis string) bool {
	former := formerConfigName(redis)
	hash, found := strings.CutPrefix(name, former+"-")
	return name == former || found && len(hash) == redisspec.HashLength
}

func recordName(redis string) string { return redis + "-record" }

func secretName(redis string) string { return redis + "-auth" }

func serviceName(redis, suffix string) string { return redis + "-" + suffix }

func podName(redis string, ordinal int32) string { return fmt.Sprintf("%s-%d", redis, ordinal) }

func claimName(redis string, ordinal int32) string {
	return fmt.Sprintf("%s-%s-%d", dataVolume, redis, ordinal)
}

// ordinalOf returns the ordinal in the name of a Pod or claim with the given prefix.
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

// selectorLabels select the Pods. They can never change, because the selector of a StatefulSet is immutable.
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

// childMeta returns the metadata of an object that is deleted with its Redis.
func childMeta(redis *flotillav1.Redis, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: redis.Namespace,
		Name:      name,
		Labels:    childLabels(redis.Name),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         flotillav1.GroupVersion.String(),
			Kind:               kind,
			Name:               redis.Name,
			UID:                redis.UID,
			Controller:         new(true),
			BlockOwnerDeletion: new(true),
		}},
	}
}

// keepsData reports whether an empty primary would mean that data was lost.
func keepsData(s *flotillav1.RedisSpec) bool {
	return s.Storage.Type == flotillav1.RedisStoragePVC && s.Persistence.Mode != flotillav1.RedisPersistenceNone
}
