// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func newRedis(change func(*flotillav1.Redis)) *flotillav1.Redis {
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cache"}}
	change(redis)
	return redis
}

// schemaCase is a Redis, or a change of one, and what the API server says of it: nothing when it takes it.
type schemaCase struct {
	change func(*flotillav1.Redis)
	want   string
}

func redisValidations() map[string]schemaCase {
	percent := int32(50)
	quantity := resource.MustParse("1Gi")
	return map[string]schemaCase{
		"nothing but a name":         {func(*flotillav1.Redis) {}, ""},
		"name starts with a digit":   {func(r *flotillav1.Redis) { r.Name = "1cache" }, "starts with a letter"},
		"name of 41 characters":      {func(r *flotillav1.Redis) { r.Name = strings.Repeat("a", 41) }, "at most 40 characters"},
		"name of 40 characters":      {func(r *flotillav1.Redis) { r.Name = strings.Repeat("a", 40) }, ""},
		"too many replicas":          {func(r *flotillav1.Redis) { n := int32(10); r.Spec.Replicas = &n }, "less than or equal to 9"},
		"reserved port":              {func(r *flotillav1.Redis) { r.Spec.Port = 26379 }, "reserved"},
		"no persistence on a volume": {func(r *flotillav1.Redis) { r.Spec.Persistence.Mode = "None" }, "acceptDataLoss"},
		"no persistence, accepted": {func(r *flotillav1.Redis) {
			r.Spec.Persistence = flotillav1.RedisPersistence{Mode: "None", AcceptDataLoss: true}
		}, ""},
		"no persistence on EmptyDir": {func(r *flotillav1.Redis) { r.Spec.Persistence.Mode = "None"; r.Spec.Storage.Type = "EmptyDir" }, ""},
		"percent without a limit":    {func(r *flotillav1.Redis) { r.Spec.Memory = &flotillav1.RedisMemory{MaxMemoryPercent: &percent} }, "resources.limits.memory"},
		"percent and bytes": {func(r *flotillav1.Redis) {
			r.Spec.Memory = &flotillav1.RedisMemory{MaxMemoryPercent: &percent, MaxMemory: &quantity}
		}, "not both"},
		"percent with a limit": {func(r *flotillav1.Redis) {
			r.Spec.Memory = &flotillav1.RedisMemory{MaxMemoryPercent: &percent}
			r.Spec.Resources.Limits = corev1.ResourceList{"memory": quantity}
		}, ""},
		"directive of the operator":   {config("requirepass", "x"), "only tunables"},
		"directive that loads code":   {config("loadmodule", "/x.so"), "only tunables"},
		"directive in capitals":       {config("Timeout", "1"), "lower-case"},
		"value with a line break":     {config("timeout", "1\nrequirepass x"), "should match"},
		"value with a quote":          {config("notify-keyspace-events", `"KEA`), "should match"},
		"tunable":                     {config("timeout", "300"), ""},
		"tunable with an empty value": {config("timeout", ""), "at least 1 chars"},
		"secret without auth": {func(r *flotillav1.Redis) {
			r.Spec.Auth = flotillav1.RedisAuth{Mode: "Disabled", SecretRef: &flotillav1.RedisSecretRef{Name: "a"}}
		}, "auth.secretRef needs auth.mode Password"},
		"writes that nobody confirms": {func(r *flotillav1.Redis) { r.Spec.Replication.MinReplicasToWrite = 1 }, "ask for more replicas"},
		"label that is none": {func(r *flotillav1.Redis) {
			r.Spec.PodMetadata = &flotillav1.RedisPodMetadata{Labels: map[string]flotillav1.RedisMetadataValue{"a b": "c"}}
		}, "correct the key or the value"},
		"label with a value that is none": {func(r *flotillav1.Redis) {
			r.Spec.PodMetadata = &flotillav1.RedisPodMetadata{Labels: map[string]flotillav1.RedisMetadataValue{"a": "c d"}}
		}, "correct the key or the value"},
		"label that selects Pods": {func(r *flotillav1.Redis) {
			r.Spec.PodMetadata = &flotillav1.RedisPodMetadata{Labels: map[string]flotillav1.RedisMetadataValue{"flotilla.dev/redis": "c"}}
		}, "choose other keys"},
		"label of Kubernetes": {func(r *flotillav1.Redis) {
			r.Spec.PodMetadata = &flotillav1.RedisPodMetadata{Labels: map[string]flotillav1.RedisMetadataValue{"app.kubernetes.io/name": "c"}}
		}, "choose other keys"},
		"annotation that is none": {func(r *flotillav1.Redis) {
			r.Spec.PodMetadata = &flotillav1.RedisPodMetadata{Annotations: map[string]flotillav1.RedisMetadataValue{"/": "c"}}
		}, "has a key that is none"},
		"annotation of ours": {func(r *flotillav1.Redis) {
			r.Spec.PodMetadata = &flotillav1.RedisPodMetadata{Annotations: map[string]flotillav1.RedisMetadataValue{"flotilla.dev/spec-hash": "c"}}
		}, "choose other keys"},
		"own metadata of Pods": {func(r *flotillav1.Redis) {
			r.Spec.PodMetadata = &flotillav1.RedisPodMetadata{
				Labels:      map[string]flotillav1.RedisMetadataValue{"team": "shop", "example.com/tier": ""},
				Annotations: map[string]flotillav1.RedisMetadataValue{"prometheus.io/scrape": "true, of course"},
			}
		}, ""},
		"annotation of ours on Services": {func(r *flotillav1.Redis) {
			r.Spec.Service.Annotations = map[string]flotillav1.RedisMetadataValue{"flotilla.dev/applied-hash": "c"}
		}, "choose other keys"},
		"annotation of a Service that is none": {func(r *flotillav1.Redis) {
			r.Spec.Service.Annotations = map[string]flotillav1.RedisMetadataValue{"a b": "c"}
		}, "has a key that is none"},
		"type of Service":            {func(r *flotillav1.Redis) { r.Spec.Service.Type = "ExternalName" }, "supported values"},
		"load balancer":              {func(r *flotillav1.Redis) { r.Spec.Service.Type = "LoadBalancer" }, ""},
		"load balancer, no password": {func(r *flotillav1.Redis) { r.Spec.Service.Type, r.Spec.Auth.Mode = "LoadBalancer", "Disabled" }, "set auth.mode: Password"},
		"who updates the primary":    {func(r *flotillav1.Redis) { r.Spec.UpdateStrategy.Primary = "Never" }, "supported values"},
		"nine ways to spread": {func(r *flotillav1.Redis) {
			r.Spec.TopologySpreadConstraints = make([]corev1.TopologySpreadConstraint, 9)
		}, "at most 8 items"},
		"writes that one confirms": {func(r *flotillav1.Redis) {
			n := int32(2)
			r.Spec.Replicas, r.Spec.Replication.MinReplicasToWrite = &n, 1
		}, ""},
		"port below":                {func(r *flotillav1.Redis) { r.Spec.Port = 1023 }, "greater than or equal to 1024"},
		"port above":                {func(r *flotillav1.Redis) { r.Spec.Port = 65536 }, "less than or equal to 65535"},
		"negative replicas":         {func(r *flotillav1.Redis) { n := int32(-1); r.Spec.Replicas = &n }, "greater than or equal to 0"},
		"a mode of no kind":         {func(r *flotillav1.Redis) { r.Spec.Mode = "Cluster" }, `supported values: "Replication", "Sentinel"`},
		"an image that is too long": {func(r *flotillav1.Redis) { r.Spec.Image = strings.Repeat("a", 513) }, "may not be more than 512"},
		"fsync of no kind":          {func(r *flotillav1.Redis) { r.Spec.Persistence.AppendFsync = "sometimes" }, `"always", "everysec", "no"`},
		"a policy of no kind":       {func(r *flotillav1.Redis) { r.Spec.Memory = &flotillav1.RedisMemory{MaxMemoryPolicy: "any"} }, "noeviction"},
		"percent of everything": {func(r *flotillav1.Redis) {
			n := int32(96)
			r.Spec.Memory = &flotillav1.RedisMemory{MaxMemoryPercent: &n}
		}, "less than or equal to 95"},
		"a grace too short":             {func(r *flotillav1.Redis) { n := int64(29); r.Spec.TerminationGracePeriodSeconds = &n }, "greater than or equal to 30"},
		"the secret without a name":     {func(r *flotillav1.Redis) { r.Spec.Auth.SecretRef = &flotillav1.RedisSecretRef{} }, "at least 1 chars"},
		"directive of replication":      {config("replicaof", "a 1"), "only tunables"},
		"directive of memory":           {config("maxmemory", "1"), "only tunables"},
		"directive of persistence":      {config("appendonly", "no"), "only tunables"},
		"negative size":                 {func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("-1") }, "more than zero"},
		"empty placement":               {placement(flotillav1.Placement{}), "say all: true"},
		"empty selector":                {placement(flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{}}), "say all: true"},
		"all":                           {placement(flotillav1.Placement{All: true}), ""},
		"all and names":                 {placement(flotillav1.Placement{All: true, Clusters: []string{"a"}}), "excludes"},
		"rollout":                       {rollout(flotillav1.Rollout{Steps: []string{"1", "25%", "100%"}, Batch: "50%", MaxUnready: 2, SoakSeconds: 60}), ""},
		"rollout in parts of a cluster": {rollout(flotillav1.Rollout{Batch: "1.5"}), "spec.placement.rollout.batch"},
		"rollout of nothing":            {rollout(flotillav1.Rollout{Batch: "0"}), "spec.placement.rollout.batch"},
		"rollout beyond all":            {rollout(flotillav1.Rollout{Batch: "101%"}), "spec.placement.rollout.batch"},
		"rollout step of nothing":       {rollout(flotillav1.Rollout{Steps: []string{"1", "0%"}}), "spec.placement.rollout.steps[1]"},
		"rollout with too many steps":   {rollout(flotillav1.Rollout{Steps: slices.Repeat([]string{"1"}, 21)}), "must have at most 20"},
		"rollout that allows too much":  {rollout(flotillav1.Rollout{MaxUnready: 1001}), "less than or equal to 1000"},
		"rollout without time":          {rollout(flotillav1.Rollout{ProgressDeadlineSeconds: 9}), "greater than or equal to 10"},
		"rollout that reverts":          {rollout(flotillav1.Rollout{OnHalt: flotillav1.OnHaltRevert}), ""},
		"rollout that stops":            {rollout(flotillav1.Rollout{OnHalt: flotillav1.OnHaltStop}), ""},
		"rollout that does neither":     {rollout(flotillav1.Rollout{OnHalt: "Continue"}), "onHalt"},
		"rollout that soaks for ever":   {rollout(flotillav1.Rollout{SoakSeconds: 86401}), "less than or equal to 86400"},
		"rollout in order of nothing":   {rollout(flotillav1.Rollout{Order: &flotillav1.RolloutOrder{Label: "stage"}}), "spec.placement.rollout.order.values"},
		"rollout in order of no label":  {rollout(flotillav1.Rollout{Order: &flotillav1.RolloutOrder{Values: []string{"a"}}}), "spec.placement.rollout.order.label"},
		"rollout with a group twice":    {rollout(flotillav1.Rollout{Order: &flotillav1.RolloutOrder{Label: "stage", Values: []string{"a", "a"}}}), "Duplicate value"},
		"cluster name that is no label": {placement(flotillav1.Placement{Clusters: []string{"A_b"}}), "should match"},
		"a type of storage of later":    {func(r *flotillav1.Redis) { r.Spec.Storage.Type = "HostPath" }, `"PersistentVolumeClaim", "EmptyDir"`},
		"a retention of no kind":        {func(r *flotillav1.Redis) { r.Spec.Storage.RetentionPolicy = "Archive" }, `"Retain", "Delete"`},
		"a persistence of no kind":      {func(r *flotillav1.Redis) { r.Spec.Persistence.Mode = "Tape" }, `"AOF"`},
		"an auth of no kind":            {func(r *flotillav1.Redis) { r.Spec.Auth.Mode = "Certificate" }, `"Password", "Disabled"`},
		"a spread of no kind":           {func(r *flotillav1.Redis) { r.Spec.PodAntiAffinity = "Always" }, `"Preferred", "Required", "Disabled"`},
		"fewer than no confirmations":   {func(r *flotillav1.Redis) { r.Spec.Replication.MinReplicasToWrite = -1 }, "greater than or equal to 0"},
		"directive that is too long":    {config(strings.Repeat("a", 65), "1"), "lower-case"},
		"override for nobody":           {override(flotillav1.Override{Patch: &apiextensionsv1.JSON{Raw: []byte(`{}`)}}), "either clusters or a clusterSelector"},
		"override":                      {override(flotillav1.Override{Clusters: []string{"a"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas":2}`)}}), ""},
		"override that leaves fields":   {override(flotillav1.Override{Clusters: []string{"a"}, LeaveToMember: []string{"replicas", "resources.limits", "nodeSelector.example.com/zone"}}), ""},
		"override that sets and leaves": {override(flotillav1.Override{Clusters: []string{"a"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas":2}`)}, LeaveToMember: []string{"image"}}), ""},
		"override that does nothing":    {override(flotillav1.Override{Clusters: []string{"a"}}), "name those that the member decides in leaveToMember"},
		"override with an empty patch":  {override(flotillav1.Override{Clusters: []string{"a"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{}`)}}), "the patch is empty: set a field in it"},
		"an empty patch beside leaveToMember": {override(flotillav1.Override{
			Clusters: []string{"a"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{}`)}, LeaveToMember: []string{"image"},
		}), "the patch is empty: set a field in it, or remove it"},
		"override that leaves a list item":   {override(flotillav1.Override{Clusters: []string{"a"}, LeaveToMember: []string{"tolerations[0]"}}), "should match"},
		"override that leaves a field twice": {override(flotillav1.Override{Clusters: []string{"a"}, LeaveToMember: []string{"image", "image"}}), "Duplicate value"},
		"override that leaves too much":      {override(flotillav1.Override{Clusters: []string{"a"}, LeaveToMember: make([]string, 33)}), "at most 32 items"},
		"override that is not an object":     {override(flotillav1.Override{Clusters: []string{"a"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`3`)}}), "must be of type object"},
	}
}

func TestRedis_Validation(t *testing.T) {
	for _, cases := range []map[string]schemaCase{redisValidations(), sentinelValidations()} {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) { expectAnswer(t, newRedis(tc.change), tc.want) })
		}
	}
}

func redisTransitions() map[string]schemaCase {
	class := "fast"
	return map[string]schemaCase{
		"storage grows":   {func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("2Gi") }, ""},
		"storage shrinks": {func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("1000Mi") }, ""},
		"storage type":    {func(r *flotillav1.Redis) { r.Spec.Storage.Type = "EmptyDir" }, "create another Redis"},
		"storage class":   {func(r *flotillav1.Redis) { r.Spec.Storage.StorageClassName = &class }, "create another Redis"},
		"storage stays":   {func(r *flotillav1.Redis) { r.Spec.Storage.Size = resource.MustParse("1024Mi") }, ""},
		"retention":       {func(r *flotillav1.Redis) { r.Spec.Storage.RetentionPolicy = "Delete" }, ""},
		"AOF to RDB":      {func(r *flotillav1.Redis) { r.Spec.Persistence.Mode = "RDB" }, "only change between AOF and AOFAndRDB"},
		"AOF to nothing": {func(r *flotillav1.Redis) {
			r.Spec.Persistence = flotillav1.RedisPersistence{Mode: "None", AcceptDataLoss: true}
		}, "only change between AOF and AOFAndRDB"},
		"mode not given":     {func(r *flotillav1.Redis) { r.Spec.Persistence = flotillav1.RedisPersistence{} }, ""},
		"fsync":              {func(r *flotillav1.Redis) { r.Spec.Persistence.AppendFsync = "always" }, ""},
		"AOF to both":        {func(r *flotillav1.Redis) { r.Spec.Persistence.Mode = "AOFAndRDB" }, ""},
		"port":               {func(r *flotillav1.Redis) { r.Spec.Port = 7000 }, ""},
		"replicas to nought": {func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32) }, ""},
	}
}

func TestRedis_Transitions(t *testing.T) {
	namespace := server.Namespace(t)
	redis := newRedis(func(r *flotillav1.Redis) { r.Namespace = namespace })
	if err := server.Client.Create(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	for name, tc := range redisTransitions() {
		t.Run(name, func(t *testing.T) {
			changed := redis.DeepCopy()
			tc.change(changed)
			compareAnswer(t, server.Client.Update(t.Context(), changed, client.DryRunAll), tc.want)
		})
	}
}

// TestRedis_persistence_changes_lose_no_data tries every change of the mode, on both types of storage.
func TestRedis_persistence_changes_lose_no_data(t *testing.T) {
	namespace := server.Namespace(t)
	modes := []string{"AOF", "AOFAndRDB", "RDB", "None"}
	for _, storage := range []string{"PersistentVolumeClaim", "EmptyDir"} {
		for i, from := range modes {
			redis := newRedis(func(r *flotillav1.Redis) {
				r.Namespace, r.Name = namespace, fmt.Sprintf("%s-%d", strings.ToLower(storage), i)
				r.Spec.Storage.Type, r.Spec.Persistence = storage, flotillav1.RedisPersistence{Mode: from, AcceptDataLoss: true}
			})
			if err := server.Client.Create(t.Context(), redis); err != nil {
				t.Fatal(err)
			}
			for _, to := range modes {
				want := "only change between AOF and AOFAndRDB"
				if from == to || storage == "EmptyDir" || strings.HasPrefix(from, "AOF") && strings.HasPrefix(to, "AOF") {
					want = ""
				}
				changed := redis.DeepCopy()
				changed.Spec.Persistence.Mode, changed.Spec.Port = to, 7000
				t.Run(storage+"/"+from+" to "+to, func(t *testing.T) {
					compareAnswer(t, server.Client.Update(t.Context(), changed, client.DryRunAll), want)
				})
			}
		}
	}
}

func TestMemberCluster_NameIsALabel(t *testing.T) {
	mc := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "eu.one"},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "a", Name: "b"}},
	}
	expectAnswer(t, mc, "a cluster name is a DNS label")
}

func config(key, value string) func(*flotillav1.Redis) {
	return func(r *flotillav1.Redis) {
		r.Spec.Config = map[string]flotillav1.ConfigValue{key: flotillav1.ConfigValue(value)}
	}
}

func rollout(r flotillav1.Rollout) func(*flotillav1.Redis) {
	return placement(flotillav1.Placement{Clusters: []string{"a"}, Rollout: &r})
}

func placement(p flotillav1.Placement) func(*flotillav1.Redis) {
	return func(r *flotillav1.Redis) { r.Spec.Placement = &p }
}

func override(o flotillav1.Override) func(*flotillav1.Redis) {
	return placement(flotillav1.Placement{Clusters: []string{"a"}, Overrides: []flotillav1.Override{o}})
}
