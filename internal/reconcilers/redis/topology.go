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

// topology is the part of the ConfigMap that is a record and not rendered from the spec. It lives in the member, so that
// it is there when another manager takes over. The start script reads it as shell variables.
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

// renderTopology writes topology.env. Every value is made of letters, digits, dots, colons and hyphens, and the only
// one with spaces is quoted, so that a shell can source it.
func renderTopology(redis *flotillav1.Redis, s *flotillav1.RedisSpec, t topology, forceEmptyPrimary bool) string {
	var peers []string
	for ordinal := int32(1); ordinal < *s.Replicas; ordinal++ {
		peers = append(peers, podName(redis.Name, ordinal)+"."+serviceName(redis.Name, suffixHeadless))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "PRIMARY_HOST=%s.%s\n", serviceName(redis.Name, suffixOrdinal0), redis.Namespace)
	fmt.Fprintf(&out, "PEERS=\"%s\"\n", strings.Join(peers, " "))
	fmt.Fprintf(&out, "AUTH=%s\n", s.Auth.Mode)
	fmt.Fprintf(&out, "PERSISTENCE=%s\n", s.Persistence.Mode)
	fmt.Fprintf(&out, "GUARD=%t\n", keepsData(s))
	fmt.Fprintf(&out, "FORCE_EMPTY_PRIMARY=%t\n", forceEmptyPrimary)
	fmt.Fprintf(&out, "%s=%t\n", keyInitialized, t.initialized)
	fmt.Fprintf(&out, "%s=%t\n", keyPasswordGenerated, t.passwordGenerated)
	for _, suffix := range slices.Sorted(maps.Keys(t.addresses)) {
		fmt.Fprintf(&out, "%s%s=%s\n", prefixAddress, strings.ToUpper(suffix), t.addresses[suffix])
	}
	return out.String()
}
