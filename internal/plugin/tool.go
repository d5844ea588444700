// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// systemNamespace is where the hub's ServiceAccount and claim are in a member, and the manager on the hub.
	systemNamespace = "flotilla-system"
	// requestTimeout is for one request, unless --request-timeout says otherwise.
	requestTimeout = 15 * time.Second
	// fieldOwner is the field manager of what the plugin applies.
	fieldOwner = client.FieldOwner("kubectl-flotilla")
)

// tool is what all commands share: flags, streams, clock.
type tool struct {
	genericiooptions.IOStreams
	flags            *genericclioptions.ConfigFlags
	clock            clock.Clock
	registrations    string
	memberKubeconfig string
	memberContexts   []string
}

// newScheme knows the built-in kinds, ours and CustomResourceDefinition.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	return scheme
}

// site is a cluster that the plugin talks to.
type site struct {
	client.Client
	config *rest.Config
	// called names it in messages, such as `the hub (context "prod")`; remedy says what to do when it cannot be used.
	called, remedy string
}

// newSite makes a client. Nothing is asked of the cluster yet.
func newSite(config *rest.Config, called, remedy string) (*site, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "kubectl-flotilla"
	config.Timeout = cmp.Or(config.Timeout, requestTimeout)
	// What a person asks for is little, and the API server has its own ways to be fair.
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, &fault{err: fmt.Errorf("%s: %w", called, err), remedy: remedy}
	}
	return &site{Client: c, config: config, called: called, remedy: remedy}, nil
}

// hub returns the cluster of the current context.
func (t *tool) hub() (*site, error) {
	config, err := t.flags.ToRESTConfig()
	if err != nil {
		return nil, faultf("set --kubeconfig and --context to those of the hub", "loading the kubeconfig: %w", err)
	}
	name := *t.flags.Context
	if name == "" {
		if raw, err := t.flags.ToRawKubeConfigLoader().RawConfig(); err == nil {
			name = raw.CurrentContext
		}
	}
	return newSite(config, fmt.Sprintf("the hub (context %q)", name), "choose the hub with --kubeconfig and --context")
}

// explain says what an error of a cluster means and what to do about it.
func (s *site) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if known := (*fault)(nil); errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var network net.Error
	wrapped := fmt.Errorf("%s: %s: %w", s.called, doing, err)
	switch {
	case apierrors.IsUnauthorized(err):
		return &fault{wrapped, "the cluster does not accept your credential: log in again, or " + s.remedy}
	case apierrors.IsForbidden(err):
		return &fault{wrapped, "your user lacks that right there: have it granted, or " + s.remedy}
	case apimeta.IsNoMatchError(err), discovery.IsGroupDiscoveryFailedError(err):
		return &fault{wrapped, "the cluster does not serve Flotilla's kinds: apply config/hub on a hub, config/member in a member, or " + s.remedy}
	case errors.As(err, &authority), errors.As(err, &hostname):
		return &fault{wrapped, "the certificate of the server is not that of the context: correct the kubeconfig, or " + s.remedy}
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return &fault{wrapped, "the cluster cannot be reached from here: check the server of the context and your network, or " + s.remedy}
	}
	return &fault{wrapped, "try again when that is solved"}
}

// identity returns the UID of a cluster: that of its namespace kube-system.
func (s *site) identity(ctx context.Context) (types.UID, error) {
	namespace := &corev1.Namespace{}
	if err := s.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", s.explain("reading its identity, namespace kube-system", err)
	}
	return namespace.UID, nil
}

// members lists the MemberClusters, sorted by name.
func (s *site) members(ctx context.Context) ([]flotillav1.MemberCluster, error) {
	list := &flotillav1.MemberClusterList{}
	if err := s.List(ctx, list); err != nil {
		return nil, s.explain("listing MemberClusters", err)
	}
	slices.SortFunc(list.Items, func(a, b flotillav1.MemberCluster) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// memberNamed returns the MemberCluster of a name; the error lists those that there are.
func (s *site) memberNamed(ctx context.Context, name string) (*flotillav1.MemberCluster, error) {
	member := &flotillav1.MemberCluster{}
	err := s.Get(ctx, client.ObjectKey{Name: name}, member)
	if !apierrors.IsNotFound(err) {
		return member, s.explain(fmt.Sprintf("reading MemberCluster %q", name), err)
	}
	all, err := s.members(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(all))
	for i := range all {
		names = append(names, all[i].Name)
	}
	remedy := "no member is registered here: see kubectl flotilla register --help, or check the context"
	if len(names) > 0 {
		remedy = "name one of " + text.List(names, 10)
	}
	return nil, faultf(remedy, "no member is called %q", name)
}

// registration returns the Secret of a member.
func (s *site) registration(ctx context.Context, member *flotillav1.MemberCluster) (*corev1.Secret, error) {
	ref := member.Spec.SecretRef
	secret := &corev1.Secret{}
	err := s.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, secret)
	return secret, s.explain(fmt.Sprintf("reading the registration, Secret %s/%s", ref.Namespace, ref.Name), err)
}

// pollEvery is how often something is looked at that is waited for.
const pollEvery = 500 * time.Millisecond

// poll waits until something holds; false without an error says that it did not in time.
func poll(ctx context.Context, timeout time.Duration, holds func(context.Context) (bool, error)) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := wait.PollUntilContextCancel(limited, pollEvery, true, holds)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// notes are events, by what differs whenever one is told again.
type notes map[string]eventsv1.Event

// toldOf returns the events of a reason that are about a member.
func (s *site) toldOf(ctx context.Context, member, reason string) (notes, error) {
	list := &eventsv1.EventList{}
	if err := s.List(ctx, list, client.MatchingFields{"reason": reason}); err != nil {
		return nil, s.explain("listing events", err)
	}
	told := notes{}
	for i := range list.Items {
		if list.Items[i].Regarding.Name == member {
			told[string(list.Items[i].UID)+"/"+list.Items[i].ResourceVersion] = list.Items[i]
		}
	}
	return told, nil
}

// since returns what was not told before.
func (n notes) since(before notes) []eventsv1.Event {
	var fresh []eventsv1.Event
	for key, event := range n {
		if _, known := before[key]; !known {
			fresh = append(fresh, event)
		}
	}
	return fresh
}

// memberConfig loads a context of the member's kubeconfig.
func (t *tool) memberConfig(contextName string) clientcmd.ClientConfig {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = cmp.Or(t.memberKubeconfig, *t.flags.KubeConfig)
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, &clientcmd.ConfigOverrides{CurrentContext: contextName})
}

// memberByContext returns the cluster of a context of the user's.
func (t *tool) memberByContext(contextName string) (*site, error) {
	config, err := t.memberConfig(contextName).ClientConfig()
	remedy := "choose another --member-context (or --member-kubeconfig)"
	if err != nil {
		return nil, faultf(remedy+"; kubectl config get-contexts lists them", "loading context %q: %w", contextName, err)
	}
	return newSite(config, fmt.Sprintf("the member (context %q)", contextName), remedy)
}

// addMemberContext adds --member-context to a command that looks into members.
func (t *tool) addMemberContext(c *cobra.Command) {
	c.Flags().StringArrayVar(&t.memberContexts, "member-context", nil,
		"[CLUSTER=]CONTEXT: the context of your kubeconfig for a member; may be repeated. See kubectl flotilla --help for the other ways")
	_ = c.RegisterFlagCompletionFunc("member-context", t.completeContexts)
}

// completeContexts offers the contexts of the member's kubeconfig.
func (t *tool) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := t.memberConfig("").RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(raw.Contexts))
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeMembers offers the names of the members, for the first argument.
func (t *tool) completeMembers(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	hub, err := t.hub()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
	defer cancel()
	members, err := hub.members(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(members))
	for i := range members {
		names = append(names, members[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// condition returns a condition, or one that is Unknown when there is none.
func condition(conditions []metav1.Condition, kind string) metav1.Condition {
	if found := apimeta.FindStatusCondition(conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}

// readAll reads what a file of manifests may hold.
func readAll(from io.Reader) ([]byte, error) {
	const limit = 16 << 20
	content, err := io.ReadAll(io.LimitReader(from, limit))
	if err != nil {
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	return content, nil
}

// isTerminal says whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Name() != "null"
}
