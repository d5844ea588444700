// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// standing returns the hub object with the record of its change as it is when a pass begins.
func standing(hubObject fleet.Object, specs *fleet.Specs, template string, state hubState) fleet.Object {
	recorded := hubObject.GetFleetStatus().Change
	change := fleet.Standing(recorded, template, fleet.PromotionOf(hubObject), func(hash string) bool {
		for _, name := range state.chosen {
			member, registered := fleet.Find(state.members, name)
			if !registered {
				continue
			}
			if want, err := specs.For(name, member.Labels); err == nil && want.Hash == hash {
				return true
			}
		}
		return false
	})
	if fleet.SameChange(recorded, change) {
		return hubObject
	}
	planned := hubObject.DeepCopyObject().(fleet.Object)
	planned.GetFleetStatus().Change = change
	return planned
}

// revert decides to take the change back. The next pass, which has seen that in the hub object, lets the clusters go back:
// after a crash nothing else would know that the others must not take the change. No permit is granted until then.
func (r *Reconciler) revert(ctx context.Context, hubObject fleet.Object, decided decision, wave fleet.Wave, turns []fleet.Turn) decision {
	change := hubObject.GetFleetStatus().Change
	decided.change = change
	if fleet.PromotionOf(hubObject) != fleet.PromotionNone {
		// It was made before the change failed, and must not be taken for the wish to try the change again.
		decided.demote = true
		return decided
	}
	kept, err := r.kept.read(ctx, r, hubObject)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Finding out what the clusters had before a change")
		decided.recheck = conflictDelay
		return decided
	}
	present, err := r.presentRevision(hubObject)
	if err != nil {
		return decided
	}
	before := kept.Before(change, present, wave, turns)
	if before == nil {
		// The rollout is halted, and a person is told so.
		logf.FromContext(ctx).Info("A change is not taken back, no revision has what the clusters had before")
		decided.recheck = fleet.RefusedDelay
		return decided
	}
	decided.change = fleet.NewRevert(change, wave, turns, before.Revision, r.Clock.Now())
	return decided
}

func (r *Reconciler) presentRevision(hubObject fleet.Object) (string, error) {
	_, template, err := r.specsOf(hubObject)
	if err != nil {
		return "", err
	}
	return fleet.RevisionName(r.Kind, hubObject, template)
}

// takeBack returns what the copy should have while a change is taken back. want is its spec by the hub object. If no
// revision has it, it is unknown, and the copy stays as it is.
func (p *copyPass) takeBack(ctx context.Context, change *flotillav1.Change, want fleet.Effective, found fleet.Object) (fleet.Effective, error) {
	var seen *fleet.Copy
	if found != nil && fleet.IsOurs(found, p.Options.HubID) {
		seen = fleet.CopyOf(p.Kind, found)
	}
	back := fleet.TakeBack(change, want, seen)
	if !back.Kept {
		return want, nil
	}
	kept, err := p.kept.of(ctx, p.Reconciler, p.hubObject, change)
	if err != nil {
		return fleet.Effective{}, err
	}
	source := kept.Find(back.Want.Hash, p.name, p.info.Labels)
	if seen == nil {
		source = kept.Named(change.Revert.Revision)
	}
	if source == nil {
		p.unknown = true
		return back.Want, nil
	}
	p.revision = source.String()
	if p.template, err = source.Specs.Template(); err != nil {
		return fleet.Effective{}, err
	}
	return source.Specs.For(p.name, p.info.Labels)
}

// keptSpecs caches the specs of the kept revisions of the hub objects whose changes are taken back. The zero value is empty.
type keptSpecs struct {
	mu    sync.Mutex
	known map[fleet.ObjectKey]knownSpecs
}

type knownSpecs struct {
	uid types.UID
	// since is when the change was taken back, and until when the revisions are read again.
	since metav1.MicroTime
	until time.Time
	specs fleet.Kept
}

// keptFor is how long revisions are not read again. What a change was taken back to does not change.
const keptFor = 10 * time.Minute

// of returns the specs of the kept revisions of a hub object whose change is taken back.
func (k *keptSpecs) of(ctx context.Context, r *Reconciler, hubObject fleet.Object, change *flotillav1.Change) (fleet.Kept, error) {
	key, now := r.key(hubObject), r.Clock.Now()
	k.mu.Lock()
	known := k.known[key]
	k.mu.Unlock()
	if known.uid == hubObject.GetUID() && known.since.Equal(&change.Revert.Since) && now.Before(known.until) {
		return known.specs, nil
	}
	// Copy passes that read at the same time read the same.
	specs, err, _ := r.asking.Do("revisions "+string(hubObject.GetUID()), func() (any, error) { return k.read(ctx, r, hubObject) })
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[fleet.ObjectKey]knownSpecs{}
	}
	k.known[key] = knownSpecs{uid: hubObject.GetUID(), since: change.Revert.Since, until: now.Add(keptFor), specs: specs.(fleet.Kept)}
	return specs.(fleet.Kept), nil
}

// read returns the specs of the kept revisions of a hub object, the newest first.
func (k *keptSpecs) read(ctx context.Context, r *Reconciler, hubObject fleet.Object) (fleet.Kept, error) {
	var list appsv1.ControllerRevisionList
	err := r.HubReader.List(ctx, &list, client.InNamespace(fleet.RevisionNamespace(hubObject)), client.MatchingLabels(fleet.RevisionLabels(hubObject)))
	if err != nil {
		return nil, fmt.Errorf("listing the revisions of %s %q: %w", r.Kind.Name, client.ObjectKeyFromObject(hubObject), err)
	}
	fleet.SortRevisions(list.Items)
	var kept fleet.Kept
	for i := range list.Items {
		revision := &list.Items[i]
		specs, err := fleet.SpecsOfRevision(r.Kind, hubObject, revision)
		if err != nil {
			// Somebody has edited it.
			logf.FromContext(ctx).Error(err, "Reading a revision")
			continue
		}
		kept = append(kept, fleet.KeptSpecs{Revision: revision.Name, Number: revision.Revision, Specs: specs})
	}
	return kept, nil
}

func (k *keptSpecs) forget(key fleet.ObjectKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, key)
}

// sayReverted records that a change is taken back, or tried again.
func (r *Reconciler) sayReverted(before, after fleet.Object) {
	was, is := before.GetFleetStatus().Change, after.GetFleetStatus().Change
	if is == nil || is.Revert == nil || fleet.SameChange(was, is) {
		return
	}
	regarding := &corev1.ObjectReference{
		APIVersion: flotillav1.GroupVersion.String(), Kind: r.Kind.Name, Namespace: after.GetNamespace(), Name: after.GetName(), UID: after.GetUID(),
	}
	if is.Revert.Retried {
		r.Events.Eventf(regarding, nil, corev1.EventTypeNormal, eventRetried, actionPlace, "The change that was taken back is tried again")
		return
	}
	again := fleet.Command("rollout retry", r.Kind.Name, client.ObjectKeyFromObject(after))
	r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, flotillav1.ReasonRolloutReverted, actionPlace,
		"%s; the clusters that took the change get back what they had. Correct the spec, or try it again with: %s", is.Revert.Message, again)
}
