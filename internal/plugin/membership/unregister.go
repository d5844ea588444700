// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// eventOffboarded is the reason of the event with which the hub releases a member.
const eventOffboarded = "ClusterOffboarded"

// unregister ends the membership of a cluster.
type unregister struct {
	*tool
	context string
	drain   bool
	timeout time.Duration

	membership
}

func newUnregister(t *tool) *cobra.Command {
	u := &unregister{tool: t}
	c := &cobra.Command{
		Use:   "unregister NAME [--member-context CONTEXT]",
		Short: "End a member; everything in it stays",
		Long: `End a member: delete the registration Secret and wait until the hub has released the member. Every object in the member stays,
including the copies; with --drain the copies are removed first.

With --member-context the hub's credentials are revoked in the member and the rights of config/member are removed there,
once the hub has released it. The schemas stay, because deleting them would delete every Redis and NodePool.`,
		Example: `  kubectl flotilla unregister eu-1 --member-context eu-1-admin
  kubectl flotilla unregister eu-1 --drain`,
		Args:              console.ExactlyOne("the NAME of the member"),
		ValidArgsFunction: t.CompleteMember,
		RunE:              func(c *cobra.Command, args []string) error { return u.run(c.Context(), args[0]) },
	}
	c.Flags().StringVar(&u.context, "member-context", "", "Context of an administrator of the member, to revoke the hub's access there")
	c.Flags().BoolVar(&u.drain, "drain", false, "Remove the hub's copies from the member first")
	c.Flags().DurationVar(&u.timeout, "timeout", 5*time.Minute, "How long to wait for the hub, and with --drain for the copies to go")
	_ = c.RegisterFlagCompletionFunc("member-context", t.CompleteContexts)
	return c
}

func (u *unregister) run(ctx context.Context, name string) error {
	var err error
	if u.membership, err = u.membershipOf(ctx, name, u.context); err != nil {
		return err
	}
	u.Notef("Unregistering %s", name)
	if u.drain {
		if err := u.Stage(ctx, "drain", u.drainCopies); err != nil {
			return err
		}
	}
	before, err := u.hub.EventsOf(ctx, name, eventOffboarded)
	if err != nil {
		return err
	}
	if err := u.Stage(ctx, "registration", u.deleteRegistration); err != nil {
		return err
	}
	u.noteLeftovers(ctx, before)
	if u.site == nil {
		u.Notef("%s is no longer a member. Its objects stay, and so do the hub's ServiceAccount, rights and tokens in namespace %s there:", name, flotillav1.SystemNamespace)
		u.Notef("revoke them with kubectl delete -n %s serviceaccount %s, with a context of the member", flotillav1.SystemNamespace, flotillav1.HubServiceAccount)
		return nil
	}
	if err := u.Stage(ctx, "access", u.revokeAccess); err != nil {
		return err
	}
	u.Notef("%s is no longer a member. Its objects stay.", name)
	return nil
}

// drainCopies has the hub remove its copies.
func (u *unregister) drainCopies(ctx context.Context, doing func(string)) (string, error) {
	if err := u.hub.Annotate(ctx, u.member, flotillav1.AnnotationDrain, true); err != nil {
		return "", err
	}
	var drained metav1.Condition
	done, err := site.Wait(ctx, u.timeout, func(ctx context.Context) (bool, error) {
		if err := u.hub.Get(ctx, client.ObjectKeyFromObject(u.member), u.member); err != nil {
			return false, err
		}
		drained = condition.Of(u.member.Status.Conditions, flotillav1.ConditionDrained)
		doing(console.OrDash(drained.Message))
		return drained.Status == metav1.ConditionTrue, nil
	})
	if err == nil && !done {
		return "", console.Faultf("solve that and run this again, or stop with kubectl flotilla undrain "+u.member.Name+": the member goes on being drained",
			"after %s the member is not drained: %s: %s", u.timeout, console.OrDash(drained.Reason), console.OrDash(drained.Message))
	}
	return drained.Message, u.hub.Explain("waiting for the drain", err)
}

// deleteRegistration deletes the Secret as it was read and waits until the hub has released the member. The annotation
// spares the grace period; without the right to set it, the hub takes its time.
func (u *unregister) deleteRegistration(ctx context.Context, doing func(string)) (string, error) {
	before := u.secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&u.secret.ObjectMeta, flotillav1.AnnotationUnregister, "true")
	err := u.hub.Patch(ctx, u.secret, client.MergeFrom(before))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
		return "", u.hub.Explain("annotating the registration with "+flotillav1.AnnotationUnregister, err)
	}
	err = u.hub.Delete(ctx, u.secret, client.Preconditions{UID: new(u.secret.UID)})
	if client.IgnoreNotFound(err) != nil {
		return "", u.hub.Explain("deleting the registration", err)
	}
	gone, err := awaitGone(ctx, u.hub, u.member.Name, u.timeout, doing)
	if err == nil && !gone {
		return "", console.Faultf("make sure that the manager runs; if another registration asks for the name, it holds it now",
			"the Secret %s/%s is deleted, but MemberCluster %q is there after %s", u.secret.Namespace, u.secret.Name, u.member.Name, u.timeout)
	}
	return fmt.Sprintf("Secret %s/%s deleted, the hub has let go", u.secret.Namespace, u.secret.Name), u.hub.Explain("waiting for the hub to let go", err)
}

// noteLeftovers repeats what the hub could not remove from the member, which only an event says.
func (u *unregister) noteLeftovers(ctx context.Context, before site.Events) {
	now, err := u.hub.EventsOf(ctx, u.member.Name, eventOffboarded)
	if err != nil {
		return
	}
	for _, event := range now.Since(before) {
		if event.Type == corev1.EventTypeWarning {
			u.Notef("  %s %s", console.Paint(u.ErrOut, console.Yellow, "!"), event.Note)
		}
	}
}

// revokeAccess revokes the credentials of the hub in the member and removes its rights there.
func (u *unregister) revokeAccess(ctx context.Context, doing func(string)) (string, error) {
	claim, err := u.site.Claim(ctx)
	if client.IgnoreNotFound(err) != nil {
		return "", err
	}
	revoked, err := revokeAll(ctx, u.site, func(secret *corev1.Secret) bool { return isOf(secret, u.member.Name) }, doing)
	if err != nil {
		return "", err
	}
	result := console.Count(revoked, "token") + " revoked"
	if claim.HeldAt(u.Clock.Now()) {
		return result + fmt.Sprintf("; the rights stay, because hub %q works with the member", claim.HubID()), nil
	}
	objects, err := manifests.Member()
	if err != nil {
		return "", err
	}
	removed, left := manifests.Remove(ctx, u.site, manifests.RightsAmong(objects))
	if len(left) > 0 {
		return "", console.Faultf("delete them with a context of an administrator", "not removed from the member: %s", strings.Join(left, ", "))
	}
	return fmt.Sprintf("%s, %d objects with the hub's rights removed", result, removed), nil
}
