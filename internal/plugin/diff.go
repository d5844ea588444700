// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/placement"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxChanges is how many changed fields of a copy are named.
const maxChanges = 12

func newDiff(t *tool) *cobra.Command {
	var file, manager string
	c := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Try a change in every cluster, and say what it would do there",
		Long: `Try the objects of FILE (Redis and NodePools for the hub; - is standard input) on the hub and in every cluster that their
placement chooses, by server-side dry run: nothing is written anywhere. For each cluster it says what would change, what
restarts, what the member's API server or admission refuses, and which fields its schema lacks.

The copy is tried as placement makes it: with the overrides for the cluster, under the manager's own field manager. Waves,
removal budgets, freezes, and annotations of registrations that limit kinds or namespaces are not looked at. The command
fails when something is refused or could not be tried.` + waysHelp,
		Example: "  kubectl flotilla diff -f redis.yaml\n  kustomize build . | kubectl flotilla diff -f -",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return t.diff(c.Context(), file, client.FieldOwner(manager)) },
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "File with the objects; - is standard input (required)")
	c.Flags().StringVar(&manager, "field-manager", "kubectl", "Field manager that applies FILE in the end, as that of kubectl apply --server-side; what it leaves out is taken away")
	t.addMemberContext(c)
	return c
}

func (t *tool) diff(ctx context.Context, file string, applier client.FieldOwner) error {
	if file == "" {
		return faultf("name it with -f FILE, or - for standard input", "the file is missing")
	}
	content, err := t.readInput(file)
	if err != nil {
		return err
	}
	objects, err := t.readObjects(content)
	if err != nil {
		return err
	}
	hub, err := t.hub()
	if err != nil {
		return err
	}
	members, err := hub.members(ctx)
	if err != nil {
		return err
	}
	into, err := t.waysInto(ctx, hub)
	if err != nil {
		return err
	}
	refused := 0
	var rows [][]cell
	for _, object := range objects {
		trial := &trial{tool: t, hub: hub, into: into, members: members, applier: applier}
		tried, err := trial.run(ctx, object)
		if err != nil {
			return err
		}
		rows = append(rows, tried...)
		refused += trial.refused
	}
	table(t.Out, []string{"OBJECT", "CLUSTER", "RESULT", "DETAIL"}, rows)
	if refused > 0 {
		return faultf("correct the objects or the clusters that are named above", "%d of the trials were refused or could not be made", refused)
	}
	return nil
}

// readObjects reads the objects of ours in a file; others are left out and told.
func (t *tool) readObjects(content []byte) ([]*unstructured.Unstructured, error) {
	namespace, _, err := t.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace of the context: %w", err)
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		fields := map[string]any{}
		err := decoder.Decode(&fields)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, faultf("correct the file", "it is not YAML or JSON: %w", err)
		}
		object := &unstructured.Unstructured{Object: fields}
		if len(fields) == 0 {
			continue
		}
		if object.GetAPIVersion() != flotillav1.GroupVersion.String() || (object.GetKind() != fleet.Redis.Name && object.GetKind() != fleet.NodePool.Name) {
			t.say("left out: %s, which is neither a Redis nor a NodePool", describe(object))
			continue
		}
		if object.GetKind() == fleet.Redis.Name && object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		objects = append(objects, object)
	}
	if len(objects) == 0 {
		return nil, faultf("put a Redis or a NodePool there", "the file has no object that is placed")
	}
	return objects, nil
}

// trial is one object, tried everywhere.
type trial struct {
	*tool
	hub     *site
	into    *ways
	members []flotillav1.MemberCluster
	applier client.FieldOwner
	refused int
}

// run tries an object on the hub and then in each cluster that it would be placed in.
func (d *trial) run(ctx context.Context, object *unstructured.Unstructured) ([][]cell, error) {
	kind := fleet.Redis
	if object.GetKind() == fleet.NodePool.Name {
		kind = fleet.NodePool
	}
	of := target{kind, client.ObjectKeyFromObject(object)}
	before := kind.New()
	err := d.hub.Get(ctx, of.key, before)
	if client.IgnoreNotFound(err) != nil {
		return nil, d.hub.explain("reading "+of.String(), err)
	}
	exists := err == nil
	tried := object.DeepCopy()
	err = d.hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(tried), d.applier, client.ForceOwnership, client.DryRunAll)
	if err != nil {
		if !isRefusal(err) {
			return nil, d.hub.explain("trying "+of.String(), err)
		}
		return [][]cell{d.refusal(of, "(hub)", err.Error())}, nil
	}
	after := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tried.Object, after); err != nil {
		return nil, fmt.Errorf("reading what the hub would store: %w", err)
	}
	rows := [][]cell{d.onHub(of, kind, before, after, exists)}
	if specs, err := fleet.NewSpecs(kind, after); err == nil {
		if err := specs.Invalid(); err != nil {
			rows = append(rows, d.refusal(of, "(hub)", flotillav1.ReasonOverrideInvalid+": "+err.Error()))
		}
	}
	chosen, err := fleet.Choose(after.GetPlacement(), after.GetNamespace(), membersFor(d.members), after.GetFleetStatus().PlacedIn)
	if err != nil {
		return append(rows, d.refusal(of, "(hub)", err.Error())), nil
	}
	for _, name := range chosen {
		rows = append(rows, d.inCluster(ctx, of, after, name))
	}
	for _, name := range after.GetFleetStatus().PlacedIn {
		if !slices.Contains(chosen, name) {
			rows = append(rows, []cell{{text: of.String()}, {text: name}, {"not chosen", yellow}, {text: "The copy there is removed, or stays as Leaving; see docs/placement.md"}})
		}
	}
	return rows, nil
}

// membersFor is what choosing needs to know. Which registrations restrict namespaces or kinds only the manager knows.
func membersFor(published []flotillav1.MemberCluster) []fleet.Member {
	return fleet.Members(nil, published)
}

// isRefusal says whether an API server has understood an object and does not take it.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsConflict(err) ||
		strings.Contains(err.Error(), "field not declared in schema")
}

// refusal is the row of something that is refused.
func (d *trial) refusal(of target, where, why string) []cell {
	d.refused++
	return []cell{{text: of.String()}, {text: where}, {"refused", red}, {text: text.Line(why)}}
}

// onHub is the row of the hub.
func (d *trial) onHub(of target, kind fleet.Kind, before, after fleet.Object, exists bool) []cell {
	row := []cell{{text: of.String()}, {text: "(hub)"}, {"unchanged", plain}, {}}
	if !exists {
		row[2] = cell{"created", green}
		return row
	}
	if changed := changedFields(kind.Spec(before), kind.Spec(after)); len(changed) > 0 {
		row[2], row[3] = cell{"changed", yellow}, cell{text: text.List(changed, maxChanges)}
	}
	return row
}

// inCluster tries the copy in one cluster.
func (d *trial) inCluster(ctx context.Context, of target, after fleet.Object, name string) []cell {
	failed := func(err error) []cell {
		d.refused++
		return []cell{{text: of.String()}, {text: name}, {"not tried", red}, {text: text.Line(err.Error())}}
	}
	i := slices.IndexFunc(d.members, func(member flotillav1.MemberCluster) bool { return member.Name == name })
	if i < 0 {
		return failed(faultf("register it, or take it out of the placement", "%s: no member is called so", flotillav1.ReasonNotRegistered))
	}
	specs, err := fleet.NewSpecs(of.kind, after)
	if err != nil {
		return d.refusal(of, name, flotillav1.ReasonOverrideInvalid+": "+err.Error())
	}
	want, err := specs.For(name, d.members[i].Labels)
	if err != nil {
		return d.refusal(of, name, flotillav1.ReasonOverrideInvalid+": "+err.Error())
	}
	from, err := d.into.into(ctx, &d.members[i])
	if err != nil {
		return failed(err)
	}
	lacks, err := schemaGaps(ctx, from, of.kind)
	if err != nil {
		return failed(err)
	}
	want, used := want.Fit(lacks)
	if len(used) > 0 {
		return d.refusal(of, name, flotillav1.ReasonVersionSkew+": the CRD there lacks "+text.List(used, maxChanges)+"; apply config/member there")
	}
	row, err := d.tryCopy(ctx, from, of, after, want, name)
	if err != nil {
		return failed(err)
	}
	return row
}

// schemaGaps are the fields that a member's schema lacks.
func schemaGaps(ctx context.Context, from *site, kind fleet.Kind) ([]fleet.MissingField, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := from.Get(ctx, client.ObjectKey{Name: kind.CRD}, definition); err != nil {
		return nil, from.explain("reading CRD "+kind.CRD, err)
	}
	lacks, _, _, err := clusters.CompareDefinition(definition)
	gaps := make([]fleet.MissingField, 0, len(lacks))
	for _, field := range lacks {
		gaps = append(gaps, fleet.MissingField(field))
	}
	return gaps, err
}

// tryCopy applies the copy as placement would, as a dry run, and compares what would be stored with what is there.
func (d *trial) tryCopy(ctx context.Context, from *site, of target, after fleet.Object, want fleet.Effective, name string) ([]cell, error) {
	hubID, err := hubIDOf(ctx, d.tool, from)
	if err != nil {
		return nil, err
	}
	before := of.kind.New()
	err = from.Get(ctx, of.key, before)
	if client.IgnoreNotFound(err) != nil {
		return nil, from.explain("reading "+of.String(), err)
	}
	exists := err == nil
	adopts := placementOf(after).ConflictPolicy == flotillav1.ConflictPolicyAdopt && before.GetAnnotations()[flotillav1.AnnotationAdoptBy] == hubID
	if exists && !fleet.IsOurs(before, hubID) && !adopts {
		return d.refusal(of, name, flotillav1.ReasonNameConflict+": the member has an object of this name that is no copy of this hub"), nil
	}
	spec := want.DeepCopy().Spec
	if exists {
		// What is left to the member is handed over with its present value.
		if spec, err = want.Onto(of.kind.Spec(before)); err != nil {
			return nil, err
		}
	}
	tried := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	tried.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(of.kind.Name))
	tried.SetNamespace(of.key.Namespace)
	tried.SetName(of.key.Name)
	tried.SetAnnotations(map[string]string{flotillav1.AnnotationHub: hubID, flotillav1.AnnotationPlacedFrom: fleet.PlacedFrom(of.key), flotillav1.AnnotationSpecHash: want.Hash})
	err = from.Apply(ctx, client.ApplyConfigurationFromUnstructured(tried), placement.FieldOwner, client.ForceOwnership, client.DryRunAll)
	switch {
	case apierrors.IsNotFound(err) && of.key.Namespace != "":
		return []cell{{text: of.String()}, {text: name}, {"created", green}, {text: fmt.Sprintf("with namespace %s, which is not there yet: the copy itself could not be tried", of.key.Namespace)}}, nil
	case err != nil && isRefusal(err):
		return d.refusal(of, name, err.Error()), nil
	case err != nil:
		return nil, from.explain("trying "+of.String(), err)
	}
	stored := of.kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tried.Object, stored); err != nil {
		return nil, fmt.Errorf("reading what %s would store: %w", from.called, err)
	}
	if !exists {
		return []cell{{text: of.String()}, {text: name}, {"created", green}, {}}, nil
	}
	changed := changedFields(of.kind.Spec(before), of.kind.Spec(stored))
	if len(changed) == 0 {
		return []cell{{text: of.String()}, {text: name}, {"unchanged", plain}, {}}, nil
	}
	detail := text.List(changed, maxChanges)
	if effect := effectOf(before, stored); effect != "" {
		detail = effect + ": " + detail
	}
	return []cell{{text: of.String()}, {text: name}, {"changed", yellow}, {text: detail}}, nil
}

// hubIDOf is the id of the hub that holds the claim on a member.
func hubIDOf(ctx context.Context, t *tool, from *site) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: serviceAccount}, lease); err != nil {
		return "", from.explain("reading the claim", err)
	}
	hubID, _ := t.claimant(lease)
	return hubID, nil
}

// effectOf says what a change does to what runs.
func effectOf(before, after fleet.Object) string {
	switch old := before.(type) {
	case *flotillav1.Redis:
		next, ok := after.(*flotillav1.Redis)
		if !ok {
			return ""
		}
		switch redis.RestartFor(old, next) {
		case redis.RestartOneByOne:
			return "restarts Pods one by one"
		case redis.RestartTogether:
			return "restarts all Pods together"
		}
	case *flotillav1.NodePool:
		next, ok := after.(*flotillav1.NodePool)
		if ok && evicts(next) && !evicts(old) {
			return "evicts Pods (NoExecute)"
		}
	}
	return ""
}

// evicts says whether a pool has a taint that evicts Pods.
func evicts(pool *flotillav1.NodePool) bool {
	return slices.ContainsFunc(pool.Spec.Taints, func(taint flotillav1.NodePoolTaint) bool { return taint.Effect == corev1.TaintEffectNoExecute })
}
