// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// topology is what is recorded and not rendered from the spec. It lives in a ConfigMap of the member, so that it is there
// when another manager takes over. The start script reads it as shell variables.
type topology struct {
	// initialized says that the primary has served, so that an empty volume means lost data.
	initialized bool
	// passwordGenerated says that Secret <name>-auth was made, so that its absence means a lost password.
	passwordGenerated bool
	// addresses are the cluster IPs of the Services, by suffix.
	addresses map[string]string
}

const (
	keyInitialized       = "INITIALIZED"
	keyForce             = "FORCE_EMPTY_PRIMARY"
	keyPasswordGenerated = "PASSWORD_GENERATED"
	prefixAddress        = "ADDRESS_"
)

// addressSuffixes are the Services whose address is worth keeping.
var addressSuffixes = []string{suffixPrimary, suffixOrdinal0, suffixAny}

// parseTopology reads the record from topology.env. What it does not understand counts as not recorded.
func parseTopology(text string) topology {
	t := topology{addresses: map[string]string{}}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case key == keyInitialized:
			t.initialized = value == "true"
		case key == keyPasswordGenerated:
			t.passwordGenerated = value == "true"
		case strings.HasPrefix(key, prefixAddress):
			suffix := strings.ToLower(strings.TrimPrefix(key, prefixAddress))
			if _, err := netip.ParseAddr(value); err == nil && slices.Contains(addressSuffixes, suffix) {
				t.addresses[suffix] = value
			}
		}
	}
	return t
}

// renderSettings writes settings.env: what the start script needs of the spec that a Pod was started with.
func renderSettings(redis *flotillav1.Redis, s *flotillav1.RedisSpec) string {
	return fmt.Sprintf("PRIMARY_HOST=%s.%s\nAUTH=%s\nPERSISTENCE=%s\nGUARD=%t\n",
		serviceName(redis.Name, suffixOrdinal0), redis.Namespace, s.Auth.Mode, s.Persistence.Mode, keepsData(s))
}

// renderTopology writes topology.env: what holds for all Pods now, whatever they were started with. Every value is made of
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
	return out.String()
}
