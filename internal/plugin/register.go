// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// register makes a cluster a member.
type register struct {
	*tool
	name, context, server, labels string
	kinds, namespaces, takeOver   string
	paused, skipManifests         bool
	lifetime                      lifetimeFlag
	timeout                       time.Duration
	output                        string

	hubSite, member *site
	uid             types.UID
	endpoint        *clientcmdapi.Cluster
	// undo takes back what has been done, the last first.
	undo []func(context.Context) string
}

func newRegister(t *tool) *cobra.Command {
	r := &register{tool: t}
	c := &cobra.Command{
		Use:   "register NAME --member-context CONTEXT",
		Short: "Make a cluster a member",
		Long: `Make a cluster a member: apply the manifests of config/member there, make a credential for the hub, write the
registration Secret on the hub, and wait until the hub works with the member.

--member-context is a context of an administrator of the member. Everything is tried before anything is written, and a
registration that the hub does not take is taken back, with the credential and with the rights that this call gave; the
schemas, the policy that warns, and namespace flotilla-system stay. A member that the hub has begun to work with stays
registered, also when it is not ready in time.

The credential is a token of ServiceAccount flotilla-system/flotilla-hub, tied to a Secret there: deleting that Secret
revokes it. It lasts a year; where the member grants less than a month, it does not end. The hub says a fifth of its
lifetime before that it ends soon (kubectl flotilla expiries); kubectl flotilla rotate puts a new one in its place.

With -o yaml the registration is printed for a GitOps repository in place of being written: the hub is not contacted, and
the output holds the credential. Encrypt it.`,
		Example: `  kubectl flotilla register eu-1 --member-context eu-1-admin --labels region=eu
  kubectl flotilla register eu-1 --member-context eu-1-admin -o yaml | kubeseal -o yaml > eu-1.yaml`,
		Args:              exactlyOne("the NAME of the member"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			r.name, r.lifetime.asked = args[0], c.Flags().Changed("token-lifetime")
			return r.run(c.Context())
		},
	}
	c.Flags().StringVar(&r.context, "member-context", "", "Context of an administrator of the member (required)")
	c.Flags().StringVar(&r.server, "server", "", "https URL by which the hub reaches the member; that of the context if empty")
	c.Flags().StringVarP(&r.labels, "labels", "l", "", "Labels of the member, which placement selects on: region=eu,tier=gold")
	c.Flags().StringVar(&r.kinds, "kinds", "", "Kinds that the member takes part in: Redis or NodePool; both if empty")
	c.Flags().StringVar(&r.namespaces, "allowed-namespaces", "", "Namespaces of the hub that may place in the member, separated by commas; the hub's rule if empty")
	c.Flags().StringVar(&r.takeOver, "take-over", "", "Id of a hub whose claim on the member is taken over")
	c.Flags().BoolVar(&r.paused, "paused", false, "Observe the member and write nothing there")
	c.Flags().BoolVar(&r.skipManifests, "skip-manifests", false, "Do not apply config/member: it is there already, or kubectl flotilla rbac made it narrower")
	c.Flags().DurationVar(&r.lifetime.wanted, "token-lifetime", wantedLifetime, lifetimeUsage)
	c.Flags().DurationVar(&r.timeout, "timeout", 2*time.Minute, "How long to wait until the member is ready")
	c.Flags().StringVarP(&r.output, "output", "o", "", "yaml or json: print the registration, credential included, in place of writing it")
	_ = c.RegisterFlagCompletionFunc("member-context", t.completeContexts)
	return c
}

// run registers, and takes back what it has done when that fails.
func (r *register) run(ctx context.Context) error {
	metadata, err := r.metadata()
	if err != nil {
		return err
	}
	r.say("Registering %s", r.name)
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
	if err == nil {
		err = acceptable(placeholder)
	}
	if err != nil {
		return err
	}
	if r.output == "" {
		if err := r.stage(ctx, "hub", r.checkHub); err != nil {
			return err
		}
	}
	if err := r.stage(ctx, "member", r.checkMember); err != nil {
		return err
	}
	if !r.skipManifests {
		if err := r.stage(ctx, "manifests", r.applyManifests); err != nil {
			return err
		}
	}
	var secret *corev1.Secret
	if err := r.stage(ctx, "credential", func(ctx context.Context, _ func(string)) (string, error) {
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
		secret = &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metadata, Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{flotillav1.KeyKubeconfig: content},
		}
		return made.String(), err
	}); err != nil {
		return err
	}
	if r.output != "" {
		if err := r.printAs(r.output, secret); err != nil {
			return err
		}
		r.say("The registration holds the credential: encrypt it before it goes into a repository")
		return nil
	}
	return r.enter(ctx, secret)
}

// metadata checks the arguments and makes the metadata of the registration of them.
func (r *register) metadata() (metav1.ObjectMeta, error) {
	metadata := metav1.ObjectMeta{
		Namespace: r.registrations, Name: r.name,
		Labels: map[string]string{flotillav1.LabelCluster: "true"}, Annotations: map[string]string{},
	}
	if len(validation.IsDNS1123Label(r.name)) > 0 {
		return metadata, faultf("use lower-case letters, digits and hyphens", "the name %q is not a DNS label of at most 63 characters", r.name)
	}
	if r.context == "" {
		return metadata, faultf("name a context of an administrator of the member; kubectl config get-contexts lists them", "--member-context is missing")
	}
	if r.output != "" && r.output != "yaml" && r.output != "json" {
		return metadata, badOutput(r.output, "json", "yaml")
	}
	set, err := labels.ConvertSelectorToLabelsMap(r.labels)
	if err != nil {
		return metadata, faultf("write them like region=eu,tier=gold", "the labels %q cannot be read: %w", r.labels, err)
	}
	maps.Copy(metadata.Labels, set)
	for kind := range strings.SplitSeq(r.kinds, ",") {
		if kind != "" && kind != "Redis" && kind != "NodePool" {
			return metadata, faultf("use Redis or NodePool", "the kind %q is not known", kind)
		}
	}
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
	return metadata, nil
}

// applyManifests applies config/member.
func (r *register) applyManifests(ctx context.Context, doing func(string)) (string, error) {
	objects, err := memberManifests()
	if err != nil {
		return "", err
	}
	done, err := applyMemberManifests(ctx, r.member, objects, doing)
	if len(done.created) > 0 {
		r.undo = append(r.undo, func(ctx context.Context) string {
			if _, left := removeObjects(ctx, r.member, done.created); len(left) > 0 {
				return "not removed from the member: " + text.List(left, 10)
			}
			return "the rights of the hub in the member are removed"
		})
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d objects applied", done.total), nil
}
