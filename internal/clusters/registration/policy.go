// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// inClusterNames are the names by which every cluster, and thus the hub, reaches itself.
var inClusterNames = []string{
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// HubEndpoints returns the host:port pairs by which the hub can be reached.
func HubEndpoints(host string, more []string) []string {
	var endpoints []string
	for _, name := range inClusterNames {
		endpoints = append(endpoints, net.JoinHostPort(name, "443"))
	}
	if server, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: host}); err == nil && server.Host != "" {
		endpoints = append(endpoints, hostPort(server))
	}
	for _, endpoint := range more {
		endpoints = append(endpoints, hostPort(&url.URL{Host: endpoint}))
	}
	return endpoints
}

// Policy configures the rules for registrations. The zero value applies the defaults. Programs, files, plain HTTP,
// unverified TLS, passwords, impersonation and metadata services are always refused.
type Policy struct {
	// AllowSystemRoots allows registrations without a certificate authority. Their servers are verified with the system
	// roots.
	AllowSystemRoots bool
	// AllowProxyURL allows registrations to name an http or socks5 proxy. The proxy then resolves the name of the server.
	AllowProxyURL bool
	// AllowedCIDRs are the only addresses that may be dialed, unless empty. A link-local prefix permits its addresses,
	// which are denied otherwise.
	AllowedCIDRs []netip.Prefix
	// DeniedCIDRs are addresses that must not be dialed, even if AllowedCIDRs contain them.
	DeniedCIDRs []netip.Prefix
	// AllowedHosts are the only hosts allowed in server URLs, unless empty: names, addresses, and *.example.com for all
	// its subdomains.
	AllowedHosts []string
}

// Rules are the rules by which the content of a registration is accepted.
type Rules struct {
	// HubEndpoints are the host:port of the hub.
	HubEndpoints []string
	Policy       Policy
}

// metadataHosts are names of metadata services, which provide the credentials of the machine that the manager runs on.
var metadataHosts = []string{"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"}

// metadataAddresses are the addresses of metadata services.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"),
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("100.100.100.200"),
}

// refuseHost refuses a host that must not be dialed. The addresses of names are checked when they are dialed.
func (p *Policy) refuseHost(host string) *verdict.Refusal {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	refuse := func(message string) *verdict.Refusal {
		return verdict.RefuseCredential(flotillav1.ReasonEndpointNotAllowed, message)
	}
	address, err := netip.ParseAddr(host)
	isAddress := err == nil
	switch {
	case slices.Contains(metadataHosts, host), isAddress && p.banned(address):
		return refuse("The server's address is a link-local, metadata, multicast or unspecified one, which is not dialled; register another address of the member")
	case !p.hostAllowed(host, address):
		return refuse("The server's host is not among registration.allowedHosts of this hub; register an allowed one or have it added there")
	case isAddress && p.addressDenied(address):
		return refuse("The server's address is excluded by registration.allowedCIDRs or registration.deniedCIDRs of this hub; register an allowed one or have it added there")
	}
	return nil
}

// hostAllowed reports whether AllowedHosts contain a host. address is valid if the host is an address.
func (p *Policy) hostAllowed(host string, address netip.Addr) bool {
	return len(p.AllowedHosts) == 0 || slices.ContainsFunc(p.AllowedHosts, func(allowed string) bool {
		allowed = strings.TrimSuffix(strings.ToLower(allowed), ".")
		if suffix, ok := strings.CutPrefix(allowed, "*"); ok {
			return strings.HasSuffix(host, suffix) && !address.IsValid()
		}
		parsed, err := netip.ParseAddr(allowed)
		return host == allowed || (err == nil && address.IsValid() && parsed.Unmap() == address.Unmap())
	})
}

// banned reports whether an address cannot be that of a member. Loopback is allowed, for fleets on one machine.
func (p *Policy) banned(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	switch {
	case address.IsMulticast(), address.IsUnspecified(), slices.Contains(metadataAddresses, address):
		return true
	case address.IsLinkLocalUnicast():
		return !slices.ContainsFunc(p.AllowedCIDRs, func(allowed netip.Prefix) bool {
			return allowed.Contains(address) && allowed.Masked().Addr().IsLinkLocalUnicast()
		})
	}
	return false
}

// addressDenied reports whether an address must not be dialed.
func (p *Policy) addressDenied(address netip.Addr) bool {
	if p.banned(address) {
		return true
	}
	address = address.Unmap().WithZone("")
	contains := func(prefix netip.Prefix) bool { return prefix.Contains(address) }
	return slices.ContainsFunc(p.DeniedCIDRs, contains) ||
		(len(p.AllowedCIDRs) > 0 && !slices.ContainsFunc(p.AllowedCIDRs, contains))
}

// control enforces the policy in a dialer. It sees the address after name resolution, so names cannot bypass it.
func (p *Policy) control(_, address string, _ syscall.RawConn) error {
	addrPort, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dialling: %w", err)
	}
	if p.addressDenied(addrPort.Addr()) {
		return verdict.ErrAddressDenied
	}
	return nil
}

// takeProxy validates and returns the proxy of a registration.
func (p *Policy) takeProxy(proxyURL string) (*url.URL, *verdict.Refusal) {
	if proxyURL == "" {
		return nil, nil
	}
	if !p.AllowProxyURL {
		return nil, verdict.RefuseCredential(flotillav1.ReasonProxyNotAllowed,
			"The registration names a proxy, which this hub does not use; remove it, or have registration.allowProxyURL set")
	}
	proxy, err := url.Parse(proxyURL)
	switch {
	// TLS to a proxy would use the certificate authority and the client certificate of the member.
	case err != nil || (proxy.Scheme != "http" && proxy.Scheme != "socks5") || proxy.Hostname() == "":
		return nil, verdict.RefuseCredential(flotillav1.ReasonProxyNotAllowed, "The proxy of the registration is not an http or socks5 URL; correct it")
	case proxy.User != nil:
		return nil, verdict.RefuseCredential(flotillav1.ReasonBasicAuthNotAllowed,
			"The proxy of the registration contains a user name or password; use one that asks for none")
	}
	host := strings.TrimSuffix(strings.ToLower(proxy.Hostname()), ".")
	address, err := netip.ParseAddr(host)
	if slices.Contains(metadataHosts, host) || (err == nil && p.addressDenied(address)) {
		return nil, verdict.RefuseCredential(flotillav1.ReasonEndpointNotAllowed, "The address of the registration's proxy may not be dialled; use another one")
	}
	return proxy, nil
}
