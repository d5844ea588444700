// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// minVersion is the oldest Kubernetes that a member may run.
var minVersion = version.MustParseGeneric("1.30.0")

// maxAnswerBytes limits the answers that are read outside of client-go.
const maxAnswerBytes = 1 << 20

// preflightTimeout is for all of it together; each call has its own deadline as well.
const preflightTimeout = time.Minute

// memberAPI talks to a member without a cache.
type memberAPI struct {
	client client.Client
	http   *http.Client
	base   string
}

// memberConfig is the rest.Config of a member. It holds nothing secret: host is the member's name, and the transport
// knows where that is and how to authenticate. It is only of use together with the HTTP client of the member.
func memberConfig(name string) *rest.Config {
	return &rest.Config{Host: "https://" + name, QPS: -1}
}

// newMemberAPI makes live clients that go through a transport or a link.
func (p *Pool) newMemberAPI(name string, through http.RoundTripper) (*memberAPI, error) {
	config := memberConfig(name)
	hc := httpClient(through)
	c, err := client.New(config, client.Options{HTTPClient: hc, Scheme: p.cfg.Scheme, Mapper: p.mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client for %q: %w", name, err)
	}
	return &memberAPI{client: c, http: hc, base: config.Host}, nil
}

// get reads a path that is not an object.
func (a *memberAPI) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, */*")
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp.StatusCode)
	}
	return body, nil
}

// ready asks whether the member is there. Unlike its path suggests it authenticates too.
func (a *memberAPI) ready(ctx context.Context) error {
	_, err := a.get(ctx, "/readyz")
	return err
}

// identity is the UID of the member: that of its namespace kube-system.
func (a *memberAPI) identity(ctx context.Context) (types.UID, error) {
	namespace := &corev1.Namespace{}
	if err := a.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", err
	}
	if !isWord(string(namespace.UID)) {
		return "", errors.New("the identity is not one")
	}
	return namespace.UID, nil
}

// version is the version of the member's API server.
func (a *memberAPI) version(ctx context.Context) (string, error) {
	body, err := a.get(ctx, "/version")
	if err != nil {
		return "", err
	}
	info := apiversion.Info{}
	if err := json.Unmarshal(body, &info); err != nil || !isWord(info.GitVersion) {
		return "", errors.New("the version is not one")
	}
	return info.GitVersion, nil
}

// served lists the resources of our group and version that the member serves. Discovery is asked rather than the
// CustomResourceDefinitions: it tells what is served now and needs no right of its own.
func (a *memberAPI) served(ctx context.Context) ([]string, error) {
	body, err := a.get(ctx, "/apis/"+flotillav1.GroupVersion.String())
	if status := statusError(0); errors.As(err, &status) && status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := metav1.APIResourceList{}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, errors.New("the list of resources is not one")
	}
	names := make([]string, 0, len(list.APIResources))
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	return names, nil
}

// findings is what the preflight saw, as far as it came.
type findings struct {
	uid      types.UID
	version  string
	served   served
	verdicts map[string]verdict
}

// preflight finds out whether a member that answers can be engaged. It returns what it found also when it refuses; an
// error that is no *refusal means that the member did not answer as it should.
func (p *Pool) preflight(ctx context.Context, api *memberAPI, in *attemptInput) (*findings, error) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	found := &findings{verdicts: map[string]verdict{
		flotillav1.ConditionReachable: good(flotillav1.ReasonProbeSucceeded, "The API server answers"),
	}}
	uid, err := api.identity(ctx)
	if isForbidden(err) {
		err = p.afterReady(ctx, api, func() error { uid, err = api.identity(ctx); return err })
	}
	if isForbidden(err) {
		return found, refuseForbidden([]string{"get namespaces (kube-system)"})
	}
	if err != nil {
		return found, fmt.Errorf("reading the identity: %w", err)
	}
	if refused := p.checkIdentity(uid, in); refused != nil {
		return found, refused
	}
	if found.version, err = api.version(ctx); err != nil {
		return found, fmt.Errorf("reading the version: %w", err)
	}
	if refused := checkVersion(found.version); refused != nil {
		return found, refused
	}
	if found.served, err = api.read(ctx); err != nil {
		return found, err
	}
	refused := checkServed(found.served.resources)
	if refused != nil && !p.cfg.InstallCRDs {
		return found, refused
	}
	if err := checkNotHub(ctx, api, found.served.resources); err != nil {
		return found, err
	}
	// From here on the registration stands for this cluster, whatever else is missing.
	found.uid = uid
	found.verdicts[flotillav1.ConditionCredentialsAccepted] = in.accepted()
	if found.served.denied, err = p.checkRights(ctx, api, &in.registration); err != nil {
		return found, err
	}
	if refused == nil {
		found.verdicts[flotillav1.ConditionAPIsServed] = found.served.verdict(p.cfg.InstallCRDs)
	}
	return found, nil
}

// afterReady repeats an act that was forbidden once the member has said that it is ready: an API server that starts
// answers 403 to everything until it has read its roles.
func (p *Pool) afterReady(ctx context.Context, api *memberAPI, act func() error) error {
	if err := api.ready(ctx); err != nil {
		return err
	}
	return act()
}

// checkIdentity refuses clusters that this registration may not mean.
func (p *Pool) checkIdentity(uid types.UID, in *attemptInput) *refusal {
	if uid == p.hubUID() {
		return refuseIdentity(flotillav1.ReasonSelfRegistration, "The registration leads to the hub itself, which is no member; remove it or correct its server")
	}
	if in.recordedUID != "" && uid != in.recordedUID && uid != in.registration.replace {
		return refuseIdentity(flotillav1.ReasonIdentityChanged, fmt.Sprintf(
			"The registration leads to another cluster than before; annotate the Secret with %s: %q if that is meant", flotillav1.AnnotationReplace, uid))
	}
	if owner, ok := p.acquireUID(uid, in.registration.clusterName); !ok {
		return refuseIdentity(flotillav1.ReasonDuplicateCluster, fmt.Sprintf("The cluster is registered as %q already; remove one of the two", owner))
	}
	return nil
}

// checkVersion refuses members that are too old.
func checkVersion(gitVersion string) *refusal {
	parsed, err := version.ParseGeneric(gitVersion)
	if err != nil || parsed.LessThan(minVersion) {
		return refuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonUnsupportedVersion,
			fmt.Sprintf("Kubernetes %q is not supported; upgrade the member to 1.30 or later", gitVersion))
	}
	return nil
}

// checkServed refuses members that lack our kinds.
func checkServed(resources []string) *refusal {
	var missing []string
	for _, resource := range []string{"nodepools", "redises"} {
		if !slices.Contains(resources, resource) {
			missing = append(missing, resource+"."+flotillav1.GroupVersion.Group)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return refuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonCRDMissing,
		fmt.Sprintf("The member does not serve %s; apply config/member", strings.Join(missing, ", ")))
}

// checkNotHub refuses members that have members themselves. One that may not be asked is taken for none.
func checkNotHub(ctx context.Context, api *memberAPI, resources []string) error {
	if !slices.Contains(resources, "memberclusters") {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(flotillav1.GroupVersion.WithKind("MemberClusterList"))
	err := api.client.List(ctx, list, client.Limit(1))
	switch {
	case isForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for members of the member: %w", err)
	case len(list.Items) > 0:
		return refuseIdentity(flotillav1.ReasonMemberIsHub, "The registration leads to a cluster that has MemberClusters, and so is a hub itself; remove the registration, or the MemberClusters there")
	}
	return nil
}
