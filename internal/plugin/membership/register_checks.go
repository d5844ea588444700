// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
)

// checkHub checks that the hub can accept the registration and does not have it yet.
func (r *register) checkHub(ctx context.Context, _ func(string)) (string, error) {
	var err error
	if r.hubSite, err = r.Hub(); err != nil {
		return "", err
	}
	existing := &flotillav1.MemberCluster{}
	err = r.hubSite.Get(ctx, client.ObjectKey{Name: r.name}, existing)
	switch {
	case err == nil:
		return "", console.Faultf(fmt.Sprintf("kubectl flotilla rotate %s renews its credential, kubectl flotilla unregister %s ends it", r.name, r.name),
			"a member %q is already registered, at %s, with Secret %s/%s", r.name, existing.Status.Endpoint, existing.Spec.SecretRef.Namespace, existing.Spec.SecretRef.Name)
	case !apierrors.IsNotFound(err):
		return "", r.hubSite.Explain("reading MemberClusters", err)
	}
	try := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Registrations, Name: r.name}}
	err = r.hubSite.Create(ctx, try, client.DryRunAll)
	switch {
	case apierrors.IsAlreadyExists(err):
		return "", console.Faultf("give the member another name, or delete the Secret", "the Secret %s/%s exists already", r.Registrations, r.name)
	case apierrors.IsNotFound(err):
		return "", console.Faultf("install Flotilla there (install.yaml or the Helm chart), or set --registration-namespace", "%s has no namespace %q", r.hubSite.Called, r.Registrations)
	case err != nil:
		return "", r.hubSite.Explain("trying to create the registration", err)
	}
	return "reachable, has no member " + r.name, nil
}

// checkMember checks that the cluster can become a member, and that the user may do there what registering does.
func (r *register) checkMember(ctx context.Context, doing func(string)) (string, error) {
	var err error
	if r.member, err = r.ByContext(r.context); err != nil {
		return "", err
	}
	found, err := r.checkCluster(ctx)
	if err != nil {
		return "", err
	}
	if err := r.checkClaim(ctx); err != nil {
		return "", err
	}
	if !r.skipManifests {
		doing("trying the manifests")
		objects, err := manifests.Member()
		if err == nil {
			err = manifests.Try(ctx, r.member, objects)
		}
		if err != nil {
			return "", err
		}
	}
	return "reachable, Kubernetes " + found.Version, nil
}

// checkCluster makes the checks of the manager that do not depend on the credential.
func (r *register) checkCluster(ctx context.Context) (*preflight.Findings, error) {
	// The user of the context may lack a right that the manager has.
	if _, err := r.member.Identity(ctx); err != nil {
		return nil, err
	}
	var members []flotillav1.MemberCluster
	checker, remedy := preflight.Checker{InstallCRDs: !r.skipManifests}, "choose the context of another cluster"
	if r.hubSite != nil {
		var err error
		if checker.HubUID, err = r.hubSite.Identity(ctx); err != nil {
			return nil, err
		}
		if members, err = r.hubSite.Members(ctx); err != nil {
			return nil, err
		}
	}
	checker.Acquire = func(uid types.UID, name multicluster.ClusterName) (multicluster.ClusterName, bool) {
		i := slices.IndexFunc(members, func(member flotillav1.MemberCluster) bool { return types.UID(member.Status.UID) == uid })
		if i < 0 {
			return name, true
		}
		remedy = "a cluster is one member; kubectl flotilla unregister " + members[i].Name + " ends that one"
		return multicluster.ClusterName(members[i].Name), false
	}
	found, err := checker.CheckCluster(ctx, r.member.API, &registration.Registration{ClusterName: multicluster.ClusterName(r.name)}, "")
	if refused := (*verdict.Refusal)(nil); errors.As(err, &refused) {
		what, general, _ := strings.Cut(refused.Message, "; ")
		if refused.Condition != flotillav1.ConditionCredentialsAccepted {
			remedy = general
		}
		return nil, console.Faultf(remedy, "%s: %s", r.member.Called, what)
	}
	return found, r.member.Explain("checking whether it can be a member", err)
}

// checkClaim checks that no hub works with the cluster.
func (r *register) checkClaim(ctx context.Context) error {
	claim, err := r.member.Claim(ctx)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if hubID := claim.HubID(); claim.HeldAt(r.Clock.Now()) && hubID != r.takeOver {
		return console.Faultf(fmt.Sprintf("unregister it there, or pass --take-over=%s", hubID),
			"%s is claimed by hub %q, which renewed its claim %s ago", r.member.Called, hubID, r.Ago(claim.Renewed()))
	}
	return nil
}
