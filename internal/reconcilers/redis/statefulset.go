// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

const (
	containerName = "redis"
	configVolume  = "config"
	authVolume    = "auth"
	recordVolume  = "record"
	configDir     = "/etc/flotilla"
	recordDir     = "/run/flotilla/record"
	authDir       = "/run/flotilla/auth"
	dataDir       = "/data"

	// podAntiAffinityDisabled is the third value of podAntiAffinity.
	podAntiAffinityDisabled = "Disabled"

	// redisUser is the user of the official images.
	redisUser = 999
	// startupFailures gives a server ten minutes to listen; loading data happens after that and counts as alive.
	startupFailures = 600
)

// renderStatefulSet renders the StatefulSet, whose Pods start with the ConfigMap of that name. live is the existing one
// or nil: immutable fields keep their values.
func renderStatefulSet(redis *flotillav1.Redis, s *flotillav1.RedisSpec, hash, config string, live *appsv1.StatefulSet) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: childMeta(redis, redis.Name),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            s.Replicas,
			ServiceName:         serviceName(redis.Name, suffixHeadless),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			Selector:            &metav1.LabelSelector{MatchLabels: selectorLabels(redis.Name)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: renderPodMetadata(redis, s, hash, config),
				Spec:       renderPodSpec(redis, s, config),
			},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
	if s.Storage.Type == flotillav1.RedisStoragePVC {
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{renderClaim(redis, s)}
	}
	if live != nil {
		set.Spec.VolumeClaimTemplates = live.Spec.VolumeClaimTemplates
	}
	return set
}

// renderPodMetadata overrides the user's metadata with that of the operator, by which the Pods are found.
func renderPodMetadata(redis *flotillav1.Redis, s *flotillav1.RedisSpec, hash, config string) metav1.ObjectMeta {
	labels, annotations := map[string]string{}, map[string]string{}
	if s.PodMetadata != nil {
		maps.Copy(labels, plain(s.PodMetadata.Labels))
		maps.Copy(annotations, plain(s.PodMetadata.Annotations))
	}
	maps.Copy(labels, childLabels(redis.Name))
	if redisspec.IsSentinel(s) {
		labels[flotillav1.LabelRedisProxy] = "true"
	}
	annotations[flotillav1.AnnotationSpecHash] = hash
	annotations[flotillav1.AnnotationConfig] = config
	return metav1.ObjectMeta{Labels: labels, Annotations: annotations}
}

func renderClaim(redis *flotillav1.Redis, s *flotillav1.RedisSpec) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: dataVolume, Labels: keptLabels(redis.Name), Annotations: keptAnnotations(nil)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: s.Storage.StorageClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: s.Storage.Size}},
		},
	}
}

func renderPodSpec(redis *flotillav1.Redis, s *flotillav1.RedisSpec, config string) corev1.PodSpec {
	pod := corev1.PodSpec{
		Containers:                    []corev1.Container{renderContainer(s)},
		Volumes:                       renderVolumes(redis, s, config),
		TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		ImagePullSecrets:              s.ImagePullSecrets,
		NodeSelector:                  s.NodeSelector,
		Tolerations:                   s.Tolerations,
		Affinity:                      renderAffinity(redis, s),
		TopologySpreadConstraints:     renderSpread(redis, s),
		PriorityClassName:             s.PriorityClassName,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:        new(true),
			RunAsUser:           ptr.To[int64](redisUser),
			RunAsGroup:          ptr.To[int64](redisUser),
			FSGroup:             ptr.To[int64](redisUser),
			FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	if redisspec.IsSentinel(s) {
		addSentinel(&pod, s)
	}
	if s.RuntimeClassName != "" {
		pod.RuntimeClassName = &s.RuntimeClassName
	}
	return pod
}

func renderContainer(s *flotillav1.RedisSpec) corev1.Container {
	container := corev1.Container{
		Name:            containerName,
		Image:           s.Image,
		ImagePullPolicy: s.ImagePullPolicy,
		Command:         []string{"/bin/sh", configDir + "/start.sh"},
		Ports:           []corev1.ContainerPort{{Name: portName, ContainerPort: s.Port, Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{
			{Name: "FLOTILLA_POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			// The port is fixed for the life of a Pod, unlike the mounted ConfigMap, because its probes must use the port of its
			// server.
			{Name: "FLOTILLA_PORT", Value: fmt.Sprint(s.Port)},
		},
		Resources: s.Resources,
		VolumeMounts: []corev1.VolumeMount{
			{Name: dataVolume, MountPath: dataDir},
			{Name: configVolume, MountPath: configDir, ReadOnly: true},
			{Name: recordVolume, MountPath: recordDir, ReadOnly: true},
		},
		StartupProbe:   probe("live.sh", 1, startupFailures),
		ReadinessProbe: probe("ready.sh", 2, 3),
		LivenessProbe:  probe("live.sh", 10, 6),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	if s.Auth.Mode == flotillav1.RedisAuthPassword {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: authVolume, MountPath: authDir, ReadOnly: true})
	}
	return container
}

func probe(script string, periodSeconds, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", configDir + "/" + script}}},
		PeriodSeconds:    periodSeconds,
		FailureThreshold: failures,
		TimeoutSeconds:   5,
	}
}

func renderVolumes(redis *flotillav1.Redis, s *flotillav1.RedisSpec, config string) []corev1.Volume {
	volumes := []corev1.Volume{
		configMapVolume(configVolume, config),
		configMapVolume(recordVolume, recordName(redis.Name)),
	}
	if s.Auth.Mode == flotillav1.RedisAuthPassword {
		ref := secretRef(redis, s)
		volumes = append(volumes, corev1.Volume{
			Name: authVolume,
			VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultMode: ptr.To[int32](0o440),
				Sources: []corev1.VolumeProjection{
					secretProjection(ref.Name, ref.Key, flotillav1.RedisSecretKeyPassword, nil),
					// The file appears and disappears with each rotation, while Pods run.
					secretProjection(ref.Name, previousKey(ref.Key), flotillav1.RedisSecretKeyPrevious, new(true)),
				},
			}},
		})
	}
	if s.Storage.Type == flotillav1.RedisStorageEmptyDir {
		volumes = append(volumes, corev1.Volume{Name: dataVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	return volumes
}

func configMapVolume(name, configMap string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
		DefaultMode:          ptr.To[int32](0o444),
	}}}
}

func secretProjection(name, key, path string, optional *bool) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: name},
		Items:                []corev1.KeyToPath{{Key: key, Path: path}},
		Optional:             optional,
	}}
}

// renderSpread selects the Pods of this Redis if the user sets no labelSelector.
func renderSpread(redis *flotillav1.Redis, s *flotillav1.RedisSpec) []corev1.TopologySpreadConstraint {
	var constraints []corev1.TopologySpreadConstraint
	for _, constraint := range s.TopologySpreadConstraints {
		if constraint.LabelSelector == nil {
			constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: selectorLabels(redis.Name)}
		}
		constraints = append(constraints, constraint)
	}
	return constraints
}

// renderAffinity adds the podAntiAffinity to the user's affinity.
func renderAffinity(redis *flotillav1.Redis, s *flotillav1.RedisSpec) *corev1.Affinity {
	affinity := &corev1.Affinity{}
	if s.Affinity != nil {
		affinity = s.Affinity.DeepCopy()
	}
	if s.PodAntiAffinity == podAntiAffinityDisabled {
		if s.Affinity == nil {
			return nil
		}
		return affinity
	}
	if affinity.PodAntiAffinity == nil {
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	term := corev1.PodAffinityTerm{
		TopologyKey:   corev1.LabelHostname,
		LabelSelector: &metav1.LabelSelector{MatchLabels: selectorLabels(redis.Name)},
	}
	apart := affinity.PodAntiAffinity
	if s.PodAntiAffinity == flotillav1.RedisPodAntiAffinityRequired {
		apart.RequiredDuringSchedulingIgnoredDuringExecution = append(apart.RequiredDuringSchedulingIgnoredDuringExecution, term)
	} else {
		apart.PreferredDuringSchedulingIgnoredDuringExecution = append(apart.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: term})
	}
	return affinity
}
