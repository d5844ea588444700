// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// sentinel returns a change to mode Sentinel with three replicas, and then to more.
func sentinel(more func(*flotillav1.RedisSpec)) func(*flotillav1.Redis) {
	return func(r *flotillav1.Redis) {
		r.Spec.Mode, r.Spec.Replicas = flotillav1.RedisModeSentinel, new(int32(3))
		if more != nil {
			more(&r.Spec)
		}
	}
}

// sentinelValidations are new Redises in mode Sentinel.
func sentinelValidations() map[string]schemaCase {
	type spec = flotillav1.RedisSpec
	return map[string]schemaCase{
		"sentinel":                      {sentinel(nil), ""},
		"sentinel, nine replicas":       {sentinel(func(s *spec) { s.Replicas = new(int32(9)) }), ""},
		"sentinel, stopped":             {sentinel(func(s *spec) { s.Replicas = new(int32(0)) }), ""},
		"sentinel, default of replicas": {sentinel(func(s *spec) { s.Replicas = nil }), "set replicas to 3 or more"},
		"sentinel, two replicas":        {sentinel(func(s *spec) { s.Replicas = new(int32(2)) }), "set replicas to 3 or more"},
		"sentinel, port of the proxy":   {sentinel(func(s *spec) { s.Port = 16379 }), "port 16379 is the proxy's"},
		"port of no proxy":              {func(r *flotillav1.Redis) { r.Spec.Port = 16379 }, ""},
		"sentinel, other port":          {sentinel(func(s *spec) { s.Port = 7000 }), ""},
		"sentinel, all replicas needed": {sentinel(func(s *spec) { s.Replication.MinReplicasToWrite = 2 }), "to replicas-2 or less"},
		"sentinel, one replica needed":  {sentinel(func(s *spec) { s.Replication.MinReplicasToWrite = 1 }), ""},
		"sentinel, short grace":         {sentinel(func(s *spec) { s.TerminationGracePeriodSeconds = new(int64(59)) }), "set terminationGracePeriodSeconds to 60 or more"},
		"sentinel settings elsewhere":   {func(r *flotillav1.Redis) { r.Spec.Sentinel = &flotillav1.RedisSentinel{} }, "sentinel and proxy need mode Sentinel"},
		"proxy settings elsewhere":      {func(r *flotillav1.Redis) { r.Spec.Proxy = &flotillav1.RedisProxy{} }, "sentinel and proxy need mode Sentinel"},
		"sentinel, impatient": {sentinel(func(s *spec) {
			s.Sentinel = &flotillav1.RedisSentinel{DownAfterMilliseconds: 999}
		}), "greater than or equal to 1000"},
		"sentinel, patient": {sentinel(func(s *spec) {
			s.Sentinel = &flotillav1.RedisSentinel{DownAfterMilliseconds: 60001}
		}), "less than or equal to 60000"},
		"sentinel, no time to fail over": {sentinel(func(s *spec) {
			s.Sentinel = &flotillav1.RedisSentinel{FailoverTimeoutMilliseconds: 4999}
		}), "greater than or equal to 5000"},
		"sentinel, much time to fail over": {sentinel(func(s *spec) {
			s.Sentinel = &flotillav1.RedisSentinel{FailoverTimeoutMilliseconds: 600001}
		}), "less than or equal to 600000"},
		"proxy for few": {sentinel(func(s *spec) { s.Proxy = &flotillav1.RedisProxy{MaxConnections: 99} }), "greater than or equal to 100"},
		"proxy for all": {sentinel(func(s *spec) { s.Proxy = &flotillav1.RedisProxy{MaxConnections: 50001} }), "less than or equal to 50000"},
		"sentinel with everything": {sentinel(func(s *spec) {
			resources := &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
			s.Sentinel = &flotillav1.RedisSentinel{DownAfterMilliseconds: 3000, FailoverTimeoutMilliseconds: 20000, Resources: resources}
			s.Proxy = &flotillav1.RedisProxy{Image: "haproxy:2.6", MaxConnections: 100, Resources: resources}
		}), ""},
	}
}

// sentinelTransitions are changes of a Redis in mode Sentinel with three replicas.
func sentinelTransitions() map[string]schemaCase {
	return map[string]schemaCase{
		"back to Replication":  {func(r *flotillav1.Redis) { r.Spec.Mode = flotillav1.RedisModeReplication }, "mode cannot go back to Replication"},
		"back to the default":  {func(r *flotillav1.Redis) { r.Spec.Mode = "" }, "mode cannot go back to Replication"},
		"another port":         {func(r *flotillav1.Redis) { r.Spec.Port = 7000 }, "port and auth.mode cannot change in mode Sentinel"},
		"no password":          {func(r *flotillav1.Redis) { r.Spec.Auth.Mode = flotillav1.RedisAuthDisabled }, "port and auth.mode cannot change in mode Sentinel"},
		"the same port":        {func(r *flotillav1.Redis) { r.Spec.Port, r.Spec.Auth.Mode = 6379, flotillav1.RedisAuthPassword }, ""},
		"fewer than can vote":  {func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) }, "set replicas to 3 or more"},
		"none at all":          {func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(0)) }, ""},
		"more":                 {func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(5)) }, ""},
		"another proxy":        {func(r *flotillav1.Redis) { r.Spec.Proxy = &flotillav1.RedisProxy{Image: "haproxy:3.0"} }, ""},
		"more patience":        {func(r *flotillav1.Redis) { r.Spec.Sentinel = &flotillav1.RedisSentinel{DownAfterMilliseconds: 8000} }, ""},
		"a larger data volume": {func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("2Gi") }, ""},
	}
}

func TestRedis_SentinelTransitions(t *testing.T) {
	namespace := server.Namespace(t)
	redis := newRedis(func(r *flotillav1.Redis) { r.Namespace = namespace })
	sentinel(nil)(redis)
	if err := server.Client.Create(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	for name, tc := range sentinelTransitions() {
		t.Run(name, func(t *testing.T) {
			changed := redis.DeepCopy()
			tc.change(changed)
			compareAnswer(t, server.Client.Update(t.Context(), changed, client.DryRunAll), tc.want)
		})
	}
}

// TestRedis_SentinelIsEntered changes the mode of a Redis, which may ask for more replicas at the same time, but not for
// what would restart all Pods together.
func TestRedis_SentinelIsEntered(t *testing.T) {
	namespace := server.Namespace(t)
	redis := newRedis(func(r *flotillav1.Redis) { r.Namespace = namespace })
	if err := server.Client.Create(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]schemaCase{
		"with the replicas":   {sentinel(nil), ""},
		"without":             {func(r *flotillav1.Redis) { r.Spec.Mode = flotillav1.RedisModeSentinel }, "set replicas to 3 or more"},
		"with another port":   {sentinel(func(s *flotillav1.RedisSpec) { s.Port = 7000 }), "nor together with the mode"},
		"without the auth":    {sentinel(func(s *flotillav1.RedisSpec) { s.Auth.Mode = flotillav1.RedisAuthDisabled }), "nor together with the mode"},
		"with another volume": {sentinel(func(s *flotillav1.RedisSpec) { s.Storage.Size = resource.MustParse("2Gi") }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			changed := redis.DeepCopy()
			tc.change(changed)
			compareAnswer(t, server.Client.Update(t.Context(), changed, client.DryRunAll), tc.want)
		})
	}
}

// TestRedis_SentinelScale scales through the subresource, to which the rules apply as well.
func TestRedis_SentinelScale(t *testing.T) {
	namespace := server.Namespace(t)
	redis := newRedis(func(r *flotillav1.Redis) { r.Namespace = namespace })
	sentinel(nil)(redis)
	if err := server.Client.Create(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	for replicas, want := range map[int32]string{0: "", 1: "set replicas to 3 or more", 2: "set replicas to 3 or more", 3: "", 5: "", 10: "less than or equal to 9"} {
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		compareAnswer(t, server.Client.SubResource("scale").Update(t.Context(), redis.DeepCopy(), client.WithSubResourceBody(scale), client.DryRunAll), want)
	}
}
