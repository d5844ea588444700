// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// minVersion is the minimum Kubernetes version of a member.
var minVersion = version.MustParseGeneric(flotillav1.MinKubernetesVersion)

// Timeout limits the whole preflight. Each call also has its own deadline.
const Timeout = time.Minute

// API is an uncached client of a member.
type API struct {
	Client client.Client
	http   *http.Client
	base   string
}

// Config returns the rest.Config of a member. It contains no secrets: the host is the member's name, and the transport
// resolves it and authenticates. It is useful only together with the HTTP client of the member.
func Config(name string) *rest.Config {
	return &rest.Config{Host: "https://" + name, QPS: -1}
}

// NewAPI returns an API that uses a transport or a link.
func NewAPI(name string, through http.RoundTripper, scheme *runtime.Scheme, mapper apimeta.RESTMapper) (*API, error) {
	config := Config(name)
	hc := transport.Client(Dated{through})
	c, err := client.New(config, client.Options{HTTPClient: hc, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client for %q: %w", name, err)
	}
	return &API{Client: c, http: hc, base: config.Host}, nil
}

// APIOf returns an API that uses a client and the HTTP client below it. base is the URL of the server.
func APIOf(c client.Client, hc *http.Client, base string) *API {
	return &API{Client: c, http: hc, base: base}
}

// get reads a raw path.
func (a *API) get(ctx context.Context, path string) ([]byte, error) {
	body, _, err := a.fetch(ctx, path)
	return body, err
}

// fetch reads a raw path, with the header of the response.
func (a *API) fetch(ctx context.Context, path string) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "application/json, */*")
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, transport.MaxAnswerBytes))
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, verdict.StatusError(resp.StatusCode)
	}
	return body, resp.Header, nil
}

// Ready returns an error unless the member is ready. Despite its path, the request also authenticates.
func (a *API) Ready(ctx context.Context) error {
	_, err := a.get(ctx, "/readyz")
	return err
}

// Identity returns the UID of the member, which is that of its kube-system namespace.
func (a *API) Identity(ctx context.Context) (types.UID, error) {
	namespace := &corev1.Namespace{}
	if err := a.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", err
	}
	if !text.IsWord(string(namespace.UID)) {
		return "", errors.New("malformed UID of namespace kube-system")
	}
	return namespace.UID, nil
}

// Greeting is the response of an API server to /version.
type Greeting struct {
	Version string
	// At is the server's clock, to the second; zero if the response has no date.
	At time.Time
}

// Greet returns the version and the clock of the member's API server.
func (a *API) Greet(ctx context.Context) (Greeting, error) {
	body, header, err := a.fetch(ctx, "/version")
	if err != nil {
		return Greeting{}, err
	}
	info := apiversion.Info{}
	if err := json.Unmarshal(body, &info); err != nil || !text.IsWord(info.GitVersion) {
		return Greeting{}, errors.New("malformed version")
	}
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		at = time.Time{}
	}
	return Greeting{Version: info.GitVersion, At: at}, nil
}

// served returns the resources of our group and version that the member serves. It uses discovery instead of the
// CustomResourceDefinitions, because that shows what is actually served and needs no extra permission.
func (a *API) served(ctx context.Context) ([]string, error) {
	body, err := a.get(ctx, "/apis/"+flotillav1.GroupVersion.String())
	if status := verdict.StatusError(0); errors.As(err, &status) && status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := metav1.APIResourceList{}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, errors.New("malformed list of resources")
	}
	names := make([]string, 0, len(list.APIResources))
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	return names, nil
}

// Findings is what the preflight found until it ended.
type Findings struct {
	UID      types.UID
	Version  string
	Served   Served
	Verdicts map[string]verdict.Verdict
}

// Checker decides whether members can be engaged.
type Checker struct {
	// HubUID is the UID of the hub's own cluster, which cannot be a member.
	HubUID types.UID
	// InstallCRDs makes the manager responsible for the CustomResourceDefinitions of members.
	InstallCRDs bool
	// Acquire reserves a cluster for a member. If another member has it, it returns that one and false.
	Acquire func(types.UID, multicluster.ClusterName) (owner multicluster.ClusterName, ok bool)
}

// Check decides whether a member that answers can be engaged. recordedUID is the cluster that the name referred to
// before, or empty. Check returns its findings even if it refuses. An error that is not a *verdict.Refusal means that the
// member did not answer properly.
func (c Checker) Check(ctx context.Context, api *API, registered *registration.Registration, recordedUID types.UID) (*Findings, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	found, err := c.CheckCluster(ctx, api, registered, recordedUID)
	if err != nil {
		return found, err
	}
	found.Verdicts[flotillav1.ConditionCredentialsAccepted] = registered.Accepted()
	if found.Served.Denied, err = CheckRights(ctx, api, registered); err != nil {
		return found, err
	}
	if CheckServed(found.Served.Resources) == nil {
		found.Verdicts[flotillav1.ConditionAPIsServed] = found.Served.Verdict(c.InstallCRDs)
	}
	return found, nil
}

// CheckCluster is the part of Check that does not depend on what the credential may do in the cluster.
func (c Checker) CheckCluster(ctx context.Context, api *API, registered *registration.Registration, recordedUID types.UID) (*Findings, error) {
	found := &Findings{Verdicts: map[string]verdict.Verdict{
		flotillav1.ConditionReachable: verdict.Good(flotillav1.ReasonProbeSucceeded, "The API server answers"),
	}}
	uid, err := api.Identity(ctx)
	if verdict.IsForbidden(err) {
		err = afterReady(ctx, api, func() error { uid, err = api.Identity(ctx); return err })
	}
	if verdict.IsForbidden(err) {
		return found, RefuseForbidden([]string{"get namespaces (kube-system)"})
	}
	if err != nil {
		return found, fmt.Errorf("reading the identity: %w", err)
	}
	if refused := c.checkIdentity(uid, registered, recordedUID); refused != nil {
		return found, refused
	}
	greeting, err := api.Greet(ctx)
	if err != nil {
		return found, fmt.Errorf("reading the version: %w", err)
	}
	found.Version = greeting.Version
	if refused := CheckVersion(found.Version); refused != nil {
		return found, refused
	}
	if found.Served, err = api.Read(ctx); err != nil {
		return found, err
	}
	if refused := CheckServed(found.Served.Resources); refused != nil && !c.InstallCRDs {
		return found, refused
	}
	if err := checkNotHub(ctx, api, found.Served.Resources); err != nil {
		return found, err
	}
	// From here on the registration refers to this cluster, whatever else is missing.
	found.UID = uid
	return found, nil
}

// afterReady repeats a forbidden call after the member has reported that it is ready: a starting API server answers 403
// to every request until it has loaded its roles.
func afterReady(ctx context.Context, api *API, act func() error) error {
	if err := api.Ready(ctx); err != nil {
		return err
	}
	return act()
}

// checkIdentity refuses a cluster that the registration must not refer to.
func (c Checker) checkIdentity(uid types.UID, registered *registration.Registration, recordedUID types.UID) *verdict.Refusal {
	if uid == c.HubUID {
		return verdict.RefuseIdentity(flotillav1.ReasonSelfRegistration, "The registration leads to the hub itself, which cannot be a member; remove it or correct its server")
	}
	if recordedUID != "" && uid != recordedUID && uid != registered.Replace {
		return verdict.RefuseIdentity(flotillav1.ReasonIdentityChanged, fmt.Sprintf(
			"The registration leads to another cluster than before; annotate the Secret with %s: %q if that is meant", flotillav1.AnnotationReplace, uid))
	}
	if owner, ok := c.Acquire(uid, registered.ClusterName); !ok {
		return verdict.RefuseIdentity(flotillav1.ReasonDuplicateCluster, fmt.Sprintf("The cluster is registered as %q already; remove one of the two", owner))
	}
	return nil
}

// CheckVersion refuses members that are too old.
func CheckVersion(gitVersion string) *verdict.Refusal {
	parsed, err := version.ParseGeneric(gitVersion)
	if err != nil || parsed.LessThan(minVersion) {
		return verdict.RefuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonUnsupportedVersion,
			fmt.Sprintf("Kubernetes %q is not supported; upgrade the member to 1.30 or later", gitVersion))
	}
	return nil
}

// CheckServed refuses members that lack our kinds.
func CheckServed(resources []string) *verdict.Refusal {
	return refuseMissing(slices.DeleteFunc(DefinitionNames(), func(name string) bool {
		resource, _, _ := strings.Cut(name, ".")
		return slices.Contains(resources, resource)
	}))
}

// refuseMissing refuses a member that lacks definitions. It returns nil if it lacks none.
func refuseMissing(names []string) *verdict.Refusal {
	if len(names) == 0 {
		return nil
	}
	return verdict.RefuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonCRDMissing,
		fmt.Sprintf("The member does not serve %s; apply config/member", strings.Join(names, ", ")))
}

// checkNotHub refuses members that have MemberClusters themselves. A member that does not allow the check passes.
func checkNotHub(ctx context.Context, api *API, resources []string) error {
	if !slices.Contains(resources, "memberclusters") {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(flotillav1.GroupVersion.WithKind("MemberClusterList"))
	err := api.Client.List(ctx, list, client.Limit(1))
	switch {
	case verdict.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for members of the member: %w", err)
	case len(list.Items) > 0:
		return verdict.RefuseIdentity(flotillav1.ReasonMemberIsHub, "The registration leads to a cluster that has MemberClusters, and so is a hub itself; remove the registration, or the MemberClusters there")
	}
	return nil
}
