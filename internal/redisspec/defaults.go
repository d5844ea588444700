// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redisspec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// defaultMaxMemoryPercent reserves memory for replication buffers and for the copy-on-write of a fork.
const defaultMaxMemoryPercent = 75

var defaultStorageSize = resource.MustParse("1Gi")

// Of returns the spec of a Redis with the defaults of the schema, which objects that were stored before a default
// existed lack. In mode Sentinel it has the values that take effect.
func Of(redis *flotillav1.Redis) flotillav1.RedisSpec {
	s := *redis.Spec.DeepCopy()
	s.Mode = cmp.Or(s.Mode, flotillav1.RedisModeReplication)
	s.Image = cmp.Or(s.Image, "redis:8.2")
	s.Port = cmp.Or(s.Port, 6379)
	s.Storage.Type = cmp.Or(s.Storage.Type, flotillav1.RedisStoragePVC)
	s.Persistence.Mode = cmp.Or(s.Persistence.Mode, flotillav1.RedisPersistenceAOF)
	s.Persistence.AppendFsync = cmp.Or(s.Persistence.AppendFsync, "everysec")
	s.Auth.Mode = cmp.Or(s.Auth.Mode, flotillav1.RedisAuthPassword)
	s.PodAntiAffinity = cmp.Or(s.PodAntiAffinity, flotillav1.RedisPodAntiAffinityPreferred)
	s.ImagePullPolicy = cmp.Or(s.ImagePullPolicy, "IfNotPresent")
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
		s.Auth.SecretRef.Key = cmp.Or(s.Auth.SecretRef.Key, flotillav1.RedisSecretKeyPassword)
	}
	if s.Memory == nil {
		s.Memory = &flotillav1.RedisMemory{}
	}
	s.Memory.MaxMemoryPolicy = cmp.Or(s.Memory.MaxMemoryPolicy, "noeviction")
	s.Replication.MinReplicasMaxLagSeconds = cmp.Or(s.Replication.MinReplicasMaxLagSeconds, 10)
	s.Service.Type = cmp.Or(s.Service.Type, corev1.ServiceTypeClusterIP)
	s.UpdateStrategy.Primary = cmp.Or(s.UpdateStrategy.Primary, flotillav1.RedisPrimaryAutomatic)
	if s.PodDisruptionBudget.Enabled == nil {
		s.PodDisruptionBudget.Enabled = new(true)
	}
	if s.Mode == flotillav1.RedisModeSentinel {
		setSentinelDefaults(&s)
	}
	return s
}

// setSentinelDefaults sets the defaults of mode Sentinel. A primary that is cut off stops to accept writes at about the
// time at which another one takes over, so its replicas count for no longer than that.
func setSentinelDefaults(s *flotillav1.RedisSpec) {
	if s.Sentinel == nil {
		s.Sentinel = &flotillav1.RedisSentinel{}
	}
	if s.Proxy == nil {
		s.Proxy = &flotillav1.RedisProxy{}
	}
	s.Sentinel.DownAfterMilliseconds = cmp.Or(s.Sentinel.DownAfterMilliseconds, 5000)
	s.Sentinel.FailoverTimeoutMilliseconds = cmp.Or(s.Sentinel.FailoverTimeoutMilliseconds, 10000)
	s.Proxy.Image = cmp.Or(s.Proxy.Image, "haproxy:3.2")
	s.Proxy.MaxConnections = cmp.Or(s.Proxy.MaxConnections, 2000)
	if s.Sentinel.Resources == nil {
		s.Sentinel.Resources = requests("20m", "32Mi")
	}
	if s.Proxy.Resources == nil {
		s.Proxy.Resources = requests("20m", "48Mi")
	}
	s.Replication.MinReplicasToWrite = max(s.Replication.MinReplicasToWrite, 1)
	s.Replication.MinReplicasMaxLagSeconds = min(s.Replication.MinReplicasMaxLagSeconds, max(s.Sentinel.DownAfterMilliseconds/1000, 1))
}

func requests(cpu, memory string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

// MaxMemory returns the limit of the data set in bytes, or 0 if there is none. The spec must have its defaults.
func MaxMemory(s *flotillav1.RedisSpec) int64 {
	if s.Memory.MaxMemory != nil {
		return max(s.Memory.MaxMemory.Value(), 0)
	}
	percent := int64(defaultMaxMemoryPercent)
	if s.Memory.MaxMemoryPercent != nil {
		percent = int64(*s.Memory.MaxMemoryPercent)
	}
	// Divide first, because the product of a large limit would overflow.
	limit := s.Resources.Limits.Memory().Value()
	return limit/100*percent + limit%100*percent/100
}
