// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// maxSkew is how far clocks may be apart: the Date of an answer is of a second, and may be old by as long as it took.
	maxSkew = 30 * time.Second
	// managerLease is what the manager holds on the hub.
	managerLease = "flotilla-manager"
)

// Kubernetes versions that members may have.
var oldest, newest = version.MustParseGeneric("1.30.0"), version.MustParseGeneric("1.37.0")

// severity of a finding.
type severity int

const (
	note severity = iota
	warning
	problem
)

// finding is something that is not as it should be.
type finding struct {
	severity     severity
	what, remedy string
}

// examination is what is looked at together, with what was found.
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

// failed adds what keeps from looking.
func (e *examination) failed(of severity, err error) {
	if known := (*fault)(nil); errors.As(err, &known) {
		e.found(of, known.remedy, "%s", text.Line(known.err.Error()))
		return
	}
	e.found(of, "try again", "%s", text.Line(err.Error()))
}

func newDoctor(t *tool) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor [CLUSTER...]",
		Short: "Look for what is wrong, or will be, with the hub and its members",
		Long: `Look for what is wrong, or will be, with the hub and its members: schemas, versions, clocks, reachability, the claim,
credentials that end, and rights of the hub that are missing or not needed. Each finding says what to do. Nothing is
written. The command fails when there is a problem (✗); warnings (!) and notes (·) do not make it fail.

The rights are those of the credential in the registration, so they are only looked at if you may read it.` + waysHelp,
		Example:           "  kubectl flotilla doctor\n  kubectl flotilla doctor eu-1 --member-context eu-1-admin",
		ValidArgsFunction: t.completeMembers,
		RunE:              func(c *cobra.Command, args []string) error { return t.doctor(c.Context(), args) },
	}
	t.addMemberContext(c)
	return c
}

func (t *tool) doctor(ctx context.Context, names []string) error {
	hub, err := t.hub()
	if err != nil {
		return err
	}
	members, err := hub.members(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := hub.memberNamed(ctx, name); err != nil {
			return err
		}
	}
	into, err := t.waysInto(ctx, hub)
	if err != nil {
		return err
	}
	bad := t.report(t.examineHub(ctx, hub, len(members)))
	for i := range members {
		if len(names) == 0 || slices.Contains(names, members[i].Name) {
			bad = t.report(t.examineMember(ctx, into, &members[i])) || bad
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if bad {
		return errSaid
	}
	return nil
}

// report writes an examination and says whether there is a problem.
func (t *tool) report(e *examination) bool {
	slices.SortStableFunc(e.findings, func(a, b finding) int { return int(b.severity) - int(a.severity) })
	mark, with := "✓", green
	if len(e.findings) > 0 && e.findings[0].severity > note {
		mark, with = "!", yellow
	}
	bad := len(e.findings) > 0 && e.findings[0].severity == problem
	if bad {
		mark, with = "✗", red
	}
	text := e.where
	if len(e.well) > 0 {
		text += ": " + strings.Join(e.well, ", ")
	}
	t.tell("%s %s", paint(t.Out, with, mark), text)
	for _, f := range e.findings {
		sign := map[severity]string{note: "·", warning: paint(t.Out, yellow, "!"), problem: paint(t.Out, red, "✗")}[f.severity]
		t.tell("    %s %s", sign, f.what)
		if f.remedy != "" {
			t.tell("      → %s", f.remedy)
		}
	}
	return bad
}

// examineHub looks at the hub.
func (t *tool) examineHub(ctx context.Context, hub *site, members int) *examination {
	e := &examination{where: "hub"}
	e.fine("%d %s", members, plural(members, "member"))
	t.examineServer(ctx, e, hub)
	examineDefinitions(ctx, e, hub, "kubectl apply --server-side -k config/hub")
	namespace := &corev1.Namespace{}
	if err := hub.Get(ctx, client.ObjectKey{Name: t.registrations}, namespace); apierrors.IsNotFound(err) {
		e.found(problem, "apply config/hub, or set --registration-namespace", "there is no namespace %q for registrations", t.registrations)
	}
	lease := &coordinationv1.Lease{}
	err := hub.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: managerLease}, lease)
	holder, alive := t.claimant(lease)
	switch {
	case apierrors.IsNotFound(err), err == nil && !alive && holder == "":
		e.found(problem, "start it, or look at its log; one that runs without leader election does not show here", "no manager holds Lease %s/%s", systemNamespace, managerLease)
	case err != nil:
		e.failed(note, hub.explain("reading the Lease of the manager", err))
	case !alive:
		e.found(problem, "look at its Pod and log: kubectl -n "+systemNamespace+" logs deployment/flotilla-manager",
			"the manager has not renewed its Lease for %s", t.ago(&metav1.Time{Time: lease.Spec.RenewTime.Time}))
	default:
		e.fine("the manager is alive")
	}
	if freeze := (&corev1.ConfigMap{}); hub.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "flotilla-freeze"}, freeze) == nil {
		e.found(warning, "delete ConfigMap "+systemNamespace+"/flotilla-freeze when that is over", "the fleet is frozen: %s", or(text.Line(freeze.Data["reason"])))
	}
	return e
}

// examineServer looks at the version and the clock of an API server. It says whether it answers.
func (t *tool) examineServer(ctx context.Context, e *examination, s *site) bool {
	before := t.clock.Now()
	answer, err := s.ask(ctx)
	if err != nil {
		e.failed(problem, s.explain("asking for its version", err))
		return false
	}
	e.fine("Kubernetes %s", answer.version)
	parsed, err := version.ParseGeneric(answer.version)
	switch {
	case err != nil || parsed.LessThan(oldest):
		e.found(problem, "upgrade the cluster to 1.30 or later", "Kubernetes %s is too old", answer.version)
	case !parsed.LessThan(newest):
		e.found(note, "see whether there is a newer Flotilla", "Kubernetes %s is newer than what this build was tested with", answer.version)
	}
	if answer.at.IsZero() {
		return true
	}
	if skew := answer.at.Sub(before); skew > maxSkew || skew < -maxSkew {
		e.found(warning, "set the clocks by NTP: the end of credentials and claims is decided by them", "its clock and that of this machine are %s apart", skew.Round(time.Second).Abs())
	}
	return true
}

// examineDefinitions compares the schemas of a cluster with those of this build.
func examineDefinitions(ctx context.Context, e *examination, s *site, apply string) {
	same := true
	for _, name := range clusters.DefinitionNames() {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		err := s.Get(ctx, client.ObjectKey{Name: name}, definition)
		if apierrors.IsNotFound(err) {
			e.found(problem, apply, "there is no CRD %s", name)
			same = false
			continue
		}
		if err != nil {
			e.failed(note, s.explain("reading CRD "+name, err))
			same = false
			continue
		}
		lacks, revision, ours, err := clusters.CompareDefinition(definition)
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

// examineMember looks at a member: first by what the hub says, then by itself.
func (t *tool) examineMember(ctx context.Context, into *ways, member *flotillav1.MemberCluster) *examination {
	e := &examination{where: member.Name}
	examineConditions(e, member)
	t.examineCredential(e, member)
	from, err := into.into(ctx, member)
	if err != nil {
		e.failed(warning, err)
		return e
	}
	if t.examineServer(ctx, e, from) {
		examineDefinitions(ctx, e, from, "kubectl --context MEMBER apply --server-side -k config/member")
	}
	t.examineRights(ctx, e, into, member)
	return e
}

// examineConditions reads what the hub says about a member. Its messages say what to do.
func examineConditions(e *examination, member *flotillav1.MemberCluster) {
	if ready := condition(member.Status.Conditions, flotillav1.ConditionReady); ready.Status == metav1.ConditionTrue {
		e.fine("ready")
	}
	for _, c := range member.Status.Conditions {
		switch {
		case c.Type == flotillav1.ConditionReady, c.Status == metav1.ConditionTrue && c.Reason != flotillav1.ReasonVersionSkew && c.Type != flotillav1.ConditionFrozen && c.Type != flotillav1.ConditionPaused:
		case c.Type == flotillav1.ConditionFrozen || c.Type == flotillav1.ConditionPaused || c.Type == flotillav1.ConditionDrained:
			if c.Status == metav1.ConditionTrue || c.Type == flotillav1.ConditionDrained {
				e.found(note, "", "%s: %s", c.Type, or(c.Message))
			}
		case c.Reason == flotillav1.ReasonVersionSkew:
			e.found(warning, meaningOf(c.Reason), "%s: %s", c.Reason, c.Message)
		default:
			e.found(problem, meaningOf(c.Reason), "%s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, item := range member.Status.Attention {
		if item.Reason == flotillav1.ReasonOrphaned {
			e.found(note, "kubectl flotilla prune -c "+member.Name, "an orphaned copy: %s %s", item.Kind, strings.Trim(item.Namespace+"/"+item.Name, "/"))
		}
	}
}

// examineCredential says when the credential ends, if that is near.
func (t *tool) examineCredential(e *examination, member *flotillav1.MemberCluster) {
	remedy := "kubectl flotilla rotate " + member.Name + " --member-context CONTEXT"
	end := endOf(member)
	accepted := condition(member.Status.Conditions, flotillav1.ConditionCredentialsAccepted)
	switch {
	case member.Status.Credentials == nil:
	case end.IsZero():
		e.found(note, remedy+" makes one that ends, where the member grants that", "the credential does not end")
	case accepted.Reason == flotillav1.ReasonExpiresSoon:
		e.found(warning, remedy, "the credential ends in %s", t.in(end))
	case accepted.Reason != flotillav1.ReasonExpired:
		e.fine("credential ends in %s", t.in(end))
	}
}
