// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/membership"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxSkew is how far clocks may be apart: the Date of an answer is rounded to a second and as old as the answer took.
const maxSkew = 30 * time.Second

// untested is the first version of Kubernetes that this build was not tested with.
var untested = version.MustParseGeneric("1.37.0")

// severity of a finding.
type severity int

const (
	note severity = iota
	warning
	problem
)

// finding is something that is wrong, or worth a note.
type finding struct {
	severity     severity
	what, remedy string
}

// examination is what is examined together, and what was found.
type examination struct {
	where    string
	well     []string
	findings []finding
}

func (e *examination) fine(format string, args ...any) {
	e.well = append(e.well, fmt.Sprintf(format, args...))
}

func (e *examination) found(of severity, remedy, format string, args ...any) {
	e.findings = append(e.findings, finding{of, fmt.Sprintf(format, args...), remedy})
}

// failed adds what could not be examined.
func (e *examination) failed(of severity, err error) {
	what, remedy := console.Split(err)
	e.found(of, cmp.Or(remedy, "try again"), "%s", what)
}

func newDoctor(t *tool) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "doctor [CLUSTER...]",
		Short: "Find present and upcoming problems of the hub and its members",
		Long: `Find problems of the hub and its members, present and upcoming: schemas, versions, clocks, reachability, the claim,
credentials that end, and rights of the hub that are missing or not needed. Each finding says what to do. Nothing is
written. The command fails when there is a problem (✗); warnings (!) and notes (·) do not make it fail.

The rights are those of the credential in the registration, so they are only examined if you may read it.` + site.MembersHelp,
		Example:           "  kubectl flotilla doctor\n  kubectl flotilla doctor eu-1 --member-context eu-1-admin",
		ValidArgsFunction: t.CompleteMember,
		RunE:              func(c *cobra.Command, args []string) error { return t.doctor(c.Context(), args, output) },
	}
	addOutput(c, &output)
	t.AddMemberContexts(c)
	return c
}

func (t *tool) doctor(ctx context.Context, names []string, output string) error {
	ways, members, err := t.LookAround(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := ways.Hub.Member(ctx, name); err != nil {
			return err
		}
	}
	bad, examined := false, []examinedItem{}
	report := func(e *examination) {
		worst := e.sort()
		bad = bad || worst == problem
		if output == "" {
			t.report(e, worst)
		}
		examined = append(examined, e.item())
	}
	report(t.examineHub(ctx, ways.Hub, len(members)))
	if len(names) > 0 {
		members = slices.DeleteFunc(members, func(member flotillav1.MemberCluster) bool { return !slices.Contains(names, member.Name) })
	}
	site.AtOnce(ctx, len(members), func(i int) bool { return site.IsAway(&members[i]) },
		func(ctx context.Context, i int) *examination { return t.examineMember(ctx, ways, &members[i]) },
		func(_ int, e *examination) { report(e) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if output != "" {
		if err := t.PrintValue(output, itemList[examinedItem]{examined}); err != nil {
			return err
		}
	}
	if bad {
		return console.ErrReported
	}
	return nil
}

// sort puts the worst findings first, and returns how bad the worst one is.
func (e *examination) sort() severity {
	slices.SortStableFunc(e.findings, func(a, b finding) int { return int(b.severity) - int(a.severity) })
	if len(e.findings) == 0 {
		return note
	}
	return e.findings[0].severity
}

// report writes an examination whose worst finding is given.
func (t *tool) report(e *examination, worst severity) {
	mark, with := "✓", console.Green
	switch worst {
	case warning:
		mark, with = "!", console.Yellow
	case problem:
		mark, with = "✗", console.Red
	}
	text := e.where
	if len(e.well) > 0 {
		text += ": " + strings.Join(e.well, ", ")
	}
	t.Resultf("%s %s", console.Paint(t.Out, with, mark), text)
	for _, f := range e.findings {
		sign := map[severity]string{note: "·", warning: console.Paint(t.Out, console.Yellow, "!"), problem: console.Paint(t.Out, console.Red, "✗")}[f.severity]
		t.Resultf("    %s %s", sign, f.what)
		if f.remedy != "" {
			t.Resultf("      → %s", f.remedy)
		}
	}
}

// examineHub examines the hub.
func (t *tool) examineHub(ctx context.Context, hub *site.Site, members int) *examination {
	e := &examination{where: "hub"}
	e.fine("%s", console.Count(members, "member"))
	t.examineServer(ctx, e, hub)
	examineDefinitions(ctx, e, hub, "kubectl apply --server-side -k config/hub")
	namespace := &corev1.Namespace{}
	if err := hub.Get(ctx, client.ObjectKey{Name: t.Registrations}, namespace); apierrors.IsNotFound(err) {
		e.found(problem, "install Flotilla there (install.yaml or the Helm chart), or set --registration-namespace", "there is no namespace %q for registrations", t.Registrations)
	}
	lease, err := hub.ManagerLease(ctx)
	switch held := lease.HeldAt(t.Clock.Now()); {
	case apierrors.IsNotFound(err), err == nil && !held && lease.HubID() == "":
		e.found(problem, "start it, or look at its log; one that runs without leader election does not show here", "no manager holds Lease %s/%s", flotillav1.SystemNamespace, flotillav1.ManagerLease)
	case err != nil:
		e.failed(note, err)
	case !held:
		e.found(problem, "look at its Pod and log: kubectl -n "+flotillav1.SystemNamespace+" logs deployment/flotilla-manager",
			"the manager has not renewed its Lease for %s", t.Ago(lease.Renewed()))
	default:
		e.fine("the manager is alive")
	}
	if freeze := (&corev1.ConfigMap{}); hub.Get(ctx, client.ObjectKey{Namespace: flotillav1.SystemNamespace, Name: flotillav1.FreezeConfigMap}, freeze) == nil {
		e.found(warning, "delete ConfigMap "+flotillav1.SystemNamespace+"/"+flotillav1.FreezeConfigMap+" when that is over", "the fleet is frozen: %s", console.OrDash(text.Line(freeze.Data["reason"])))
	}
	return e
}

// examineServer examines the version and the clock of an API server. It reports whether the server answers.
func (t *tool) examineServer(ctx context.Context, e *examination, s *site.Site) bool {
	before := t.Clock.Now()
	answer, err := s.Greet(ctx)
	if err != nil {
		e.failed(problem, err)
		return false
	}
	e.fine("Kubernetes %s", answer.Version)
	switch parsed, err := version.ParseGeneric(answer.Version); {
	case preflight.CheckVersion(answer.Version) != nil:
		e.found(problem, "upgrade the cluster to 1.30 or later", "Kubernetes %s is too old", answer.Version)
	case err == nil && !parsed.LessThan(untested):
		e.found(note, "see whether there is a newer Flotilla", "Kubernetes %s is newer than what this build was tested with", answer.Version)
	}
	if answer.At.IsZero() {
		return true
	}
	if skew := answer.At.Sub(before); skew > maxSkew || skew < -maxSkew {
		e.found(warning, "set the clocks by NTP: the end of credentials and claims is decided by them", "its clock and that of this machine are %s apart", skew.Round(time.Second).Abs())
	}
	return true
}

// examineDefinitions compares the schemas of a cluster with those of this build.
func examineDefinitions(ctx context.Context, e *examination, s *site.Site, apply string) {
	same := true
	for _, name := range preflight.DefinitionNames() {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		err := s.Get(ctx, client.ObjectKey{Name: name}, definition)
		if apierrors.IsNotFound(err) {
			e.found(problem, apply, "there is no CRD %s", name)
			same = false
			continue
		}
		if err != nil {
			e.failed(note, s.Explain("reading CRD "+name, err))
			same = false
			continue
		}
		lacks, revision, ours, err := preflight.CompareDefinition(definition)
		var paths []string
		for _, field := range lacks {
			paths = append(paths, field.Path)
		}
		switch {
		case err != nil:
			e.failed(note, err)
		case definition.DeletionTimestamp != nil:
			e.found(problem, "find out who deletes it; the objects are released, and it can be applied again afterwards", "CRD %s is being deleted", name)
		case len(paths) > 0:
			e.found(warning, apply, "CRD %s is older than this build (revision %d, here %d) and lacks %s", name, revision, ours, text.List(paths, 5))
		case revision < ours:
			e.found(warning, apply, "CRD %s is older than this build: revision %d, here %d", name, revision, ours)
		case revision > ours:
			e.found(note, "upgrade the plugin", "CRD %s is newer than this build: revision %d, here %d", name, revision, ours)
		default:
			continue
		}
		same = false
	}
	if same {
		e.fine("schemas up to date")
	}
}

// examineMember examines what the hub says about a member, and the member itself.
func (t *tool) examineMember(ctx context.Context, ways *site.Ways, member *flotillav1.MemberCluster) *examination {
	e := &examination{where: member.Name}
	examineConditions(e, member)
	t.examineCredential(e, member)
	from, err := ways.Into(ctx, member)
	if err != nil {
		e.failed(warning, err)
		return e
	}
	if t.examineServer(ctx, e, from) {
		examineDefinitions(ctx, e, from, "kubectl --context MEMBER apply --server-side -k config/member")
	}
	t.examineRights(ctx, e, ways, member, from)
	examineTokens(ctx, e, ways, member, from)
	return e
}

// examineTokens looks for credentials that nobody may remember. The hub may not list Secrets, so it takes somebody else.
func examineTokens(ctx context.Context, e *examination, ways *site.Ways, member *flotillav1.MemberCluster, from *site.Site) {
	if from.ByRegistration {
		return
	}
	secret, err := ways.Hub.Registration(ctx, member)
	if err != nil {
		return
	}
	unused, err := membership.Unused(ctx, from, secret)
	switch {
	case err != nil:
		e.failed(note, err)
	case len(unused) > 0:
		e.found(note, "unless another hub uses them, kubectl flotilla rotate "+member.Name+" --member-context MEMBER --revoke-old, or delete the Secrets there",
			"credentials that the registration does not hold are valid in the member: Secrets %s in namespace %s", text.List(unused, 5), flotillav1.SystemNamespace)
	}
}

// examineConditions examines what the hub says about a member. The messages of the hub contain the remedy.
func examineConditions(e *examination, member *flotillav1.MemberCluster) {
	if ready := condition.Of(member.Status.Conditions, flotillav1.ConditionReady); ready.Status == metav1.ConditionTrue {
		e.fine("ready")
	}
	for _, c := range member.Status.Conditions {
		switch {
		case c.Type == flotillav1.ConditionReady, c.Status == metav1.ConditionTrue && c.Reason != flotillav1.ReasonVersionSkew && c.Type != flotillav1.ConditionFrozen && c.Type != flotillav1.ConditionPaused:
		case c.Type == flotillav1.ConditionFrozen || c.Type == flotillav1.ConditionPaused || c.Type == flotillav1.ConditionDrained:
			if c.Status == metav1.ConditionTrue || c.Type == flotillav1.ConditionDrained {
				e.found(note, "", "%s: %s", c.Type, console.OrDash(c.Message))
			}
		case c.Reason == flotillav1.ReasonVersionSkew:
			e.found(warning, condition.Meaning(c.Reason), "%s: %s", c.Reason, c.Message)
		default:
			e.found(problem, condition.Meaning(c.Reason), "%s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, item := range member.Status.Attention {
		if item.Reason == flotillav1.ReasonOrphaned {
			e.found(note, "kubectl flotilla prune -c "+member.Name, "an orphaned copy: %s %s", item.Kind, console.Qualified(item.Namespace, item.Name))
		}
	}
}

// examineCredential examines when the credential ends.
func (t *tool) examineCredential(e *examination, member *flotillav1.MemberCluster) {
	remedy := "kubectl flotilla rotate " + member.Name + " --member-context CONTEXT"
	end, reason := endOf(member), condition.Accepted(member).Reason
	switch {
	case member.Status.Credentials == nil:
	case end.IsZero():
		e.found(note, remedy+" makes one that ends, where the member grants that", "the credential does not end")
	case reason == flotillav1.ReasonExpiresSoon:
		e.found(warning, remedy, "the credential ends in %s", t.Until(end))
	case reason != flotillav1.ReasonExpired:
		e.fine("credential ends in %s", t.Until(end))
	}
}
