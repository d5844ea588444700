// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redisspec

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// wiring contains the settings in which all Pods must agree: Pods that differ in it cannot replicate from each other.
type wiring struct {
	Port     int32  `json:"port"`
	Auth     string `json:"auth"`
	Password string `json:"password,omitempty"`
}

// startup contains all other settings that a Pod only reads when it starts. A field that is added later must be omitted
// from the JSON if it is not set, so that a new manager restarts nothing.
type startup struct {
	Image                         string                            `json:"image"`
	Resources                     corev1.ResourceRequirements       `json:"resources"`
	Persistence                   string                            `json:"persistence"`
	AppendFsync                   string                            `json:"appendFsync"`
	MaxMemory                     int64                             `json:"maxMemory"`
	MaxMemoryPolicy               string                            `json:"maxMemoryPolicy"`
	Config                        map[string]flotillav1.ConfigValue `json:"config,omitempty"`
	NodeSelector                  map[string]string                 `json:"nodeSelector,omitempty"`
	Tolerations                   []corev1.Toleration               `json:"tolerations,omitempty"`
	PodAntiAffinity               string                            `json:"podAntiAffinity"`
	PriorityClassName             string                            `json:"priorityClassName,omitempty"`
	RuntimeClassName              string                            `json:"runtimeClassName,omitempty"`
	TerminationGracePeriodSeconds int64                             `json:"terminationGracePeriodSeconds"`
	MinReplicas                   string                            `json:"minReplicas,omitempty"`
	Affinity                      *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints     []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	PodMetadata                   *flotillav1.RedisPodMetadata      `json:"podMetadata,omitempty"`
	Mode                          string                            `json:"mode,omitempty"`
	Sentinel                      *flotillav1.RedisSentinel         `json:"sentinel,omitempty"`
	Proxy                         *flotillav1.RedisProxy            `json:"proxy,omitempty"`
}

// PodHash identifies what a Pod is started with: "<wiring>-<startup>". It is computed from the spec and the versions of
// the passwords, not from rendered objects, so that a manager that renders differently restarts nothing. With two
// passwords there are two wirings, joined by a dot; replicas use the first.
func PodHash(s *flotillav1.RedisSpec, passwordVersions ...string) string {
	var wirings []string
	for _, version := range passwordVersions {
		wirings = append(wirings, ShortHash(wiring{Port: s.Port, Auth: s.Auth.Mode, Password: version}))
	}
	return strings.Join(wirings, wiringSeparator) + "-" + ShortHash(startup{
		Image:                         s.Image,
		Resources:                     s.Resources,
		Persistence:                   s.Persistence.Mode,
		AppendFsync:                   s.Persistence.AppendFsync,
		MaxMemory:                     MaxMemory(s),
		MaxMemoryPolicy:               s.Memory.MaxMemoryPolicy,
		Config:                        s.Config,
		NodeSelector:                  s.NodeSelector,
		Tolerations:                   s.Tolerations,
		PodAntiAffinity:               s.PodAntiAffinity,
		PriorityClassName:             s.PriorityClassName,
		RuntimeClassName:              s.RuntimeClassName,
		TerminationGracePeriodSeconds: *s.TerminationGracePeriodSeconds,
		MinReplicas:                   minReplicas(s),
		Affinity:                      s.Affinity,
		TopologySpreadConstraints:     s.TopologySpreadConstraints,
		PodMetadata:                   podMetadata(s),
		Mode:                          mode(s),
		Sentinel:                      s.Sentinel,
		Proxy:                         s.Proxy,
	})
}

// mode is empty in mode Replication, so that it is omitted.
func mode(s *flotillav1.RedisSpec) string {
	if s.Mode == flotillav1.RedisModeReplication {
		return ""
	}
	return s.Mode
}

// minReplicas is empty if nothing is requested, so that it is omitted.
func minReplicas(s *flotillav1.RedisSpec) string {
	if s.Replication.MinReplicasToWrite == 0 {
		return ""
	}
	return fmt.Sprintf("%d within %d", s.Replication.MinReplicasToWrite, s.Replication.MinReplicasMaxLagSeconds)
}

// podMetadata is nil if there is none, in whatever form, so that it is omitted.
func podMetadata(s *flotillav1.RedisSpec) *flotillav1.RedisPodMetadata {
	if s.PodMetadata == nil || len(s.PodMetadata.Labels)+len(s.PodMetadata.Annotations) == 0 {
		return nil
	}
	return s.PodMetadata
}

const wiringSeparator = "."

// wiringsOf returns the wirings in a PodHash: first the one that replicas use, then others that are accepted.
func wiringsOf(hash string) []string {
	first, _, _ := strings.Cut(hash, "-")
	return strings.Split(first, wiringSeparator)
}

// Follows reports whether Pods of a new hash can replicate from Pods of an old one, so that they can be replaced one by
// one with the primary last.
func Follows(hash, old string) bool {
	return slices.Contains(wiringsOf(old), wiringsOf(hash)[0])
}

// Accepts reports whether a Pod that was started with a hash accepts the password of a version on a port.
func Accepts(hash string, port int32, passwordVersion string) bool {
	return slices.Contains(wiringsOf(hash), ShortHash(wiring{Port: port, Auth: flotillav1.RedisAuthPassword, Password: passwordVersion}))
}

// HashLength is the number of characters of a ShortHash.
const HashLength = 16

// ShortHash hashes the JSON encoding of a value. It panics if the value cannot be encoded.
func ShortHash(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("hashing %T: %v", value, err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:HashLength/2])
}

// passwordRounds slows down guessing a weak password from its version, which everyone who may read Pods can read. It
// costs about two milliseconds.
const passwordRounds = 10_000

// PasswordVersion identifies a password of a Redis without revealing it.
func PasswordVersion(redis types.NamespacedName, password string) (string, error) {
	key, err := pbkdf2.Key(sha256.New, password, []byte("flotilla.dev/redis/"+redis.String()), passwordRounds, 8)
	if err != nil {
		return "", fmt.Errorf("deriving the version of the password: %w", err)
	}
	return hex.EncodeToString(key), nil
}
