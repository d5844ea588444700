// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// eventRotated is the reason of the event with which the hub begins to use another credential.
const eventRotated = "CredentialsRotated"

// rotate replaces the credential of the hub in a member.
type rotate struct {
	*tool
	credentialFlags
	timeout   time.Duration
	revokeOld bool

	membership
}

func newRotate(t *tool) *cobra.Command {
	r := &rotate{tool: t}
	c := &cobra.Command{
		Use:   "rotate NAME --member-context CONTEXT",
		Short: "Give the hub a new credential for a member and revoke the old one",
		Long: `Give the hub a new credential for a member: create it in the member, write it to the registration, wait until the hub uses
it, and only then revoke the others that register and rotate have created there. Nothing is interrupted: the hub tests the
new credential first and switches running connections to it. If the hub does not accept it, both stay valid and the command
fails.

Run it when kubectl flotilla expiries shows that a credential ends soon, when a credential may have leaked, or on a
schedule, for example in a CronJob with a context of the member.

With -o yaml the registration is printed for a GitOps repository instead of being written, and nothing is revoked. Once
the hub uses it, --revoke-old revokes the others.`,
		Example: `  kubectl flotilla rotate eu-1 --member-context eu-1-admin
  kubectl flotilla rotate eu-1 --member-context eu-1-admin -o yaml | kubeseal -o yaml > eu-1.yaml
  kubectl flotilla rotate eu-1 --member-context eu-1-admin --revoke-old`,
		Args:              console.ExactlyOne("the NAME of the member"),
		ValidArgsFunction: t.CompleteMember,
		RunE: func(c *cobra.Command, args []string) error {
			r.lifetime.asked = c.Flags().Changed("token-lifetime")
			return r.run(c.Context(), args[0])
		},
	}
	t.addCredential(c, &r.credentialFlags)
	c.Flags().DurationVar(&r.timeout, "timeout", 2*time.Minute, "How long to wait until the hub uses the new credential")
	c.Flags().BoolVar(&r.revokeOld, "revoke-old", false, "Only revoke the credentials that the registration does not hold")
	return c
}

func (r *rotate) run(ctx context.Context, name string) error {
	if err := r.check(); err != nil {
		return err
	}
	var err error
	if r.membership, err = r.membershipOf(ctx, name, r.context); err != nil {
		return err
	}
	config, err := r.kubeconfig()
	if err != nil {
		return err
	}
	r.Notef("Rotating the credential of %s", name)
	if r.revokeOld {
		if err := r.mustUse(r.member); err != nil {
			return err
		}
		inUse := claimsOf(currentToken(config)).secret()
		if inUse == "" {
			return console.Faultf("run kubectl flotilla rotate without --revoke-old first", "the registration's credential is not one that register or rotate have made")
		}
		return r.Stage(ctx, "old credentials", r.revoke(func(secret *corev1.Secret) bool {
			return secret.Name != inUse && isOf(secret, r.member.Name)
		}))
	}
	return r.replace(ctx, config)
}

// kubeconfig reads the kubeconfig of the registration. Parsing runs no program and reads no file.
func (r *rotate) kubeconfig() (*clientcmdapi.Config, error) {
	content, found := r.secret.Data[flotillav1.KeyKubeconfig]
	if !found {
		return nil, console.Faultf("renew it there", "the registration, Secret %s/%s, has no key %q: another tool made it", r.secret.Namespace, r.secret.Name, flotillav1.KeyKubeconfig)
	}
	config := load(content)
	if config == nil {
		return nil, console.Faultf("correct it, or unregister and register the member", "the kubeconfig of Secret %s/%s cannot be read", r.secret.Namespace, r.secret.Name)
	}
	return config, nil
}

// load reads a kubeconfig, and returns nil unless its current context has a user.
func load(kubeconfig []byte) *clientcmdapi.Config {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil || config.Contexts[config.CurrentContext] == nil || config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] == nil {
		return nil
	}
	return config
}

// currentToken returns the token of the current context.
func currentToken(config *clientcmdapi.Config) string {
	return config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token
}

// replace makes a new credential and waits until the hub uses it.
func (r *rotate) replace(ctx context.Context, config *clientcmdapi.Config) error {
	var made *credential
	if err := r.Stage(ctx, "credential", func(ctx context.Context, _ func(string)) (string, error) {
		var err error
		if made, err = mint(ctx, r.site, r.member.Name, r.lifetime); err != nil {
			return "", err
		}
		return made.String(), nil
	}); err != nil {
		return err
	}
	former := currentToken(config)
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = &clientcmdapi.AuthInfo{Token: made.token}
	content, err := clientcmd.Write(*config)
	old := r.secret.DeepCopy()
	if err == nil {
		r.secret.Data[flotillav1.KeyKubeconfig] = content
		err = acceptable(r.secret, fmt.Sprintf("in Secret %s/%s", r.secret.Namespace, r.secret.Name))
	}
	if err != nil {
		return errors.Join(err, revoke(ctx, r.site, made))
	}
	if r.output != "" {
		return r.print()
	}
	before, err := r.hub.EventsOf(ctx, r.member.Name, eventRotated)
	if err != nil {
		return errors.Join(err, revoke(ctx, r.site, made))
	}
	if err := r.Stage(ctx, "registration", func(ctx context.Context, _ func(string)) (string, error) {
		err := r.hub.Patch(ctx, r.secret, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
		return fmt.Sprintf("Secret %s/%s", r.secret.Namespace, r.secret.Name), r.hub.Explain("updating the registration", err)
	}); err != nil {
		return errors.Join(err, revoke(ctx, r.site, made))
	}
	if err := r.Stage(ctx, "hub", func(ctx context.Context, doing func(string)) (string, error) {
		return r.awaitUse(ctx, made, before, doing)
	}); err != nil {
		return err
	}
	return r.revokeFormer(ctx, made, former)
}

// revokeFormer revokes all credentials but the new one, and says how to end the former one if it is none of them.
func (r *rotate) revokeFormer(ctx context.Context, made *credential, token string) error {
	former, revoked := claimsOf(token).secret(), false
	if err := r.Stage(ctx, "old credentials", r.revoke(func(secret *corev1.Secret) bool {
		if secret.Name == former {
			// Perhaps it was made when the member had another name.
			revoked = true
			return true
		}
		return secret.Name != made.secret.Name && isOf(secret, r.member.Name)
	})); err != nil || revoked {
		return err
	}
	remedy := fmt.Sprintf("delete ServiceAccount %s/%s there, run kubectl flotilla upgrade-member %s, and rotate again", flotillav1.SystemNamespace, flotillav1.HubServiceAccount, r.member.Name)
	switch {
	case token == "":
		remedy = "revoke it where it was issued"
	case former != "":
		remedy = fmt.Sprintf("delete Secret %s/%s there", flotillav1.SystemNamespace, former)
	}
	r.Notef("%s neither register nor rotate made the credential before, which stays valid until it ends; to end it now, %s", console.Paint(r.ErrOut, console.Yellow, "!"), remedy)
	return nil
}

// tracking are labels and annotations by which tools remember what they have applied. Each tool writes its own again.
var tracking = []string{
	corev1.LastAppliedConfigAnnotation, "argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id",
	"kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace",
	"helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace",
}

// print writes the registration for a GitOps repository, without what the API server of the hub and tools have added.
func (r *rotate) print() error {
	labels, annotations := maps.Clone(r.secret.Labels), maps.Clone(r.secret.Annotations)
	for _, key := range tracking {
		delete(labels, key)
		delete(annotations, key)
	}
	secret := registrationSecret(metav1.ObjectMeta{
		Namespace: r.secret.Namespace, Name: r.secret.Name, Labels: labels, Annotations: annotations,
	}, r.secret.Type, r.secret.Data[flotillav1.KeyKubeconfig])
	if err := r.PrintObject(r.output, secret); err != nil {
		return err
	}
	r.Notef("The registration holds the credential: encrypt it before it goes into a repository.")
	r.Notef("Once the hub uses it: kubectl flotilla rotate %s --member-context %s --revoke-old", r.member.Name, r.context)
	return nil
}

// mustUse returns an error unless the hub uses what the registration holds.
func (r *rotate) mustUse(member *flotillav1.MemberCluster) error {
	state := condition.Accepted(member)
	if state.Status == metav1.ConditionTrue {
		return nil
	}
	return console.Faultf("nothing was revoked: solve that first", "the hub does not use the credential of the registration: %s: %s", console.OrDash(state.Reason), console.OrDash(state.Message))
}

// awaitUse waits until the hub uses the new credential. Its expiration shows that, or, for a token that does not end, an
// event that was not there before.
func (r *rotate) awaitUse(ctx context.Context, made *credential, before site.Events, doing func(string)) (string, error) {
	var state metav1.Condition
	used, err := site.Wait(ctx, r.timeout, func(ctx context.Context) (bool, error) {
		member := &flotillav1.MemberCluster{}
		if err := r.hub.Get(ctx, client.ObjectKeyFromObject(r.member), member); err != nil {
			return false, err
		}
		state = condition.Accepted(member)
		doing(console.OrDash(state.Reason))
		if state.Status != metav1.ConditionTrue {
			return false, nil
		}
		if known := member.Status.Credentials; !made.expires.IsZero() && known != nil && known.ExpirationTime != nil {
			return known.ExpirationTime.Unix() == made.expires.Unix(), nil
		}
		now, err := r.hub.EventsOf(ctx, r.member.Name, eventRotated)
		return len(now.Since(before)) > 0, err
	})
	if err == nil && !used {
		return "", console.Faultf(fmt.Sprintf("both credentials stay valid; when that is solved, kubectl flotilla rotate %s --member-context %s --revoke-old", r.member.Name, r.context),
			"the hub did not use the new credential within %s: CredentialsAccepted is %s: %s: %s", r.timeout, state.Status, console.OrDash(state.Reason), console.OrDash(state.Message))
	}
	return "uses the new credential", r.hub.Explain("waiting for the hub", err)
}

// revoke revokes the credentials that are chosen.
func (r *rotate) revoke(chosen func(*corev1.Secret) bool) console.Step {
	return func(ctx context.Context, doing func(string)) (string, error) {
		revoked, err := revokeAll(ctx, r.site, chosen, doing)
		return fmt.Sprintf("%d revoked", revoked), err
	}
}
