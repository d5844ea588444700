// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// portName lets a Service follow the port of each Pod while a change of the port is rolled out.
const portName = "redis"

// renderServices renders the Services, sorted by name.
func renderServices(redis *flotillav1.Redis, s *flotillav1.RedisSpec, t serviceTopology) []*corev1.Service {
	primary := map[string]string{flotillav1.LabelRedis: redis.Name, "statefulset.kubernetes.io/pod-name": podName(redis.Name, 0)}
	all := selectorLabels(redis.Name)

	// Clients of the primary see LOADING instead of a refused connection, and replicas find it as soon as it listens. The
	// Service for replicas stays internal to the cluster, whatever the type for clients is.
	ordinal0 := renderService(redis, s, suffixOrdinal0, primary, true)
	toPrimary := renderService(redis, s, suffixPrimary, primary, true)
	toAny := renderService(redis, s, suffixAny, all, false)
	headless := renderService(redis, s, suffixHeadless, all, true)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	services := []*corev1.Service{ordinal0, toAny, headless, toPrimary}
	if redisspec.IsSentinel(s) {
		services = addSentinelServices(services, redis, s, t)
	}
	for _, open := range []*corev1.Service{toPrimary, toAny} {
		open.Spec.Type = s.Service.Type
		open.Annotations = plain(s.Service.Annotations)
	}
	return services
}

// plain returns metadata of a spec as that of an object; nil if there is none.
func plain(values map[string]flotillav1.RedisMetadataValue) map[string]string {
	var all map[string]string
	for key, value := range values {
		if all == nil {
			all = map[string]string{}
		}
		all[key] = string(value)
	}
	return all
}

func renderService(redis *flotillav1.Redis, s *flotillav1.RedisSpec, suffix string, selector map[string]string, publishNotReady bool) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: childMeta(redis, serviceName(redis.Name, suffix)),
		Spec: corev1.ServiceSpec{
			Type:                     corev1.ServiceTypeClusterIP,
			Selector:                 selector,
			PublishNotReadyAddresses: publishNotReady,
			Ports:                    []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: s.Port, TargetPort: intstr.FromString(portName)}},
		},
	}
}

// renderBudget allows drains to evict one Pod at a time. With one replica, that one may be evicted too: a budget that
// no drain can satisfy would only block the maintenance of nodes.
func renderBudget(redis *flotillav1.Redis) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: childMeta(redis, redis.Name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: selectorLabels(redis.Name)},
		},
	}
}

// renderSecret renders the Secret with a generated password. It has no owner, so that it is kept like the data it
// protects.
func renderSecret(redis *flotillav1.Redis, password string) *corev1.Secret {
	labels := keptLabels(redis.Name)
	labels[flotillav1.LabelRedisAuth] = "true"
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: redis.Namespace, Name: secretName(redis.Name), Labels: labels, Annotations: keptAnnotations(nil)},
		Type:       corev1.SecretTypeOpaque,
		StringData: map[string]string{flotillav1.RedisSecretKeyPassword: password},
	}
}

// previousKey returns the key of the previous password of key. A Secret may contain passwords under several keys.
func previousKey(key string) string {
	if key == flotillav1.RedisSecretKeyPassword {
		return flotillav1.RedisSecretKeyPrevious
	}
	return flotillav1.RedisSecretKeyPrevious + "-" + key
}

// secretRef returns the Secret and the key with the password.
func secretRef(redis *flotillav1.Redis, s *flotillav1.RedisSpec) flotillav1.RedisSecretRef {
	if s.Auth.SecretRef != nil {
		return *s.Auth.SecretRef
	}
	return flotillav1.RedisSecretRef{Name: secretName(redis.Name), Key: flotillav1.RedisSecretKeyPassword}
}
