// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Policy is what a site changes about the rules for registrations; its zero value changes nothing. Programs, files, plain
// HTTP, unverified TLS, passwords and impersonation are refused whatever it says, and so are metadata services.
type Policy struct {
	// AllowSystemRoots verifies servers by the roots of the manager's system when a registration has no certificate authority.
	AllowSystemRoots bool
	// AllowProxyURL lets registrations name an http or socks5 proxy. It is the proxy then that resolves the server's name.
	AllowProxyURL bool
	// AllowedCIDRs are all that may be dialled, unless empty. One that is link-local itself lifts the ban on such addresses.
	AllowedCIDRs []netip.Prefix
	// DeniedCIDRs may not be dialled, even when AllowedCIDRs has them.
	DeniedCIDRs []netip.Prefix
	// AllowedHosts are all that may stand in a server's URL, unless empty: names, addresses, and *.example.com for any name
	// below.
	AllowedHosts []string
}

// rules are what the content of a registration is measured by.
type rules struct {
	// hubEndpoints are the host:port of the hub.
	hubEndpoints []string
	policy       Policy
}

// metadataHosts are names of services that give away the credentials of the machine the manager runs on.
var metadataHosts = []string{"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"}

// metadataAddresses are addresses of such services.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"),
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("100.100.100.200"),
}

// refuseHost refuses a host that may not be dialled. Names are checked again as addresses when they are dialled.
func (p *Policy) refuseHost(host string) *refusal {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	refuse := func(message string) *refusal { return refuseCredential(flotillav1.ReasonEndpointNotAllowed, message) }
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

// hostAllowed compares a host, which may be an address, with AllowedHosts.
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

// banned says whether an address is one that no member has. Loopback may be dialled: fleets on one machine use it.
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

// addressDenied says whether an address may not be dialled.
func (p *Policy) addressDenied(address netip.Addr) bool {
	if p.banned(address) {
		return true
	}
	address = address.Unmap().WithZone("")
	contains := func(prefix netip.Prefix) bool { return prefix.Contains(address) }
	return slices.ContainsFunc(p.DeniedCIDRs, contains) ||
		(len(p.AllowedCIDRs) > 0 && !slices.ContainsFunc(p.AllowedCIDRs, contains))
}

// errAddressDenied is the dial error of a name that leads to an address which may not be dialled.
var errAddressDenied = errors.New("the address may not be dialled")

// control is the address policy of a dialer. It sees the address after name resolution, so no name leads around it.
func (p *Policy) control(_, address string, _ syscall.RawConn) error {
	addrPort, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dialling: %w", err)
	}
	if p.addressDenied(addrPort.Addr()) {
		return errAddressDenied
	}
	return nil
}

// takeProxy accepts or refuses what a registration says about a proxy.
func (p *Policy) takeProxy(proxyURL string) (*url.URL, *refusal) {
	if proxyURL == "" {
		return nil, nil
	}
	if !p.AllowProxyURL {
		return nil, refuseCredential(flotillav1.ReasonProxyNotAllowed,
			"The registration names a proxy, which this hub does not use; remove it, or have registration.allowProxyURL set")
	}
	proxy, err := url.Parse(proxyURL)
	switch {
	// TLS to a proxy would be spoken with the authority and the client certificate that are meant for the member.
	case err != nil || (proxy.Scheme != "http" && proxy.Scheme != "socks5") || proxy.Hostname() == "":
		return nil, refuseCredential(flotillav1.ReasonProxyNotAllowed, "The proxy of the registration is not an http or socks5 URL; correct it")
	case proxy.User != nil:
		return nil, refuseCredential(flotillav1.ReasonBasicAuthNotAllowed,
			"The proxy of the registration contains a user name or password; use one that asks for none")
	}
	host := strings.TrimSuffix(strings.ToLower(proxy.Hostname()), ".")
	address, err := netip.ParseAddr(host)
	if slices.Contains(metadataHosts, host) || (err == nil && p.addressDenied(address)) {
		return nil, refuseCredential(flotillav1.ReasonEndpointNotAllowed, "The address of the registration's proxy may not be dialled; use another one")
	}
	return proxy, nil
}
