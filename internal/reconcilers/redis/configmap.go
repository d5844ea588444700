// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// A Pod is started, and its container is started again, with the ConfigMap that its spec names. That one is named by its
// content and immutable: a change of the spec, or of the manager, makes another one, which a Pod takes up when it is
// replaced. The record is in a ConfigMap of its own, because all Pods read what is recorded now.
//
// Versions up to v0.1 had one mutable ConfigMap for both. It stays as it is while Pods name it.

const (
	keyConfig   = "redis.conf"
	keySettings = "settings.env"
	keyTopology = "topology.env"
)

// renderConfigMap renders what Pods are started with.
func renderConfigMap(redis *flotillav1.Redis, s *flotillav1.RedisSpec) *corev1.ConfigMap {
	data := map[string]string{keyConfig: renderConfig(s), keySettings: renderSettings(redis, s)}
	maps.Copy(data, scripts())
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: childMeta(redis, configName(redis.Name, shortHash(data))),
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

// renderFormer returns the mutable ConfigMap of an earlier version with the record of now, and all else as it is; nil when
// that changes nothing.
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

// observeConfigMaps reads the ConfigMap of the present spec, the record, and what is left of earlier ones.
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

// observeFormer finds the ConfigMap of an earlier version. Without a record of its own its content matters, so that the
// caches are not taken at their word.
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

// startable reports whether Pods can be started with the present spec: the ConfigMaps that they would mount are there, are
// ours, and have our content, which is that of config.
func (s *state) startable(config *corev1.ConfigMap) bool {
	if s.configMap == nil || s.configMap.DeletionTimestamp != nil || s.record == nil || s.record.DeletionTimestamp != nil {
		return false
	}
	return covers(withoutIdentity(s.configMap), withoutIdentity(config))
}

// templateConfig returns the name of the ConfigMap that new Pods of a StatefulSet are started with; empty for none.
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

// configsToDrop returns the ConfigMaps that no Pod was started with, as far as the caches know. The StatefulSet's
// controller must have seen the template that names another one: with OnDelete it starts Pods from that one only.
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

// dropConfigs removes ConfigMaps after a live look at every Pod of the namespace: a Pod may be started from a template of a
// moment ago, and the container of any Pod may be started again. One that may not be removed does no harm.
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

// configMapsOf names the ConfigMaps that volumes are made of.
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
