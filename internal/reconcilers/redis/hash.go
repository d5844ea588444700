// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

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

// wiring is what all Pods must agree on: Pods that differ in it cannot replicate from each other.
type wiring struct {
	Port     int32  `json:"port"`
	Auth     string `json:"auth"`
	Password string `json:"password,omitempty"`
}

// startup is what else a Pod takes up only when it starts. A field added later must be left out of the JSON when it is
// not set, so that a new manager restarts nothing.
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
}

// podHash says what a Pod is started with: "<wiring>-<startup>". It is computed from the spec and the versions of the
// passwords, not from rendered objects: a manager that renders differently restarts nothing. With two passwords there are
// two wirings, joined by a dot; the first is the one that replicas use.
func podHash(s *flotillav1.RedisSpec, passwordVersions ...string) string {
	var wirings []string
	for _, version := range passwordVersions {
		wirings = append(wirings, shortHash(wiring{Port: s.Port, Auth: s.Auth.Mode, Password: version}))
	}
	return strings.Join(wirings, wiringSeparator) + "-" + shortHash(startup{
		Image:                         s.Image,
		Resources:                     s.Resources,
		Persistence:                   s.Persistence.Mode,
		AppendFsync:                   s.Persistence.AppendFsync,
		MaxMemory:                     maxMemory(s),
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
	})
}

// minReplicas is empty when nothing is asked for, so that it is left out.
func minReplicas(s *flotillav1.RedisSpec) string {
	if s.Replication.MinReplicasToWrite == 0 {
		return ""
	}
	return fmt.Sprintf("%d within %d", s.Replication.MinReplicasToWrite, s.Replication.MinReplicasMaxLagSeconds)
}

// podMetadata is nil when there is none, however that is written, so that it is left out.
func podMetadata(s *flotillav1.RedisSpec) *flotillav1.RedisPodMetadata {
	if s.PodMetadata == nil || len(s.PodMetadata.Labels)+len(s.PodMetadata.Annotations) == 0 {
		return nil
	}
	return s.PodMetadata
}

const wiringSeparator = "."

// wiringsOf returns the wirings in a podHash: the one that replicas use first, then others that are accepted.
func wiringsOf(hash string) []string {
	first, _, _ := strings.Cut(hash, "-")
	return strings.Split(first, wiringSeparator)
}

// follows tells whether Pods of a new hash can replicate from Pods of an old one, so that they can be replaced one by one
// with the primary last.
func follows(hash, old string) bool {
	return slices.Contains(wiringsOf(old), wiringsOf(hash)[0])
}

// hashLength is how many characters a shortHash has.
const hashLength = 16

// shortHash hashes the JSON of a value of ours, which always marshals.
func shortHash(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("hashing %T: %v", value, err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:hashLength/2])
}

// passwordRounds makes guessing a weak password from its version slow, since anybody who may read Pods can read it.
// It costs about two milliseconds.
const passwordRounds = 10_000

// passwordVersion changes with the password and with nothing else of the Secret.
func passwordVersion(redis types.NamespacedName, password string) (string, error) {
	key, err := pbkdf2.Key(sha256.New, password, []byte("flotilla.dev/redis/"+redis.String()), passwordRounds, 8)
	if err != nil {
		return "", fmt.Errorf("deriving the version of the password: %w", err)
	}
	return hex.EncodeToString(key), nil
}
