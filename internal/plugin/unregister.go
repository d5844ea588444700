// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// unregister ends a member.
type unregister struct {
	*tool
	context string
	drain   bool
	timeout time.Duration

	hubSite, memberSite *site
	member              *flotillav1.MemberCluster
	secret              *corev1.Secret
}

func newUnregister(t *tool) *cobra.Command {
	u := &unregister{tool: t}
	c := &cobra.Command{
		Use:   "unregister NAME [--member-context CONTEXT]",
		Short: "End a member; everything in it stays",
		Long: `End a member: delete the registration Secret and wait until the hub has let go. Every object in the member stays, the
copies included; with --drain the copies are removed first.

With --member-context the hub's credentials are revoked in the member and the rights of config/member are removed there,
once the hub has let go. The schemas stay, because deleting them would delete every Redis and NodePool.`,
		Example: `  kubectl flotilla unregister eu-1 --member-context eu-1-admin
  kubectl flotilla unregister eu-1 --drain`,
		Args:              exactlyOne("the NAME of the member"),
		ValidArgsFunction: t.completeMembers,
		RunE:              func(c *cobra.Command, args []string) error { return u.run(c.Context(), args[0]) },
	}
	c.Flags().StringVar(&u.context, "member-context", "", "Context of an administrator of the member, to revoke the hub's access there")
	c.Flags().BoolVar(&u.drain, "drain", false, "Remove the hub's copies from the member first")
	c.Flags().DurationVar(&u.timeout, "timeout", 5*time.Minute, "How long to wait for the hub, and with --drain for the copies to go")
	_ = c.RegisterFlagCompletionFunc("member-context", t.completeContexts)
	return c
}

func (u *unregister) run(ctx context.Context, name string) error {
	var err error
	if u.hubSite, err = u.hub(); err != nil {
		return err
	}
	if u.member, err = u.hubSite.memberNamed(ctx, name); err != nil {
		return err
	}
	if u.secret, err = u.hubSite.registration(ctx, u.member); err != nil {
		return err
	}
	if u.context != "" {
		if u.memberSite, err = u.memberByContext(u.context); err != nil {
			return err
		}
		if err := u.memberSite.mustBe(ctx, u.member); err != nil {
			return err
		}
	}
	u.say("Unregistering %s", name)
	if u.drain {
		if err := u.stage(ctx, "drain", u.drainCopies); err != nil {
			return err
		}
	}
	told, err := u.hubSite.toldOf(ctx, name, "ClusterOffboarded")
	if err != nil {
		return err
	}
	if err := u.stage(ctx, "registration", u.deleteRegistration); err != nil {
		return err
	}
	u.tellLeftovers(ctx, told)
	if u.memberSite == nil {
		u.say("%s is no member any more. Its objects stay, and so do the hub's ServiceAccount, rights and tokens in namespace %s there:", name, systemNamespace)
		u.say("revoke them with kubectl delete -n %s serviceaccount %s, with a context of the member", systemNamespace, serviceAccount)
		return nil
	}
	if err := u.stage(ctx, "access", u.revokeAccess); err != nil {
		return err
	}
	u.say("%s is no member any more. Its objects stay.", name)
	return nil
}

// mustBe makes sure that a cluster is the one which the hub knows by a name.
func (s *site) mustBe(ctx context.Context, member *flotillav1.MemberCluster) error {
	uid, err := s.identity(ctx)
	if err != nil {
		return err
	}
	if member.Status.UID != "" && types.UID(member.Status.UID) != uid {
		return &fault{fmt.Errorf("%s is not member %q: the UID of its kube-system is %s, and the hub knows %s", s.called, member.Name, uid, member.Status.UID), s.remedy}
	}
	return nil
}

// drainCopies has the hub remove its copies.
func (u *unregister) drainCopies(ctx context.Context, doing func(string)) (string, error) {
	before := u.secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&u.secret.ObjectMeta, flotillav1.AnnotationDrain, "true")
	if err := u.hubSite.Patch(ctx, u.secret, client.MergeFrom(before)); err != nil {
		return "", u.hubSite.explain("annotating the registration with "+flotillav1.AnnotationDrain, err)
	}
	var drained metav1.Condition
	done, err := poll(ctx, u.timeout, func(ctx context.Context) (bool, error) {
		if err := u.hubSite.Get(ctx, client.ObjectKeyFromObject(u.member), u.member); err != nil {
			return false, err
		}
		drained = condition(u.member.Status.Conditions, flotillav1.ConditionDrained)
		doing(or(drained.Message))
		return drained.Status == metav1.ConditionTrue, nil
	})
	if err == nil && !done {
		return "", faultf("solve that and run this again, or take annotation "+flotillav1.AnnotationDrain+" off the registration: the member goes on being drained",
			"after %s the member is not drained: %s: %s", u.timeout, or(drained.Reason), or(drained.Message))
	}
	return drained.Message, u.hubSite.explain("waiting for the drain", err)
}

// deleteRegistration deletes the Secret as it was seen and waits until the hub has let go.
func (u *unregister) deleteRegistration(ctx context.Context, doing func(string)) (string, error) {
	err := u.hubSite.Delete(ctx, u.secret, client.Preconditions{UID: new(u.secret.UID)})
	if client.IgnoreNotFound(err) != nil {
		return "", u.hubSite.explain("deleting the registration", err)
	}
	gone, err := u.awaitGone(ctx, u.hubSite, u.member.Name, u.timeout, doing)
	if err == nil && !gone {
		return "", faultf("make sure that the manager runs; if another registration asks for the name, it holds it now",
			"the Secret %s/%s is deleted, but MemberCluster %q is there after %s", u.secret.Namespace, u.secret.Name, u.member.Name, u.timeout)
	}
	return fmt.Sprintf("Secret %s/%s deleted, the hub has let go", u.secret.Namespace, u.secret.Name), u.hubSite.explain("waiting for the hub to let go", err)
}

// tellLeftovers repeats what the hub could not take back from the member. That is only told by an event.
func (u *unregister) tellLeftovers(ctx context.Context, before notes) {
	now, err := u.hubSite.toldOf(ctx, u.member.Name, "ClusterOffboarded")
	if err != nil {
		return
	}
	for _, event := range now.since(before) {
		if event.Type == corev1.EventTypeWarning {
			u.say("  %s %s", paint(u.ErrOut, yellow, "!"), event.Note)
		}
	}
}

// revokeAccess takes the hub's credentials and rights back in the member.
func (u *unregister) revokeAccess(ctx context.Context, doing func(string)) (string, error) {
	lease := &coordinationv1.Lease{}
	err := u.memberSite.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: serviceAccount}, lease)
	if client.IgnoreNotFound(err) != nil {
		return "", u.memberSite.explain("reading the claim", err)
	}
	secrets, err := credentialsOf(ctx, u.memberSite, u.member.Name)
	if err != nil {
		return "", err
	}
	for i := range secrets {
		doing("revoking " + secrets[i].Name)
		if err := revoke(ctx, u.memberSite, &credential{secret: &secrets[i]}); err != nil {
			return "", err
		}
	}
	result := fmt.Sprintf("%d %s revoked", len(secrets), plural(len(secrets), "token"))
	if hubID, alive := u.claimant(lease); alive {
		return result + fmt.Sprintf("; the rights stay, because hub %q works with the member", hubID), nil
	}
	objects, err := memberManifests()
	if err != nil {
		return "", err
	}
	var rights []*unstructured.Unstructured
	for _, object := range objects {
		if isRights(object) {
			rights = append(rights, object)
		}
	}
	removed, left := removeObjects(ctx, u.memberSite, rights)
	if len(left) > 0 {
		return "", faultf("delete them with a context of an administrator", "not removed from the member: %s", strings.Join(left, ", "))
	}
	return fmt.Sprintf("%s, %d objects with the hub's rights removed", result, removed), nil
}

// plural adds an s unless there is one.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
