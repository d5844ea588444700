// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	sentinelContainer = "sentinel"
	keeperContainer   = "keeper"
	proxyContainer    = "proxy"
	// sharedVolume is in memory: the configurations in it have the password.
	sharedVolume = "shared"
	sharedDir    = "/run/flotilla/shared"

	sentinelPortName = "sentinel"
	sentinelPort     = 26379
	// proxyPortName is the port of the proxies for clients.
	proxyPortName  = "primary"
	proxyPort      = 16379
	healthPortName = "health"
	healthPort     = 8081
)

// addSentinel adds to a Pod what mode Sentinel needs. The server ends first, because it hands over before; the other
// containers wait for it.
func addSentinel(pod *corev1.PodSpec, s *flotillav1.RedisSpec) {
	server := &pod.Containers[0]
	server.Lifecycle = beforeStop("prestop-redis.sh")
	// The voters and the proxies watch the server many times a second. To start a probe costs more CPU than all that.
	server.ReadinessProbe, server.LivenessProbe = probe("ready.sh", 5, 2), probe("live.sh", 20, 3)
	mount(server, sharedVolume, sharedDir)

	voter := besideContainer(*server, sentinelContainer, "sentinel.sh", s.Sentinel.Resources)
	voter.Ports = []corev1.ContainerPort{{Name: sentinelPortName, ContainerPort: sentinelPort, Protocol: corev1.ProtocolTCP}}
	voter.Lifecycle = beforeStop("prestop-wait.sh", "0.5")
	voter.LivenessProbe = probe("voter-live.sh", 20, 3)

	keeper := besideContainer(*server, keeperContainer, "keeper.sh", s.Sentinel.Resources)
	keeper.Lifecycle = beforeStop("prestop-wait.sh", "0")

	proxy := besideContainer(*server, proxyContainer, "proxy.sh", s.Proxy.Resources)
	proxy.Image = s.Proxy.Image
	proxy.Ports = []corev1.ContainerPort{
		{Name: proxyPortName, ContainerPort: proxyPort, Protocol: corev1.ProtocolTCP},
		{Name: healthPortName, ContainerPort: healthPort, Protocol: corev1.ProtocolTCP},
	}
	proxy.Lifecycle = beforeStop("prestop-wait.sh", "1")
	proxy.ReadinessProbe, proxy.LivenessProbe = healthProbe(2, 3), healthProbe(10, 6)
	proxy.VolumeMounts = slices.DeleteFunc(proxy.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == dataVolume })

	pod.Containers = append(pod.Containers, voter, keeper, proxy)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: sharedVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("16Mi"))},
	}})
}

// besideContainer returns a container that differs from the server in its script and its resources only.
func besideContainer(server corev1.Container, name, script string, resources *corev1.ResourceRequirements) corev1.Container {
	container := *server.DeepCopy()
	container.Name, container.Command = name, scriptCommand(script)
	container.Ports, container.Lifecycle = nil, nil
	container.StartupProbe, container.ReadinessProbe, container.LivenessProbe = nil, nil, nil
	container.Resources = *resources.DeepCopy()
	return container
}

func mount(container *corev1.Container, volume, path string) {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path})
}

func scriptCommand(script string, args ...string) []string {
	return append([]string{"/bin/sh", configDir + "/" + script}, args...)
}

func beforeStop(script string, args ...string) *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: scriptCommand(script, args...)}}}
}

// healthProbe asks the proxy itself. A probe of the port for clients would open a connection to the primary each time.
func healthProbe(periodSeconds, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/live", Port: intstr.FromString(healthPortName), Scheme: corev1.URISchemeHTTP,
		}},
		PeriodSeconds:    periodSeconds,
		FailureThreshold: failures,
		SuccessThreshold: 1,
		TimeoutSeconds:   5,
	}
}

// renderSentinelSettings renders what the scripts of mode Sentinel need in settings.env.
func renderSentinelSettings(redis *flotillav1.Redis, s *flotillav1.RedisSpec) string {
	settings := map[string]string{
		"INSTANCE":         redis.Namespace + "/" + redis.Name,
		"VOTER_IDS":        voterIDs(redis),
		"DOWN_AFTER":       fmt.Sprint(s.Sentinel.DownAfterMilliseconds),
		"FAILOVER_TIMEOUT": fmt.Sprint(s.Sentinel.FailoverTimeoutMilliseconds),
		// Sentinels ask servers for their state every second instead of every ten, so that it is new when it matters.
		"INFO_PERIOD":  "1000",
		"MIN_REPLICAS": fmt.Sprint(s.Replication.MinReplicasToWrite),
		"MAX_LAG":      fmt.Sprint(s.Replication.MinReplicasMaxLagSeconds),
		// A primary that the sentinels do not name refuses writes after this many seconds.
		"FENCE_AFTER": "3",
		// A hand-over begins this many milliseconds after a sentinel has asked a replica, half a period before it asks again.
		"ALIGN": "true", "ALIGN_FROM": "420", "ALIGN_TO": "620",
		"REDIS_PORT":        fmt.Sprint(s.Port),
		"PROXY_PORT":        fmt.Sprint(proxyPort),
		"PROXY_HEALTH_PORT": fmt.Sprint(healthPort),
		"PROXY_MAXCONN":     fmt.Sprint(s.Proxy.MaxConnections),
		"PROXY_INTER":       "300ms",
		"PROXY_FALL":        "1",
	}
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&out, "%s=\"%s\"\n", key, settings[key])
	}
	return out.String()
}

// serviceTopology is what the Services depend on beside the spec, in mode Sentinel.
type serviceTopology struct {
	// ordinals is the number of Pods that have, or had, an address.
	ordinals int
	// direct reports whether clients of the primary still go to Pod 0, because there are no proxies yet.
	direct bool
}

// addSentinelServices adds a Service for each Pod, by whose address the Pods know each other, and leads clients of the
// primary to the proxies.
func addSentinelServices(services []*corev1.Service, redis *flotillav1.Redis, s *flotillav1.RedisSpec, t serviceTopology) []*corev1.Service {
	ordinal0, toPrimary := services[0], services[len(services)-1]
	services = services[1:]
	var each []*corev1.Service
	for ordinal := range int32(max(t.ordinals, int(*s.Replicas))) {
		service := ordinal0
		if ordinal > 0 {
			selector := map[string]string{flotillav1.LabelRedis: redis.Name, "statefulset.kubernetes.io/pod-name": podName(redis.Name, ordinal)}
			service = renderService(redis, s, strconv.Itoa(int(ordinal)), selector, true)
		}
		if ordinal < voters {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
				Name: sentinelPortName, Protocol: corev1.ProtocolTCP, Port: sentinelPort, TargetPort: intstr.FromString(sentinelPortName),
			})
		}
		each = append(each, service)
	}
	if len(each) == 0 {
		each = append(each, ordinal0)
	}
	if !t.direct {
		// A proxy on a node that is gone has to drop out, so only those that are Ready count.
		toPrimary.Spec.Selector = map[string]string{flotillav1.LabelRedis: redis.Name, flotillav1.LabelRedisProxy: "true"}
		toPrimary.Spec.PublishNotReadyAddresses = false
		toPrimary.Spec.Ports[0].TargetPort = intstr.FromString(proxyPortName)
	}
	return append(each, services...)
}

// renderServices renders the Services for what was observed. The addresses of Pods that were scaled away stay theirs: a
// sentinel never forgets one.
func (s *state) renderServices() []*corev1.Service {
	t := serviceTopology{ordinals: len(s.recorded.ordinals()), direct: migrating(s) && !s.proxied()}
	return renderServices(s.redis, &s.spec, t)
}

// proxied reports whether enough sentinels run for proxies to know the primary.
func (s *state) proxied() bool {
	return len(filter(s.pods, func(p pod) bool { return p.proxy && p.ready && p.ordinal < voters })) >= majority
}
