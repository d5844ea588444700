// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// rotate puts a new credential in the place of the one in use.
type rotate struct {
	*tool
	context   string
	lifetime  lifetimeFlag
	timeout   time.Duration
	output    string
	revokeOld bool

	hubSite, memberSite *site
	member              *flotillav1.MemberCluster
	secret              *corev1.Secret
}

func newRotate(t *tool) *cobra.Command {
	r := &rotate{tool: t}
	c := &cobra.Command{
		Use:   "rotate NAME --member-context CONTEXT",
		Short: "Give the hub a new credential for a member and revoke the old one",
		Long: `Give the hub a new credential for a member: make it in the member, put it into the registration, wait until the hub uses
it, and only then revoke the others that register and rotate have made there. Nothing is interrupted: the hub tries the new
one first and swaps it in under the running connections. When the hub does not take it, both stay valid and the command
says so.

When to run it: when kubectl flotilla expiries says that a credential ends soon, when somebody may have seen it, and on a
schedule if you like; a CronJob with a context of the member does.

With -o yaml the registration is printed for a GitOps repository in place of being written, and nothing is revoked. Once
the hub uses it, --revoke-old revokes the others.`,
		Example: `  kubectl flotilla rotate eu-1 --member-context eu-1-admin
  kubectl flotilla rotate eu-1 --member-context eu-1-admin -o yaml | kubeseal -o yaml > eu-1.yaml
  kubectl flotilla rotate eu-1 --member-context eu-1-admin --revoke-old`,
		Args:              exactlyOne("the NAME of the member"),
		ValidArgsFunction: t.completeMembers,
		RunE: func(c *cobra.Command, args []string) error {
			r.lifetime.asked = c.Flags().Changed("token-lifetime")
			return r.run(c.Context(), args[0])
		},
	}
	c.Flags().StringVar(&r.context, "member-context", "", "Context of an administrator of the member (required)")
	c.Flags().DurationVar(&r.lifetime.wanted, "token-lifetime", wantedLifetime, lifetimeUsage)
	c.Flags().DurationVar(&r.timeout, "timeout", 2*time.Minute, "How long to wait until the hub uses the new credential")
	c.Flags().StringVarP(&r.output, "output", "o", "", "yaml or json: print the registration, credential included, in place of writing it")
	c.Flags().BoolVar(&r.revokeOld, "revoke-old", false, "Only revoke the credentials that the registration does not hold")
	_ = c.RegisterFlagCompletionFunc("member-context", t.completeContexts)
	return c
}

func (r *rotate) run(ctx context.Context, name string) error {
	if r.context == "" {
		return faultf("name a context of an administrator of the member; kubectl config get-contexts lists them", "--member-context is missing")
	}
	if r.output != "" && r.output != "yaml" && r.output != "json" {
		return badOutput(r.output, "json", "yaml")
	}
	var err error
	if r.hubSite, err = r.hub(); err != nil {
		return err
	}
	if r.member, err = r.hubSite.memberNamed(ctx, name); err != nil {
		return err
	}
	if r.secret, err = r.hubSite.registration(ctx, r.member); err != nil {
		return err
	}
	config, err := r.kubeconfig()
	if err != nil {
		return err
	}
	if r.memberSite, err = r.memberByContext(r.context); err != nil {
		return err
	}
	if err := r.memberSite.mustBe(ctx, r.member); err != nil {
		return err
	}
	r.say("Rotating the credential of %s", name)
	if r.revokeOld {
		if err := r.mustUse(r.member); err != nil {
			return err
		}
		inUse := claimsOf(currentToken(config)).secret()
		if inUse == "" {
			return faultf("run kubectl flotilla rotate without --revoke-old first", "the registration's credential is not one that register or rotate have made")
		}
		return r.stage(ctx, "old credentials", r.revokeOthers(inUse))
	}
	return r.replace(ctx, config)
}

// kubeconfig reads the kubeconfig of the registration. Parsing runs no program and reads no file.
func (r *rotate) kubeconfig() (*clientcmdapi.Config, error) {
	content, found := r.secret.Data[flotillav1.KeyKubeconfig]
	if !found {
		return nil, faultf("renew it there", "the registration, Secret %s/%s, has no key %q: another tool made it", r.secret.Namespace, r.secret.Name, flotillav1.KeyKubeconfig)
	}
	config, err := clientcmd.Load(content)
	if err != nil || config.Contexts[config.CurrentContext] == nil || config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] == nil {
		return nil, faultf("correct it, or unregister and register the member", "the kubeconfig of Secret %s/%s cannot be read", r.secret.Namespace, r.secret.Name)
	}
	return config, nil
}

// currentToken is the token of the current context.
func currentToken(config *clientcmdapi.Config) string {
	return config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token
}

// replace makes the new credential and has the hub use it.
func (r *rotate) replace(ctx context.Context, config *clientcmdapi.Config) error {
	var made *credential
	if err := r.stage(ctx, "credential", func(ctx context.Context, _ func(string)) (string, error) {
		var err error
		if made, err = mint(ctx, r.memberSite, r.member.Name, r.lifetime); err != nil {
			return "", err
		}
		return made.String(), nil
	}); err != nil {
		return err
	}
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = &clientcmdapi.AuthInfo{Token: made.token}
	content, err := clientcmd.Write(*config)
	if err == nil {
		err = acceptable(content)
	}
	if err != nil {
		return errors.Join(err, revoke(ctx, r.memberSite, made))
	}
	if r.output != "" {
		return r.print(content)
	}
	told, err := r.hubSite.toldOf(ctx, r.member.Name, "CredentialsRotated")
	if err != nil {
		return errors.Join(err, revoke(ctx, r.memberSite, made))
	}
	if err := r.stage(ctx, "registration", func(ctx context.Context, _ func(string)) (string, error) {
		before := r.secret.DeepCopy()
		r.secret.Data[flotillav1.KeyKubeconfig] = content
		err := r.hubSite.Patch(ctx, r.secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return fmt.Sprintf("Secret %s/%s", r.secret.Namespace, r.secret.Name), r.hubSite.explain("updating the registration", err)
	}); err != nil {
		return errors.Join(err, revoke(ctx, r.memberSite, made))
	}
	if err := r.stage(ctx, "hub", func(ctx context.Context, doing func(string)) (string, error) {
		return r.awaitUse(ctx, made, told, doing)
	}); err != nil {
		return err
	}
	return r.stage(ctx, "old credentials", r.revokeOthers(made.secret.Name))
}

// print shows the registration for a GitOps repository, without what the hub's API server has added.
func (r *rotate) print(content []byte) error {
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.secret.Namespace, Name: r.secret.Name, Labels: r.secret.Labels, Annotations: r.secret.Annotations,
		},
		Type: r.secret.Type, Data: map[string][]byte{flotillav1.KeyKubeconfig: content},
	}
	delete(secret.Annotations, corev1.LastAppliedConfigAnnotation)
	if err := r.printAs(r.output, secret); err != nil {
		return err
	}
	r.say("The registration holds the credential: encrypt it before it goes into a repository.")
	r.say("Once the hub uses it: kubectl flotilla rotate %s --member-context %s --revoke-old", r.member.Name, r.context)
	return nil
}

// mustUse makes sure that the hub uses what the registration holds.
func (r *rotate) mustUse(member *flotillav1.MemberCluster) error {
	accepted := condition(member.Status.Conditions, flotillav1.ConditionCredentialsAccepted)
	if accepted.Status == metav1.ConditionTrue {
		return nil
	}
	return faultf("nothing was revoked: solve that first", "the hub does not use the credential of the registration: %s: %s", or(accepted.Reason), or(accepted.Message))
}

// awaitUse waits until the hub says that it uses the new credential: by its end, or, for a token that does not end, by an
// event that was not there before.
func (r *rotate) awaitUse(ctx context.Context, made *credential, told notes, doing func(string)) (string, error) {
	var accepted metav1.Condition
	used, err := poll(ctx, r.timeout, func(ctx context.Context) (bool, error) {
		member := &flotillav1.MemberCluster{}
		if err := r.hubSite.Get(ctx, client.ObjectKeyFromObject(r.member), member); err != nil {
			return false, err
		}
		accepted = condition(member.Status.Conditions, flotillav1.ConditionCredentialsAccepted)
		doing(or(accepted.Reason))
		if accepted.Status != metav1.ConditionTrue {
			return false, nil
		}
		if known := member.Status.Credentials; !made.expires.IsZero() && known != nil && known.ExpirationTime != nil {
			return known.ExpirationTime.Unix() == made.expires.Unix(), nil
		}
		now, err := r.hubSite.toldOf(ctx, r.member.Name, "CredentialsRotated")
		return len(now.since(told)) > 0, err
	})
	if err == nil && !used {
		return "", faultf(fmt.Sprintf("both credentials stay valid; when that is solved, kubectl flotilla rotate %s --member-context %s --revoke-old", r.member.Name, r.context),
			"the hub did not use the new credential within %s: CredentialsAccepted is %s: %s: %s", r.timeout, accepted.Status, or(accepted.Reason), or(accepted.Message))
	}
	return "uses the new credential", r.hubSite.explain("waiting for the hub", err)
}

// revokeOthers revokes every credential of the member but one.
func (r *rotate) revokeOthers(keep string) func(context.Context, func(string)) (string, error) {
	return func(ctx context.Context, doing func(string)) (string, error) {
		secrets, err := credentialsOf(ctx, r.memberSite, r.member.Name)
		if err != nil {
			return "", err
		}
		revoked := 0
		for i := range secrets {
			if secrets[i].Name == keep {
				continue
			}
			doing("revoking " + secrets[i].Name)
			if err := revoke(ctx, r.memberSite, &credential{secret: &secrets[i]}); err != nil {
				return "", err
			}
			revoked++
		}
		return fmt.Sprintf("%d revoked", revoked), nil
	}
}
