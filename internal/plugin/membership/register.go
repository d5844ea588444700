// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// register makes a cluster a member of the hub.
type register struct {
	*tool
	credentialFlags
	name, server, labels        string
	kinds, namespaces, takeOver string
	paused, skipManifests       bool
	timeout                     time.Duration

	hubSite, member *site.Site
	endpoint        *clientcmdapi.Cluster
	// undo reverts what has been done and returns what to print. The last one runs first.
	undo []func(context.Context) string
}

func newRegister(t *tool) *cobra.Command {
	r := &register{tool: t}
	c := &cobra.Command{
		Use:   "register NAME --member-context CONTEXT",
		Short: "Make a cluster a member",
		Long: `Make a cluster a member: apply the manifests of config/member there, make a credential for the hub, write the
registration Secret on the hub, and wait until the hub works with the member.

--member-context is a context of an administrator of the member. Everything is checked before anything is written. If the
hub does not accept the registration, it is removed again, with the credential and the rights that this call created; the
schemas, the policies about annotations and taints, and namespace flotilla-system stay. Once the hub works with the member, the member stays
registered even if it is not ready in time.

The credential is a token of ServiceAccount flotilla-system/flotilla-hub, bound to a Secret there: deleting that Secret
revokes it. It lasts a year; if the member grants less than a month, it does not end. When a fifth of its lifetime is left,
the hub warns that it ends soon (kubectl flotilla expiries); kubectl flotilla rotate replaces it.

With -o yaml the registration is printed for a GitOps repository instead of being written: the hub is not contacted, and
the output contains the credential. Encrypt it.`,
		Example: `  kubectl flotilla register eu-1 --member-context eu-1-admin --labels region=eu
  kubectl flotilla register eu-1 --member-context eu-1-admin -o yaml | kubeseal -o yaml > eu-1.yaml`,
		Args:              console.ExactlyOne("the NAME of the member"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			r.name, r.lifetime.asked = args[0], c.Flags().Changed("token-lifetime")
			return r.run(c.Context())
		},
	}
	t.addCredential(c, &r.credentialFlags)
	c.Flags().StringVar(&r.server, "server", "", "https URL by which the hub reaches the member; that of the context if empty")
	c.Flags().StringVarP(&r.labels, "labels", "l", "", "Labels of the member, which placement selects on: region=eu,tier=gold")
	c.Flags().StringVar(&r.kinds, "kinds", "", "Kinds that the member takes part in: Redis or NodePool; both if empty")
	c.Flags().StringVar(&r.namespaces, "allowed-namespaces", "", "Namespaces of the hub that may place in the member, separated by commas; the hub's rule if empty")
	c.Flags().StringVar(&r.takeOver, "take-over", "", "Id of a hub whose claim on the member is taken over")
	c.Flags().BoolVar(&r.paused, "paused", false, "Observe the member and write nothing there")
	c.Flags().BoolVar(&r.skipManifests, "skip-manifests", false, "Do not apply config/member: it is there already, or kubectl flotilla rbac made it narrower")
	c.Flags().DurationVar(&r.timeout, "timeout", 2*time.Minute, "How long to wait until the member is ready")
	return c
}

// run registers the member, and undoes everything when that fails.
func (r *register) run(ctx context.Context) error {
	metadata, err := r.metadata()
	if err != nil {
		return err
	}
	r.Notef("Registering %s", r.name)
	err = r.steps(ctx, metadata)
	if err != nil && len(r.undo) > 0 {
		r.rollBack(ctx)
	}
	return err
}

func (r *register) steps(ctx context.Context, metadata metav1.ObjectMeta) error {
	var err error
	if r.endpoint, err = r.endpointOf(r.context, r.server); err != nil {
		return err
	}
	placeholder, err := kubeconfigFor(r.name, r.endpoint, "placeholder")
	if err != nil {
		return err
	}
	if err := acceptable(registrationSecret(metadata, corev1.SecretTypeOpaque, placeholder), "see NAME, --member-context and --server"); err != nil {
		return err
	}
	if r.output == "" {
		if err := r.Stage(ctx, "hub", r.checkHub); err != nil {
			return err
		}
	}
	if err := r.Stage(ctx, "member", r.checkMember); err != nil {
		return err
	}
	if !r.skipManifests {
		if err := r.Stage(ctx, "manifests", r.applyManifests); err != nil {
			return err
		}
	}
	var secret *corev1.Secret
	if err := r.Stage(ctx, "credential", func(ctx context.Context, _ func(string)) (string, error) {
		made, err := mint(ctx, r.member, r.name, r.lifetime)
		if err != nil {
			return "", err
		}
		r.undo = append(r.undo, func(ctx context.Context) string {
			if err := revoke(ctx, r.member, made); err != nil {
				return text.Line(err.Error())
			}
			return "the credential is revoked"
		})
		content, err := kubeconfigFor(r.name, r.endpoint, made.token)
		secret = registrationSecret(metadata, corev1.SecretTypeOpaque, content)
		return made.String(), err
	}); err != nil {
		return err
	}
	if r.output != "" {
		if err := r.PrintObject(r.output, secret); err != nil {
			return err
		}
		r.Notef("The registration holds the credential: encrypt it before it goes into a repository")
		return nil
	}
	return r.enter(ctx, secret)
}

// metadata checks the arguments and returns the metadata of the registration.
func (r *register) metadata() (metav1.ObjectMeta, error) {
	metadata := metav1.ObjectMeta{
		Namespace: r.Registrations, Name: r.name,
		Labels: map[string]string{flotillav1.LabelCluster: "true"}, Annotations: map[string]string{},
	}
	if err := r.check(); err != nil {
		return metadata, err
	}
	set, err := labels.ConvertSelectorToLabelsMap(r.labels)
	if err != nil {
		return metadata, console.Faultf("write them like region=eu,tier=gold", "the labels %q cannot be read: %w", r.labels, err)
	}
	maps.Copy(metadata.Labels, set)
	for key, value := range map[string]string{
		flotillav1.AnnotationKinds: r.kinds, flotillav1.AnnotationAllowedNamespaces: r.namespaces, flotillav1.AnnotationTakeOver: r.takeOver,
	} {
		if value != "" {
			metadata.Annotations[key] = value
		}
	}
	if r.paused {
		metadata.Annotations[flotillav1.AnnotationPaused] = "true"
	}
	registered := registration.ConventionFlotilla.Read(&corev1.Secret{ObjectMeta: metadata})
	for _, kind := range registered.Kinds {
		if err := console.CheckOneOf("kind", kind, fleet.KindNames); err != nil {
			return metadata, err
		}
	}
	return metadata, nil
}

// applyManifests applies config/member.
func (r *register) applyManifests(ctx context.Context, doing func(string)) (string, error) {
	objects, err := manifests.Member()
	if err != nil {
		return "", err
	}
	done, err := manifests.Apply(ctx, r.member, objects, doing)
	if len(done.Created) > 0 {
		r.undo = append(r.undo, func(ctx context.Context) string {
			if _, left := manifests.Remove(ctx, r.member, done.Created); len(left) > 0 {
				return "not removed from the member: " + text.List(left, 10)
			}
			return "the rights of the hub in the member are removed"
		})
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d objects applied", done.Total), nil
}
