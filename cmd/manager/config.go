// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"k8s.io/apimachinery/pkg/util/validation"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
)

// Config is the configuration of the manager. For each key the flag takes precedence over the environment variable, the
// environment variable over the file given with --config, and the file over the default. It contains no secrets.
type Config struct {
	// Kubeconfig is the path of the hub's kubeconfig; empty in a Pod on the hub.
	Kubeconfig     string               `mapstructure:"kubeconfig"`
	Hub            HubConfig            `mapstructure:"hub"`
	Registration   RegistrationConfig   `mapstructure:"registration"`
	Members        MembersConfig        `mapstructure:"members"`
	Removals       RemovalsConfig       `mapstructure:"removals"`
	Rollouts       RolloutsConfig       `mapstructure:"rollouts"`
	Tenancy        string               `mapstructure:"tenancy"`
	Workers        int                  `mapstructure:"workers"`
	LeaderElection LeaderElectionConfig `mapstructure:"leaderElection"`
	Metrics        EndpointConfig       `mapstructure:"metrics"`
	Health         EndpointConfig       `mapstructure:"health"`
	Profiling      EndpointConfig       `mapstructure:"profiling"`
	Log            LogConfig            `mapstructure:"log"`
}

// HubConfig identifies the hub and limits the writes to it.
type HubConfig struct {
	ID  string `mapstructure:"id"`
	QPS int    `mapstructure:"qps"`
}

// RegistrationConfig configures where registrations are and which of them are accepted.
type RegistrationConfig struct {
	Sources          []SourceConfig `mapstructure:"sources"`
	AllowSystemRoots bool           `mapstructure:"allowSystemRoots"`
	AllowProxyURL    bool           `mapstructure:"allowProxyURL"`
	AllowedCIDRs     []string       `mapstructure:"allowedCIDRs"`
	DeniedCIDRs      []string       `mapstructure:"deniedCIDRs"`
	AllowedHosts     []string       `mapstructure:"allowedHosts"`
	GraceSeconds     int            `mapstructure:"graceSeconds"`
}

// SourceConfig is a namespace of the hub with the conventions for registrations there.
type SourceConfig struct {
	Namespace   string   `mapstructure:"namespace"`
	Conventions []string `mapstructure:"conventions"`
}

// MembersConfig configures what the manager may do in members.
type MembersConfig struct {
	Namespaces       []string `mapstructure:"namespaces"`
	CreateNamespaces bool     `mapstructure:"createNamespaces"`
	CopyMetadata     []string `mapstructure:"copyMetadata"`
	CRDs             string   `mapstructure:"crds"`
}

// RemovalsConfig limits how many copies may be removed without a confirmation.
type RemovalsConfig struct {
	Budget int `mapstructure:"budget"`
	Share  int `mapstructure:"share"`
}

// RolloutsConfig limits rollouts over all objects.
type RolloutsConfig struct {
	PerCluster int `mapstructure:"perCluster"`
}

// LeaderElectionConfig configures leader election.
type LeaderElectionConfig struct {
	Enabled   bool   `mapstructure:"enabled"`
	Namespace string `mapstructure:"namespace"`
}

// EndpointConfig is an address to listen on; "0" disables the endpoint.
type EndpointConfig struct {
	BindAddress string `mapstructure:"bindAddress"`
}

// LogConfig configures logging.
type LogConfig struct {
	Format    string `mapstructure:"format"`
	Verbosity int    `mapstructure:"verbosity"`
}

// Values of tenancy: which namespaces may place in a member whose registration has no annotation
// flotilla.dev/allowed-namespaces.
const (
	tenancyOpen     = "Open"
	tenancyEnforced = "Enforced"
)

// Values of members.crds: the administrators or the manager install the CustomResourceDefinitions in members.
const (
	crdsVerify  = "Verify"
	crdsInstall = "Install"
)

// setting is a key of the configuration with its default and its help text.
type setting struct {
	key   string
	value any
	usage string
}

var settings = []setting{
	{"kubeconfig", "", "path of the hub's kubeconfig; empty in a Pod on the hub"},
	{"hub.id", "", "name of this hub, written on every copy and claim; keep it when the hub is rebuilt (required)"},
	{"hub.qps", 0, "writes to the hub per second, without events and the Lease; 0 means that only the hub limits them"},
	{"registration.sources", flotillav1.RegistrationNamespace + ":flotilla+multicluster-runtime", "namespaces with registration Secrets and the conventions for them, as namespace:convention+convention,..."},
	{"registration.allowSystemRoots", false, "verify members against the manager's system roots if a registration has no certificate authority"},
	{"registration.allowProxyURL", false, "allow registrations to name an http or socks5 proxy"},
	{"registration.allowedCIDRs", []string{}, "the only addresses that may be dialled for members; empty means all"},
	{"registration.deniedCIDRs", []string{}, "addresses that may not be dialled for members"},
	{"registration.allowedHosts", []string{}, "the only hosts that registrations may name as server: names, addresses or *.example.com; empty means all"},
	{"registration.graceSeconds", 60, "seconds that a registration may be gone before its member is offboarded"},
	{"members.namespaces", []string{}, "namespaces that copies may be placed into although they are kube-*, flotilla-* or default"},
	{"members.createNamespaces", true, "create the namespace of a copy if the member lacks it"},
	{"members.copyMetadata", []string{}, "prefixes of the label and annotation keys that copies get from the hub object"},
	{"members.crds", crdsVerify, "check that members have the CRDs (Verify), or install and upgrade the CRDs there (Install)"},
	{"removals.budget", 20, "copies that may be removed from members in 10 minutes before a person has to confirm; 0 means always"},
	{"removals.share", 25, "percentage of the fleet's copies, and of those of one object, that may be removed in 10 minutes, at least 2; 0 means no such limit"},
	{"rollouts.perCluster", 20, "objects that may change in one member at a time; 0 means no limit"},
	{"tenancy", tenancyOpen, "which namespaces may place in a member whose registration does not specify it: all (Open) or none (Enforced)"},
	{"workers", 16, "number of concurrent passes of each controller"},
	{"leaderElection.enabled", true, "run the controllers only while holding the Lease " + flotillav1.ManagerLease},
	{"leaderElection.namespace", flotillav1.SystemNamespace, "namespace of the Lease and of the manager's own objects"},
	{"metrics.bindAddress", ":8443", "address of the metrics endpoint, served with TLS and authentication; 0 disables it"},
	{"health.bindAddress", ":8081", "address of /healthz and /readyz; 0 disables it"},
	{"profiling.bindAddress", "0", "address of /debug/pprof on the loopback interface, such as 127.0.0.1:6060; 0 disables it"},
	{"log.format", "text", "text or json"},
	{"log.verbosity", 0, "0 for changes that operators look for, 1 for the decisions of each pass; at most 7"},
}

// envPrefix begins the names of our environment variables.
const envPrefix = "FLOTILLA_"

// loadConfig reads the configuration and returns all problems at once.
func loadConfig(args []string) (*Config, error) {
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	file := flags.String("config", "", "configuration file (YAML)")
	flags.Bool("version", false, "print the version and exit")
	v := viper.New()
	for _, s := range settings {
		addFlag(flags, s)
		v.SetDefault(s.key, s.value)
		if err := v.BindPFlag(s.key, flags.Lookup(flagName(s.key))); err != nil {
			return nil, fmt.Errorf("binding key %q: %w", s.key, err)
		}
		if err := v.BindEnv(s.key, envName(s.key)); err != nil {
			return nil, fmt.Errorf("binding key %q: %w", s.key, err)
		}
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected arguments %q", flags.Args())
	}
	if *file != "" {
		v.SetConfigFile(*file)
		if err := v.ReadInConfig(); err != nil {
			return nil, fmt.Errorf("reading config file: %w", err)
		}
	}
	cfg := &Config{}
	hooks := mapstructure.ComposeDecodeHookFunc(sourcesFromString, mapstructure.StringToSliceHookFunc(","))
	if err := v.UnmarshalExact(cfg, viper.DecodeHook(hooks)); err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	return cfg, cfg.validate()
}

// serviceVariable matches what the kubelet sets for each Service of the namespace, whose names may begin like ours.
var serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unknownVariables returns the names of environment variables that look like ours and set no key, sorted.
func unknownVariables(environment []string) []string {
	known := map[string]bool{}
	for _, s := range settings {
		known[envName(s.key)] = true
	}
	var unknown []string
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envPrefix) && !known[name] && !serviceVariable.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// flagName converts leaderElection.bindAddress to leader-election-bind-address.
func flagName(key string) string { return delimited(key, '-', false) }

// envName converts leaderElection.bindAddress to FLOTILLA_LEADER_ELECTION_BIND_ADDRESS.
func envName(key string) string { return envPrefix + delimited(key, '_', true) }

func delimited(key string, sep byte, upper bool) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c == '.':
			b.WriteByte(sep)
			continue
		// Consecutive capitals are one word: allowProxyURL, allowedCIDRs.
		case i > 0 && isCapital(c) && !isCapital(key[i-1]):
			b.WriteByte(sep)
		}
		if upper {
			b.WriteString(strings.ToUpper(string(c)))
		} else {
			b.WriteString(strings.ToLower(string(c)))
		}
	}
	return b.String()
}

func isCapital(c byte) bool { return c >= 'A' && c <= 'Z' }

func addFlag(flags *pflag.FlagSet, s setting) {
	switch value := s.value.(type) {
	case string:
		flags.String(flagName(s.key), value, s.usage)
	case []string:
		flags.StringSlice(flagName(s.key), value, s.usage)
	case int:
		flags.Int(flagName(s.key), value, s.usage)
	case bool:
		flags.Bool(flagName(s.key), value, s.usage)
	}
}

// sourcesFromString parses namespace:convention+convention,... so that sources can be set by flag and environment.
func sourcesFromString(_, to reflect.Type, data any) (any, error) {
	text, ok := data.(string)
	if !ok || to != reflect.TypeFor[[]SourceConfig]() {
		return data, nil
	}
	var sources []SourceConfig
	for part := range strings.SplitSeq(text, ",") {
		namespace, names, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("source %q is not namespace:convention+convention", part)
		}
		sources = append(sources, SourceConfig{Namespace: namespace, Conventions: strings.Split(names, "+")})
	}
	return sources, nil
}

func (c *Config) validate() error {
	var errs []error
	for _, message := range validation.IsDNS1123Label(c.Hub.ID) {
		errs = append(errs, fmt.Errorf("hub.id: %q: %s", c.Hub.ID, message))
	}
	if c.Hub.QPS < 0 {
		errs = append(errs, fmt.Errorf("hub.qps: %d is negative", c.Hub.QPS))
	}
	errs = append(errs, c.Registration.validate()...)
	if c.Tenancy != tenancyOpen && c.Tenancy != tenancyEnforced {
		errs = append(errs, fmt.Errorf("tenancy: %q is neither %s nor %s", c.Tenancy, tenancyOpen, tenancyEnforced))
	}
	if c.Members.CRDs != crdsVerify && c.Members.CRDs != crdsInstall {
		errs = append(errs, fmt.Errorf("members.crds: %q is neither %s nor %s", c.Members.CRDs, crdsVerify, crdsInstall))
	}
	if c.Removals.Budget < 0 {
		errs = append(errs, fmt.Errorf("removals.budget: %d is negative", c.Removals.Budget))
	}
	if c.Removals.Share < 0 || c.Removals.Share > 100 {
		errs = append(errs, fmt.Errorf("removals.share: %d is not between 0 and 100", c.Removals.Share))
	}
	if c.Rollouts.PerCluster < 0 {
		errs = append(errs, fmt.Errorf("rollouts.perCluster: %d is negative", c.Rollouts.PerCluster))
	}
	if c.Workers < 1 || c.Workers > 256 {
		errs = append(errs, fmt.Errorf("workers: %d is not between 1 and 256", c.Workers))
	}
	if c.LeaderElection.Enabled && c.LeaderElection.Namespace == "" {
		errs = append(errs, errors.New("leaderElection.namespace: required if leaderElection.enabled is true"))
	}
	if !c.Profiling.isLocal() {
		errs = append(errs, fmt.Errorf("profiling.bindAddress: %q is not a loopback address such as 127.0.0.1:6060: profiles are served without authentication", c.Profiling.BindAddress))
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format: %q is neither text nor json", c.Log.Format))
	}
	if c.Log.Verbosity < 0 || c.Log.Verbosity > maxVerbosity {
		errs = append(errs, fmt.Errorf("log.verbosity: %d is not between 0 and %d: beyond that, the Secrets of registrations would be logged", c.Log.Verbosity, maxVerbosity))
	}
	return errors.Join(errs...)
}

// isLocal reports whether the endpoint is only reachable from this machine or Pod.
func (c EndpointConfig) isLocal() bool {
	if c.BindAddress == "0" {
		return true
	}
	address, err := netip.ParseAddrPort(c.BindAddress)
	return err == nil && address.Addr().IsLoopback()
}

// maxGraceSeconds is a day: a member whose registration is gone is not written, and must not stay so unnoticed.
const maxGraceSeconds = 24 * 60 * 60

func (c RegistrationConfig) validate() []error {
	var errs []error
	if len(c.Sources) == 0 {
		errs = append(errs, errors.New("registration.sources: at least one source is needed"))
	}
	for _, source := range c.Sources {
		for _, message := range validation.IsDNS1123Label(source.Namespace) {
			errs = append(errs, fmt.Errorf("registration.sources: namespace %q: %s", source.Namespace, message))
		}
		if len(source.Conventions) == 0 {
			errs = append(errs, fmt.Errorf("registration.sources: namespace %q has no convention", source.Namespace))
		}
		for _, name := range source.Conventions {
			if !slices.Contains(registration.Conventions(), registration.Convention(name)) {
				errs = append(errs, fmt.Errorf("registration.sources: convention %q is not one of %v", name, registration.Conventions()))
			}
		}
	}
	if c.GraceSeconds < 1 || c.GraceSeconds > maxGraceSeconds {
		errs = append(errs, fmt.Errorf("registration.graceSeconds: %d is not between 1 and %d", c.GraceSeconds, maxGraceSeconds))
	}
	_, problems := c.policy()
	return append(errs, problems...)
}

// policy parses the rules of the site for registrations and returns all problems.
func (c RegistrationConfig) policy() (registration.Policy, []error) {
	policy := registration.Policy{AllowSystemRoots: c.AllowSystemRoots, AllowProxyURL: c.AllowProxyURL, AllowedHosts: c.AllowedHosts}
	var errs []error
	read := func(key string, cidrs []string) []netip.Prefix {
		var prefixes []netip.Prefix
		for _, cidr := range cidrs {
			prefix, err := netip.ParsePrefix(cidr)
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %q is not a CIDR such as 10.0.0.0/8", key, cidr))
			case prefix != prefix.Masked():
				errs = append(errs, fmt.Errorf("%s: %q has host bits set; did you mean %s?", key, cidr, prefix.Masked()))
			case prefix.Addr().Is4In6():
				errs = append(errs, fmt.Errorf("%s: %q must be written as an IPv4 CIDR", key, cidr))
			default:
				prefixes = append(prefixes, prefix)
			}
		}
		return prefixes
	}
	policy.AllowedCIDRs = read("registration.allowedCIDRs", c.AllowedCIDRs)
	policy.DeniedCIDRs = read("registration.deniedCIDRs", c.DeniedCIDRs)
	for _, host := range c.AllowedHosts {
		_, err := netip.ParseAddr(host)
		if err != nil && len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) > 0 {
			errs = append(errs, fmt.Errorf("registration.allowedHosts: %q is not a name, an address or *.example.com", host))
		}
	}
	return policy, errs
}

// maxVerbosity is the highest verbosity at which client-go does not log the bodies of requests, which contain the
// Secrets of registrations.
const maxVerbosity = 7

func newLogger(cfg LogConfig, out io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-cfg.Verbosity)}
	if cfg.Format == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(out, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(out, options))
}
