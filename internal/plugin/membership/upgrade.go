// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

func newUpgradeMember(t *tool) *cobra.Command {
	var all, dryRun bool
	c := &cobra.Command{
		Use:   "upgrade-member (NAME... | --all)",
		Short: "Apply the manifests of this version in members",
		Long: `Apply config/member as this plugin has it in members: schemas, rights and policies. Everything is tried by dry run first, in each
member. Upgrade the members before the manager; what is newer in a member stays as it is.

A member is reached by --member-context [CLUSTER=]CONTEXT, else by a context with its name, in both cases as an
administrator: the hub's own credential may not change its rights. Where a GitOps tool applies dist/member.yaml, upgrade the file there.`,
		Example: `  kubectl flotilla upgrade-member eu-1 --member-context eu-1-admin
  kubectl flotilla upgrade-member --all --dry-run`,
		ValidArgsFunction: t.CompleteMembers,
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return console.Faultf("name members, or pass --all", "it is not clear which members to upgrade")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return t.upgradeMembers(c.Context(), args, dryRun) },
	}
	c.Flags().BoolVar(&all, "all", false, "All members of the hub")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "Only tell what would change")
	t.AddMemberContexts(c)
	return c
}

// upgradeMembers applies the manifests in the named members, or in all.
func (t *tool) upgradeMembers(ctx context.Context, names []string, dryRun bool) error {
	ways, members, err := t.LookAround(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		members = members[:0]
		for _, name := range names {
			member, err := ways.Hub.Member(ctx, name)
			if err != nil {
				return err
			}
			members = append(members, *member)
		}
	}
	objects, err := manifests.Member()
	if err != nil {
		return err
	}
	type outcome struct {
		upgraded
		err error
	}
	var failed []string
	site.AtOnce(ctx, len(members), func(i int) bool { return site.IsAway(&members[i]) }, func(ctx context.Context, i int) outcome {
		done, err := upgradeMember(ctx, ways, &members[i], objects, dryRun)
		return outcome{done, err}
	}, func(i int, result outcome) {
		if result.err != nil {
			failed = append(failed, members[i].Name)
			t.Resultf("%s %s: %s", console.Paint(t.Out, console.Red, "✗"), members[i].Name, text.Line(result.err.Error()))
			return
		}
		t.Resultf("%s %s: %s", console.Paint(t.Out, console.Green, "✓"), members[i].Name, result.describe(dryRun))
	})
	if len(failed) > 0 {
		return console.Faultf("pass --member-context CLUSTER=CONTEXT with a context of an administrator", "not upgraded: %s", text.List(failed, 10))
	}
	return nil
}

// upgraded is what an upgrade changed in a member.
type upgraded struct {
	total int
	// changed are the objects that were created or have another content, newer the definitions that were left alone.
	changed, newer []string
}

func (u *upgraded) describe(dryRun bool) string {
	does := map[bool]string{true: "would change", false: "changed"}[dryRun]
	described := fmt.Sprintf("%d of %s %s", len(u.changed), console.Count(u.total, "object"), does)
	if len(u.changed) > 0 {
		described += ": " + text.List(u.changed, 5)
	}
	if len(u.newer) > 0 {
		described += "; newer than this plugin, and left alone: " + text.List(u.newer, 5)
	}
	return described
}

// upgradeMember applies the manifests in a member, after it has tried all of them.
func upgradeMember(ctx context.Context, ways *site.Ways, member *flotillav1.MemberCluster, objects []*unstructured.Unstructured, dryRun bool) (done upgraded, err error) {
	into, err := ways.ByContext(ctx, member)
	if err != nil {
		return done, err
	}
	if objects, done.newer, err = withoutNewer(ctx, into, objects); err != nil {
		return done, err
	}
	done.total = len(objects)
	if err := manifests.Try(ctx, into, objects); err != nil {
		return done, err
	}
	for _, object := range objects {
		before := object.DeepCopy()
		if err := client.IgnoreNotFound(into.Get(ctx, client.ObjectKeyFromObject(object), before)); err != nil {
			return done, into.Explain("reading "+console.Describe(object), err)
		}
		applied := object.DeepCopy()
		options := []client.ApplyOption{site.FieldOwner, client.ForceOwnership}
		if dryRun {
			options = append(options, client.DryRunAll)
		}
		if err := into.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...); err != nil {
			return done, into.Explain("applying "+console.Describe(object), err)
		}
		if !sameContent(before, applied) {
			done.changed = append(done.changed, console.Describe(object))
		}
	}
	return done, nil
}

// withoutNewer leaves out the definitions that are newer in a member, and names them.
func withoutNewer(ctx context.Context, member *site.Site, objects []*unstructured.Unstructured) (kept []*unstructured.Unstructured, newer []string, err error) {
	for _, object := range objects {
		revision, err := strconv.ParseInt(object.GetAnnotations()[flotillav1.AnnotationCRDRevision], 10, 64)
		if err == nil {
			theirs := object.DeepCopy()
			if err := client.IgnoreNotFound(member.Get(ctx, client.ObjectKeyFromObject(object), theirs)); err != nil {
				return nil, nil, member.Explain("reading "+console.Describe(object), err)
			}
			if stored, err := strconv.ParseInt(theirs.GetAnnotations()[flotillav1.AnnotationCRDRevision], 10, 64); err == nil && stored > revision {
				newer = append(newer, console.Describe(object))
				continue
			}
		}
		kept = append(kept, object)
	}
	return kept, newer, nil
}

// sameContent compares an object before and after it was applied; what the API server keeps about it does not count.
func sameContent(before, after *unstructured.Unstructured) bool {
	if before.GetUID() == "" {
		return false
	}
	content := func(object *unstructured.Unstructured) map[string]any {
		bare := object.DeepCopy()
		bare.SetManagedFields(nil)
		bare.SetResourceVersion("")
		bare.SetGeneration(0)
		unstructured.RemoveNestedField(bare.Object, "status")
		return bare.Object
	}
	return equality.Semantic.DeepEqual(content(before), content(after))
}
