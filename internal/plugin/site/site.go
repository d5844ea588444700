// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package site is how kubectl flotilla reaches the hub and its members: which flags and contexts lead to a cluster, what
// errors of a cluster mean, and what is read of every cluster.
package site

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

const (
	// RequestTimeout is for one request, unless --request-timeout says otherwise.
	RequestTimeout = 15 * time.Second
	// FieldOwner is the field manager of what the plugin applies.
	FieldOwner = client.FieldOwner("kubectl-flotilla")
	// Person is the field manager of what a person asks for or confirms by a command. Flux takes back what managers write whose
	// names begin with kubectl.
	Person = client.FieldOwner("flotilla-cli")
	// pollEvery is how often Wait looks.
	pollEvery = 500 * time.Millisecond
)

// Scheme returns a scheme with the built-in kinds, the kinds of Flotilla and CustomResourceDefinition, which all sites share.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	return scheme
})

// Site is a cluster that the plugin talks to.
type Site struct {
	client.Client
	// ByRegistration is whether it is reached with the credential of the hub.
	ByRegistration bool
	// Called names the cluster in messages, such as `the hub (context "prod")`.
	Called string

	// API is what the checks of the manager use.
	API *preflight.API
	// watches watches what Client reads.
	watches client.WithWatch
	// remedy says what to do when the cluster cannot be used.
	remedy string
}

// New returns a Site. It does not contact the cluster.
func New(config *rest.Config, called, remedy string) (*Site, error) {
	config = rest.CopyConfig(config)
	config.Timeout = cmp.Or(config.Timeout, RequestTimeout)
	through, server, err := connect(config, called, remedy)
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{HTTPClient: through, Scheme: Scheme()})
	if err != nil {
		return nil, console.Faultf(remedy, "%s: %w", called, err)
	}
	api := preflight.APIOf(c, through, strings.TrimSuffix(server.String(), "/"))
	return &Site{Client: c, watches: c, Called: called, API: api, remedy: remedy}, nil
}

// Watch watches objects. A request ends after RequestTimeout, as any other does.
func (s *Site) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	return s.watches.Watch(ctx, list, options...)
}

// connect returns a client for a config, which it completes, and the address of the server, to which all requests go.
func connect(config *rest.Config, called, remedy string) (*http.Client, *url.URL, error) {
	config.UserAgent = string(FieldOwner)
	// A command sends few requests, and the API server limits them by priority and fairness.
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, console.Faultf(remedy, "%s: %w", called, err)
	}
	// Below what authenticates requests, so that no credential gets past it.
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return pinned{server, next} })
	through, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, console.Faultf(remedy, "%s: %w", called, err)
	}
	return through, server, nil
}

// Identity returns the UID of the cluster, which is that of its namespace kube-system.
func (s *Site) Identity(ctx context.Context) (types.UID, error) {
	uid, err := s.API.Identity(ctx)
	return uid, s.Explain("reading its identity, namespace kube-system", err)
}

// Greet returns the version and the clock of the API server.
func (s *Site) Greet(ctx context.Context) (preflight.Greeting, error) {
	greeting, err := s.API.Greet(ctx)
	return greeting, s.Explain("asking for its version", err)
}

// MustBe returns an error unless the cluster is the one that the hub knows as this member.
func (s *Site) MustBe(ctx context.Context, member *flotillav1.MemberCluster) error {
	uid, err := s.Identity(ctx)
	if err != nil {
		return err
	}
	if member.Status.UID != "" && types.UID(member.Status.UID) != uid {
		return console.Faultf(s.remedy, "%s is not member %q: the UID of its kube-system is %s, and the hub knows %s", s.Called, member.Name, uid, member.Status.UID)
	}
	return nil
}

// Wait polls until a condition holds. It returns false without an error when the timeout has passed. The error of a request
// with a deadline of its own is returned; wait.Interrupted cannot distinguish it from the end of the timeout.
func Wait(ctx context.Context, timeout time.Duration, holds wait.ConditionWithContextFunc) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := wait.PollUntilContextCancel(limited, pollEvery, true, holds)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return false, nil
	}
	return err == nil, err
}
