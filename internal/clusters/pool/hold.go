// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// freezeName is the ConfigMap that stops all writes while it exists.
	freezeName = flotillav1.FreezeConfigMap
	// Keys of the ConfigMap.
	freezeReason   = "reason"
	freezeSelector = "clusterSelector"
	// freezeReasonLimit is the maximum length of the displayed reason, in bytes.
	freezeReasonLimit = 256
	// freezePatience is how long the start waits for the switch to be read.
	freezePatience = 10 * time.Second
)

// freeze is the content of the freeze switch. The zero value freezes no member.
type freeze struct {
	// selector matches the labels of frozen members; nil matches none.
	selector labels.Selector
	// message is the reason, for people.
	message string
}

// covers reports whether a member with these labels is frozen.
func (f *freeze) covers(memberLabels map[string]string) bool {
	return f.selector != nil && f.selector.Matches(labels.Set(memberLabels))
}

// readFreeze parses the switch; nil means that it does not exist. A switch with an invalid selector freezes every
// member, because its author wanted writes to stop.
func readFreeze(object *corev1.ConfigMap) *freeze {
	if object == nil {
		return &freeze{}
	}
	f := &freeze{selector: labels.Everything(), message: "The freeze switch stops all writes; it gives no reason"}
	if reason := text.Cut(text.Line(object.Data[freezeReason]), freezeReasonLimit); reason != "" {
		f.message = reason
	}
	selects := strings.TrimSpace(object.Data[freezeSelector])
	if selects == "" {
		return f
	}
	selector, err := parseFreezeSelector(selects)
	if err != nil {
		f.message = "The clusterSelector of the freeze switch is not a label selector, so that every member is frozen: " + f.message
		return f
	}
	f.selector = selector
	return f
}

// parseFreezeSelector parses a LabelSelector in YAML or JSON, or a selector in the syntax of kubectl.
func parseFreezeSelector(text string) (labels.Selector, error) {
	selector := metav1.LabelSelector{}
	if err := yaml.UnmarshalStrict([]byte(text), &selector); err != nil {
		return labels.Parse(text)
	}
	return metav1.LabelSelectorAsSelector(&selector)
}

// watchFreeze watches the switch until ctx ends. It returns once the switch has been read, or after freezePatience. In
// the latter case every member is frozen until the switch can be read, because writes may be forbidden.
func (p *Pool) watchFreeze(ctx context.Context) error {
	if p.cfg.Namespace == "" {
		return nil
	}
	informer := coreinformers.NewFilteredConfigMapInformer(p.hub.secrets, p.cfg.Namespace, 0, toolscache.Indexers{},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, freezeName).String()
		})
	set := func(object any) {
		if switched, ok := object.(*corev1.ConfigMap); ok && switched.Name == freezeName {
			p.setFreeze(readFreeze(switched))
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, after any) { set(after) },
		DeleteFunc: func(any) { p.setFreeze(readFreeze(nil)) },
	})
	if err != nil {
		return fmt.Errorf("preparing the watch of the freeze switch: %w", err)
	}
	unread := &freeze{selector: labels.Everything(), message: fmt.Sprintf("ConfigMap %s/%s could not be read, so that nobody knows that writes are wanted", p.cfg.Namespace, freezeName)}
	// Stored before the informer runs, so that it never replaces a switch that was read.
	p.frozen.Store(unread)
	go informer.RunWithContext(ctx)
	wait, cancel := context.WithTimeout(ctx, freezePatience)
	defer cancel()
	if toolscache.WaitForCacheSync(wait.Done(), registration.HasSynced) {
		p.frozen.CompareAndSwap(unread, &freeze{})
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	p.log.Info("Freezing every member until the freeze switch can be read; may the manager read it?", "namespace", p.cfg.Namespace, "name", freezeName)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) && p.frozen.CompareAndSwap(unread, &freeze{}) {
			p.wakeAll()
		}
	}()
	return nil
}

// setFreeze applies the switch: to requests immediately, to the published state of members once their actors handle
// the wake-up.
func (p *Pool) setFreeze(f *freeze) {
	p.frozen.Store(f)
	p.log.Info("Freeze switch", "frozen", f.selector != nil, "message", f.message)
	p.wakeAll()
}

// wakeAll makes every member evaluate its registration again.
func (p *Pool) wakeAll() {
	for _, m := range p.all() {
		signal(m.changed)
	}
}

// ownKey marks the context of the pool's own writes: the claim, and the cleanup during offboarding.
type ownKey struct{}

// asOwn marks writes of the pool, which are permitted even before a member is claimed and after it is gone.
func asOwn(ctx context.Context) context.Context { return context.WithValue(ctx, ownKey{}, true) }

const (
	claimPath  = "/apis/coordination.k8s.io/v1/namespaces/" + preflight.ClaimNamespace + "/leases/" + preflight.ClaimName
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// isWrite reports whether a request is a write that pausing or freezing must prevent. Access reviews change nothing,
// and renewing the claim only shows that the hub is alive.
func isWrite(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	case http.MethodPost:
		return req.URL.Path != reviewPath
	case http.MethodPut:
		return req.URL.Path != claimPath
	default:
		return true
	}
}

// permit returns an error when a request must not be sent now, and otherwise how long it may take; zero means that it is
// not limited. Reads are always permitted. It is enforced below every client of the member, so that no reconciler can
// bypass it. It checks the wanted state, which the Snapshot reflects with a short delay.
func (m *member) permit(req *http.Request) (left time.Duration, err error) {
	if !isWrite(req) {
		return 0, nil
	}
	state := m.writeState()
	switch {
	case m.pool.frozen.Load().covers(state.wanted.Labels):
		return 0, &clusters.HeldError{Reason: flotillav1.ReasonFrozen}
	case state.wanted.Paused:
		return 0, &clusters.HeldError{Reason: flotillav1.ReasonPaused}
	case req.Context().Value(ownKey{}) != nil:
		return 0, nil
	case state.shown.Paused, state.shown.State == clusters.StateGone:
		return 0, &clusters.HeldError{Reason: "NotClaimed"}
	}
	if left = state.permission.Left(m.pool.cfg.Clock.Now()); left == 0 {
		return 0, &clusters.HeldError{Reason: "NotClaimed"}
	}
	if leading := m.pool.cfg.Leading; leading != nil {
		left = min(left, leading())
	}
	if left == 0 {
		return 0, clusters.ErrNotLeading
	}
	return left, nil
}

// held reports whether the registration or the freeze switch forbids writes, as last observed by the actor.
func (m *member) held() bool { return m.current.Paused || !m.thawed }

// onFreeze publishes whether the member is frozen, and records an event when that changed.
func (m *member) onFreeze() {
	switched := m.pool.frozen.Load()
	frozen := switched.covers(m.current.Labels)
	m.update(func(p *publication) {
		p.snapshot.Frozen = frozen
		delete(p.verdicts, flotillav1.ConditionFrozen)
		if frozen {
			p.verdicts[flotillav1.ConditionFrozen] = verdict.Good(flotillav1.ReasonFrozen, switched.message)
		}
	})
	switch {
	case frozen && m.thawed:
		m.warning(flotillav1.ReasonFrozen, "Freeze", "Nothing is written to the member: "+switched.message)
	case !frozen && !m.thawed:
		m.normal("Unfrozen", "Freeze", "The member is written again")
	}
	m.thawed = !frozen
}

// reportFrozen sets condition Frozen while the member is frozen, and removes it otherwise. Unlike the other
// conditions, it is known from the start.
func reportFrozen(object *flotillav1.MemberCluster, wanted publication, now time.Time) {
	v, frozen := wanted.verdicts[flotillav1.ConditionFrozen]
	if !frozen {
		apimeta.RemoveStatusCondition(&object.Status.Conditions, flotillav1.ConditionFrozen)
		return
	}
	apimeta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: flotillav1.ConditionFrozen, Status: v.Status, Reason: v.Reason, Message: v.Message,
		ObservedGeneration: object.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}
