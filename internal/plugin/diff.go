// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/changes"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxChanges is how many changed fields of a copy are named.
const maxChanges = 12

func newDiff(t *tool) *cobra.Command {
	var file, manager, output string
	c := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Try a change in every cluster, and say what it would do there",
		Long: `Try the objects of FILE (Redis and NodePools for the hub; - is standard input) on the hub and in every cluster that their
placement chooses, by server-side dry run: nothing is written anywhere. For each cluster it says what would change, what
restarts, what the member's API server or admission refuses, and which fields its schema lacks.

The copy is tried as placement makes it: with the overrides for the cluster, under the manager's own field manager. Waves,
removal budgets, freezes, and annotations of registrations that limit kinds or namespaces are not considered. The command
fails when something is refused or could not be tried. -o markdown prints a table for the comment of a pull request.` + site.MembersHelp,
		Example: "  kubectl flotilla diff -f redis.yaml\n  kustomize build . | kubectl flotilla diff -f - -o markdown",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return t.diff(c.Context(), file, output, client.FieldOwner(manager))
		},
	}
	addOutput(c, &output, "markdown")
	c.Flags().StringVarP(&file, "filename", "f", "", "File with the objects; - is standard input (required)")
	c.Flags().StringVar(&manager, "field-manager", "kubectl", "Field manager that will apply FILE, as with kubectl apply --server-side; fields of it that FILE lacks are removed")
	t.AddMemberContexts(c)
	return c
}

func (t *tool) diff(ctx context.Context, file, output string, applier client.FieldOwner) error {
	if file == "" {
		return console.Faultf("name it with -f FILE, or - for standard input", "the file is missing")
	}
	content, err := t.readInput(file)
	if err != nil {
		return err
	}
	objects, err := t.readObjects(content)
	if err != nil {
		return err
	}
	ways, members, err := t.LookAround(ctx)
	if err != nil {
		return err
	}
	trial := &trial{ways: ways, members: members, applier: applier}
	for _, object := range objects {
		if err := trial.run(ctx, object); err != nil {
			return err
		}
	}
	if err := t.printTrials(output, trial.items); err != nil {
		return err
	}
	if trial.refused > 0 {
		return console.Faultf("correct the objects or the clusters that are named above", "%d of the trials were refused or could not be made", trial.refused)
	}
	return nil
}

// readInput reads a file, or standard input for "-".
func (t *tool) readInput(path string) ([]byte, error) {
	if path == "-" {
		const limit = 16 << 20
		content, err := io.ReadAll(io.LimitReader(t.In, limit))
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return content, nil
	}
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, console.Faultf("give a file that can be read with -f", "reading the file: %w", err)
	}
	return content, nil
}

// readObjects decodes the objects that are placed, and mentions those that it leaves out.
func (t *tool) readObjects(content []byte) ([]*unstructured.Unstructured, error) {
	namespace, err := t.Namespace()
	if err != nil {
		return nil, err
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
			return nil, console.Faultf("correct the file", "it is not YAML or JSON: %w", err)
		}
		object := &unstructured.Unstructured{Object: fields}
		if len(fields) == 0 {
			continue
		}
		if object.GetAPIVersion() != flotillav1.GroupVersion.String() || !slices.Contains(fleet.KindNames, object.GetKind()) {
			t.Notef("left out: %s, which is neither a Redis nor a NodePool", console.Describe(object))
			continue
		}
		if object.GetKind() == fleet.Redis.Name && object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		objects = append(objects, object)
	}
	if len(objects) == 0 {
		return nil, console.Faultf("put a Redis or a NodePool there", "the file has no object that is placed")
	}
	return objects, nil
}

// trial tries objects everywhere, and collects what came of that.
type trial struct {
	ways    *site.Ways
	members []flotillav1.MemberCluster
	applier client.FieldOwner
	items   []trialItem
	refused int
}

// printTrials writes what came of trials.
func (t *tool) printTrials(output string, items []trialItem) error {
	header := []string{"OBJECT", "CLUSTER", "RESULT", "DETAIL"}
	switch output {
	case "":
		rows := make([][]console.Cell, 0, len(items))
		for i := range items {
			item := &items[i]
			rows = append(rows, []console.Cell{{Text: item.Object}, {Text: item.where()}, {Text: item.Result, Colour: item.colour()}, {Text: item.said()}})
		}
		t.Table(header, rows)
	case "markdown":
		t.Resultf("| %s |\n|%s", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
		for i := range items {
			item := &items[i]
			t.Resultf("| %s | %s | %s | %s |", inMarkdown(item.Object), inMarkdown(item.where()), item.Result, inMarkdown(item.said()))
		}
	default:
		return t.PrintValue(output, itemList[trialItem]{items})
	}
	return nil
}

// inMarkdown returns text as code in a cell of a table, so that nothing in it has a meaning.
func inMarkdown(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.NewReplacer("|", `\|`, "`", "'").Replace(text) + "`"
}

// where names the place of a trial.
func (i *trialItem) where() string { return cmp.Or(i.Cluster, "(hub)") }

// said returns the detail of a trial. That of a change begins with its effect.
func (i *trialItem) said() string {
	var parts []string
	for _, part := range []string{i.Effect, text.List(i.Changes, maxChanges), i.Detail} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// colour returns the colour of the result of a trial.
func (i *trialItem) colour() console.Colour {
	switch i.Result {
	case "created":
		return console.Green
	case "changed", "not chosen":
		return console.Yellow
	case "refused", "not tried":
		return console.Red
	}
	return console.Plain
}

// add adds what came of trying an object in one place.
func (d *trial) add(of target, where, result, detail string) {
	d.items = append(d.items, trialItem{Object: of.String(), Cluster: where, Result: result, Detail: detail})
}

// fail adds a trial that is refused, or that could not be made.
func (d *trial) fail(of target, where, result, why string) {
	d.refused++
	d.add(of, where, result, text.Line(why))
}

// refuse adds a trial that is refused. That is a result and not an error.
func (d *trial) refuse(of target, where, why string) error {
	d.fail(of, where, "refused", why)
	return nil
}

// addStored adds what would be stored in place of an object, and the effect of a change.
func (d *trial) addStored(of target, where string, before, stored fleet.Object, effect string) {
	if before.GetUID() == "" {
		d.add(of, where, "created", "")
		return
	}
	changed := changes.Between(of.kind.Spec(before), of.kind.Spec(stored))
	if len(changed) == 0 {
		d.add(of, where, "unchanged", "")
		return
	}
	d.items = append(d.items, trialItem{Object: of.String(), Cluster: where, Result: "changed", Effect: effect, Changes: changed})
}

// onHub is the cluster of a trial on the hub.
const onHub = ""

// run tries an object on the hub and then in each cluster that it would be placed in.
func (d *trial) run(ctx context.Context, object *unstructured.Unstructured) error {
	of := target{fleet.Redis, client.ObjectKeyFromObject(object)}
	if object.GetKind() == fleet.NodePool.Name {
		of.kind = fleet.NodePool
	}
	before, after := of.kind.New(), of.kind.New()
	if err := d.ways.Hub.Get(ctx, of.key, before); client.IgnoreNotFound(err) != nil {
		return d.ways.Hub.Explain("reading "+of.String(), err)
	}
	tried := object.DeepCopy()
	err := d.ways.Hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(tried), d.applier, client.ForceOwnership, client.DryRunAll)
	switch {
	case fleet.Refused(err):
		return d.refuse(of, onHub, err.Error())
	case err != nil:
		return d.ways.Hub.Explain("trying "+of.String(), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tried.Object, after); err != nil {
		return fmt.Errorf("reading what the hub would store: %w", err)
	}
	d.addStored(of, onHub, before, after, "")
	if specs, err := fleet.NewSpecs(of.kind, after); err == nil {
		if err := specs.Invalid(); err != nil {
			d.fail(of, onHub, "refused", flotillav1.ReasonOverrideInvalid+": "+err.Error())
		}
	}
	// Only the manager knows which registrations limit namespaces or kinds.
	placedIn := after.GetFleetStatus().PlacedIn
	chosen, err := fleet.Choose(after.GetPlacement(), after.GetNamespace(), fleet.Members(nil, d.members), placedIn)
	if err != nil {
		return d.refuse(of, onHub, err.Error())
	}
	site.AtOnce(ctx, len(chosen), func(i int) bool {
		member := slices.IndexFunc(d.members, func(member flotillav1.MemberCluster) bool { return member.Name == chosen[i] })
		return member >= 0 && site.IsAway(&d.members[member])
	}, func(ctx context.Context, i int) *trial {
		there := &trial{ways: d.ways, members: d.members, applier: d.applier}
		if err := there.inCluster(ctx, of, after, chosen[i]); err != nil {
			there.fail(of, chosen[i], "not tried", err.Error())
		}
		return there
	}, func(_ int, there *trial) {
		d.items, d.refused = append(d.items, there.items...), d.refused+there.refused
	})
	for _, name := range placedIn {
		if !slices.Contains(chosen, name) {
			d.add(of, name, "not chosen", "The copy there is removed, or stays as Leaving; see docs/placement.md")
		}
	}
	return nil
}

// inCluster tries the copy in one cluster. It returns an error when the copy cannot be tried.
func (d *trial) inCluster(ctx context.Context, of target, after fleet.Object, name string) error {
	i := slices.IndexFunc(d.members, func(member flotillav1.MemberCluster) bool { return member.Name == name })
	if i < 0 {
		return console.Faultf("register it, or take it out of the placement", "%s: no member has this name", flotillav1.ReasonNotRegistered)
	}
	var want fleet.Effective
	specs, err := fleet.NewSpecs(of.kind, after)
	if err == nil {
		want, err = specs.For(name, d.members[i].Labels)
	}
	if err != nil {
		return d.refuse(of, name, flotillav1.ReasonOverrideInvalid+": "+err.Error())
	}
	from, err := d.ways.Into(ctx, &d.members[i])
	if err != nil {
		return err
	}
	lacks, err := schemaGaps(ctx, from, of.kind)
	if err != nil {
		return err
	}
	want, used := want.Fit(lacks)
	if len(used) > 0 {
		return d.refuse(of, name, flotillav1.ReasonVersionSkew+": the CRD there lacks "+text.List(used, maxChanges)+"; run kubectl flotilla upgrade-member "+name)
	}
	return d.tryCopy(ctx, from, of, after, want, name)
}

// schemaGaps returns the fields that the schema of a member lacks.
func schemaGaps(ctx context.Context, from *site.Site, kind fleet.Kind) ([]fleet.MissingField, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := from.Get(ctx, client.ObjectKey{Name: kind.CRD}, definition); err != nil {
		return nil, from.Explain("reading CRD "+kind.CRD, err)
	}
	lacks, _, _, err := preflight.CompareDefinition(definition)
	gaps := make([]fleet.MissingField, 0, len(lacks))
	for _, field := range lacks {
		gaps = append(gaps, fleet.MissingField(field))
	}
	return gaps, err
}

// tryCopy applies the copy by dry run as placement would, and compares what would be stored with what exists.
func (d *trial) tryCopy(ctx context.Context, from *site.Site, of target, after fleet.Object, want fleet.Effective, name string) error {
	claim, err := from.Claim(ctx)
	if err != nil {
		return err
	}
	before, stored, hubID, spec := of.kind.New(), of.kind.New(), claim.HubID(), want.DeepCopy().Spec
	err = from.Get(ctx, of.key, before)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return from.Explain("reading "+of.String(), err)
	case err == nil:
		if !fleet.IsOurs(before, hubID) && !fleet.MayAdopt(after, before, hubID) {
			return d.refuse(of, name, flotillav1.ReasonNameConflict+": the member has an object of this name that is no copy of this hub")
		}
		// What is left to the member keeps its present value.
		if spec, err = want.Onto(of.kind.Spec(before)); err != nil {
			return err
		}
	}
	tried := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	tried.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(of.kind.Name))
	tried.SetNamespace(of.key.Namespace)
	tried.SetName(of.key.Name)
	tried.SetAnnotations(map[string]string{flotillav1.AnnotationHub: hubID, flotillav1.AnnotationPlacedFrom: fleet.PlacedFrom(of.key), flotillav1.AnnotationSpecHash: want.Hash})
	err = from.Apply(ctx, client.ApplyConfigurationFromUnstructured(tried), client.FieldOwner(fleet.PlacementManager), client.ForceOwnership, client.DryRunAll)
	switch {
	case apierrors.IsNotFound(err) && of.key.Namespace != "":
		d.add(of, name, "created", fmt.Sprintf("with namespace %s, which is not there yet: the copy itself could not be tried", of.key.Namespace))
		return nil
	case fleet.Refused(err):
		return d.refuse(of, name, err.Error())
	case err != nil:
		return from.Explain("trying "+of.String(), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tried.Object, stored); err != nil {
		return fmt.Errorf("reading what %s would store: %w", from.Called, err)
	}
	d.addStored(of, name, before, stored, effectOf(before, stored))
	return nil
}

// effectOf returns what a change does to Pods; empty for nothing.
func effectOf(before, after fleet.Object) string {
	switch next := after.(type) {
	case *flotillav1.Redis:
		switch redisspec.RestartFor(before.(*flotillav1.Redis), next) {
		case redisspec.RestartOneByOne:
			return "restarts Pods one by one"
		case redisspec.RestartTogether:
			return "restarts all Pods together"
		}
	case *flotillav1.NodePool:
		if evicts(next) && !evicts(before.(*flotillav1.NodePool)) {
			return "evicts Pods (NoExecute)"
		}
	}
	return ""
}

// evicts reports whether a pool has a taint that evicts Pods.
func evicts(pool *flotillav1.NodePool) bool {
	return slices.ContainsFunc(pool.Spec.Taints, func(taint flotillav1.NodePoolTaint) bool { return taint.Effect == corev1.TaintEffectNoExecute })
}
