// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis/drift"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// A container always starts with the ConfigMap that the spec of its Pod names. This ConfigMap is named by its content
// and immutable: a change of the spec, or of the manager, creates another one, which a Pod uses when it is replaced.
// The record has a separate ConfigMap, because all Pods read the current record.
//
// Versions up to v0.1 had one mutable ConfigMap for both. It is kept while Pods refer to it.

const (
	keyConfig   = "redis.conf"
	keySettings = "settings.env"
	keyTopology = "topology.env"
)

// renderConfigMap renders the files that Pods start with.
func renderConfigMap(redis *flotillav1.Redis, s *flotillav1.RedisSpec) *corev1.ConfigMap {
	data := map[string]string{keyConfig: redisspec.Config(s), keySettings: renderSettings(redis, s)}
	maps.Copy(data, scripts())
	if redisspec.IsSentinel(s) {
		data[keySettings] += renderSentinelSettings(redis, s)
		maps.Copy(data, sentinelScripts())
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: childMeta(redis, configName(redis.Name, redisspec.ShortHash(data))),
		Immutable:  new(true),
		Data:       data,
	}
}

// renderRecord renders the record.
func renderRecord(redis *flotillav1.Redis, s *flotillav1.RedisSpec, t topology, forceEmptyPrimary bool) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: childMeta(redis, recordName(redis.Name)),
		Data:       map[string]string{keyTopology: renderTopology(redis, s, t, forceEmptyPrimary)},
	}
}

// renderFormer returns the mutable ConfigMap of an earlier version with the current record and otherwise unchanged, or
// nil if this changes nothing.
func renderFormer(s *state) *corev1.ConfigMap {
	if s.former == nil || s.former.DeletionTimestamp != nil {
		return nil
	}
	now := map[string]string{
		keyInitialized: fmt.Sprint(currentTopology(s).initialized),
		keyForce:       fmt.Sprint(forceEmptyPrimary(s)),
	}
	var text strings.Builder
	for line := range strings.Lines(s.former.Data[keyTopology]) {
		key, _, _ := strings.Cut(line, "=")
		if value, found := now[key]; found {
			line = key + "=" + value + "\n"
		}
		text.WriteString(line)
	}
	if text.String() == s.former.Data[keyTopology] {
		return nil
	}
	data := maps.Clone(s.former.Data)
	data[keyTopology] = text.String()
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: childMeta(s.redis, s.former.Name),
		Data:       data,
	}
}

// observeConfigMaps reads the ConfigMap of the current spec, the record, and the ConfigMaps of earlier specs.
func (s *state) observeConfigMaps(ctx context.Context, member cluster.Cluster) error {
	var err error
	if s.configMap, err = readChild(ctx, member, s, renderConfigMap(s.redis, &s.spec).Name, &corev1.ConfigMap{}); err != nil {
		return err
	}
	if s.record, err = readChild(ctx, member, s, recordName(s.redis.Name), &corev1.ConfigMap{}); err != nil {
		return err
	}
	var list corev1.ConfigMapList
	err = member.GetClient().List(ctx, &list, client.InNamespace(s.redis.Namespace), client.MatchingLabels(selectorLabels(s.redis.Name)))
	if err != nil {
		return fmt.Errorf("listing ConfigMaps: %w", err)
	}
	for i := range list.Items {
		if found := &list.Items[i]; metav1.IsControlledBy(found, s.redis) && isConfigName(found.Name, s.redis.Name) {
			s.configMaps = append(s.configMaps, found)
		}
	}
	if err := s.observeFormer(ctx, member.GetAPIReader()); err != nil {
		return err
	}
	switch {
	case s.record != nil:
		s.recorded = parseTopology(s.record.Data[keyTopology])
	case s.former != nil:
		s.recorded = parseTopology(s.former.Data[keyTopology])
	}
	return nil
}

// observeFormer finds the ConfigMap of an earlier version. If there is no record, its content is needed, so a miss in
// the cache is confirmed by a live read.
func (s *state) observeFormer(ctx context.Context, reader client.Reader) error {
	name := formerConfigName(s.redis.Name)
	if at := slices.IndexFunc(s.configMaps, func(c *corev1.ConfigMap) bool { return c.Name == name }); at >= 0 {
		s.former = s.configMaps[at]
		return nil
	}
	if s.record != nil {
		return nil
	}
	live := &corev1.ConfigMap{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.redis.Namespace, Name: name}, live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %q: %w", name, err)
	}
	if err == nil && metav1.IsControlledBy(live, s.redis) {
		s.former = live
	}
	return nil
}

// startable reports whether Pods can be started with the current spec: the ConfigMaps that they mount exist, belong to
// the Redis, and have the rendered content.
func (s *state) startable(config *corev1.ConfigMap) bool {
	if s.configMap == nil || s.configMap.DeletionTimestamp != nil || s.record == nil || s.record.DeletionTimestamp != nil {
		return false
	}
	return drift.Covers(drift.WithoutIdentity(s.configMap), drift.WithoutIdentity(config))
}

// templateConfig returns the name of the ConfigMap in the template of a StatefulSet, or "".
func templateConfig(set *appsv1.StatefulSet) string {
	if set == nil {
		return ""
	}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.Name == configVolume && volume.ConfigMap != nil {
			return volume.ConfigMap.Name
		}
	}
	return ""
}

// templateVolumes returns the volumes of new Pods.
func (s *state) templateVolumes() []corev1.Volume {
	if s.statefulSet == nil {
		return nil
	}
	return s.statefulSet.Spec.Template.Spec.Volumes
}

// configsToDrop returns the ConfigMaps that no cached Pod was started with. The StatefulSet controller must have
// observed the template with another ConfigMap: with OnDelete it starts Pods from that template only.
func configsToDrop(s *state, atRest bool) []*corev1.ConfigMap {
	if !atRest || templateConfig(s.statefulSet) != s.configMap.Name {
		return nil
	}
	var drop []*corev1.ConfigMap
	for _, found := range s.configMaps {
		used := found.Name == s.configMap.Name || slices.ContainsFunc(s.pods, func(p pod) bool { return p.config == found.Name })
		if !used && found.DeletionTimestamp == nil {
			drop = append(drop, found)
		}
	}
	return drop
}

// dropConfigs deletes ConfigMaps after a live read of every Pod of the namespace: a Pod may just have been started from
// an older template, and the container of any Pod may restart. A ConfigMap that cannot be deleted does no harm.
func dropConfigs(ctx context.Context, member cluster.Cluster, s *state, drop []*corev1.ConfigMap) error {
	if len(drop) == 0 {
		return nil
	}
	set := &appsv1.StatefulSet{}
	if err := member.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(s.statefulSet), set); err != nil {
		return fmt.Errorf("reading StatefulSet %q: %w", s.statefulSet.Name, err)
	}
	if set.UID != s.statefulSet.UID || set.Status.ObservedGeneration < set.Generation {
		return nil
	}
	var pods corev1.PodList
	if err := member.GetAPIReader().List(ctx, &pods, client.InNamespace(s.redis.Namespace)); err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	used := configMapsOf(set.Spec.Template.Spec.Volumes)
	for i := range pods.Items {
		used = append(used, configMapsOf(pods.Items[i].Spec.Volumes)...)
	}
	for _, config := range drop {
		if slices.Contains(used, config.Name) {
			continue
		}
		err := member.GetClient().Delete(ctx, config, client.Preconditions{UID: &config.UID, ResourceVersion: &config.ResourceVersion})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("removing ConfigMap %q: %w", config.Name, err)
		}
	}
	return nil
}

// configMapsOf returns the names of the ConfigMaps in volumes.
func configMapsOf(volumes []corev1.Volume) []string {
	var names []string
	for _, volume := range volumes {
		if volume.ConfigMap != nil {
			names = append(names, volume.ConfigMap.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil {
				names = append(names, source.ConfigMap.Name)
			}
		}
	}
	return names
}

// scriptFiles are the scripts of the Pods. They only use builtins of a POSIX shell, the server and its client. In mode
// Sentinel, those of its folder replace those of the same name.
//
//go:embed scripts/*.sh scripts/sentinel/*.sh
var scriptFiles embed.FS

// scripts and sentinelScripts return scripts by file name. The maps must not be modified.
var (
	scripts         = sync.OnceValue(func() map[string]string { return readScripts("scripts") })
	sentinelScripts = sync.OnceValue(func() map[string]string { return readScripts("scripts/sentinel") })
)

func readScripts(folder string) map[string]string {
	entries, err := scriptFiles.ReadDir(folder)
	if err != nil {
		panic("reading embedded scripts: " + err.Error())
	}
	found := map[string]string{}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		content, err := scriptFiles.ReadFile(path.Join(folder, entry.Name()))
		if err != nil {
			panic("reading embedded scripts: " + err.Error())
		}
		found[entry.Name()] = string(content)
	}
	return found
}

// topology is the recorded state, which is not rendered from the spec. It is stored in a ConfigMap of the member, so
// that it survives a change of the manager. The start script sources it as shell variables.
type topology struct {
	// initialized reports whether the primary has served, so that an empty volume means lost data.
	initialized bool
	// passwordGenerated reports whether Secret <name>-auth was created, so that its absence means a lost password.
	passwordGenerated bool
	// addresses are the cluster IPs of the Services, by suffix.
	addresses map[string]string

	// The others are of mode Sentinel only. known reports whether the record is of this mode, migrating whether Pods may
	// still be of mode Replication, and forcedPrimary is the ordinal of the Pod that a person has chosen, or "".
	known, migrating bool
	forcedPrimary    string
}

const (
	keyInitialized       = "INITIALIZED"
	keyForce             = "FORCE_EMPTY_PRIMARY"
	keyPasswordGenerated = "PASSWORD_GENERATED"
	prefixAddress        = "ADDRESS_"
	keyAddresses         = "ADDRESSES"
	keyMigrating         = "MIGRATING"
	keyForcePrimary      = "FORCE_PRIMARY"
)

// addressSuffixes are the Services whose addresses are restored.
var addressSuffixes = []string{suffixPrimary, suffixOrdinal0, "1", "2", "3", "4", "5", "6", "7", "8", suffixAny}

// parseTopology parses the record in topology.env. Unknown content counts as not recorded.
func parseTopology(text string) topology {
	t := topology{addresses: map[string]string{}}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case key == keyInitialized:
			t.initialized = value == "true"
		case key == keyPasswordGenerated:
			t.passwordGenerated = value == "true"
		case key == keyMigrating:
			t.known, t.migrating = true, value == "true"
		case strings.HasPrefix(key, prefixAddress):
			suffix := strings.ToLower(strings.TrimPrefix(key, prefixAddress))
			if _, err := netip.ParseAddr(value); err == nil && slices.Contains(addressSuffixes, suffix) {
				t.addresses[suffix] = value
			}
		}
	}
	return t
}

// renderSettings renders settings.env: the parts of the spec that the start script of a Pod needs.
func renderSettings(redis *flotillav1.Redis, s *flotillav1.RedisSpec) string {
	return fmt.Sprintf("PRIMARY_HOST=%s.%s\nAUTH=%s\nPERSISTENCE=%s\nGUARD=%t\n",
		serviceName(redis.Name, suffixOrdinal0), redis.Namespace, s.Auth.Mode, s.Persistence.Mode, keepsData(s))
}

// renderTopology renders topology.env: values for all Pods, whatever they were started with. Every value consists of
// letters, digits, dots, colons and hyphens, and the only one with spaces is quoted, so that a shell can source it.
func renderTopology(redis *flotillav1.Redis, s *flotillav1.RedisSpec, t topology, forceEmptyPrimary bool) string {
	var peers []string
	for ordinal := int32(1); ordinal < *s.Replicas; ordinal++ {
		peers = append(peers, podName(redis.Name, ordinal)+"."+serviceName(redis.Name, suffixHeadless))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "PEERS=\"%s\"\n", strings.Join(peers, " "))
	fmt.Fprintf(&out, "%s=%t\n", keyForce, forceEmptyPrimary)
	fmt.Fprintf(&out, "%s=%t\n", keyInitialized, t.initialized)
	fmt.Fprintf(&out, "%s=%t\n", keyPasswordGenerated, t.passwordGenerated)
	for _, suffix := range slices.Sorted(maps.Keys(t.addresses)) {
		fmt.Fprintf(&out, "%s%s=%s\n", prefixAddress, strings.ToUpper(suffix), t.addresses[suffix])
	}
	if redisspec.IsSentinel(s) {
		fmt.Fprintf(&out, "%s=\"%s\"\n%s=%t\n%s=%s\n", keyAddresses, strings.Join(t.ordinals(), " "), keyMigrating, t.migrating, keyForcePrimary, t.forcedPrimary)
	}
	return out.String()
}
