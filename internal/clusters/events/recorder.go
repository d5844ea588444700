// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// eventController is the reporting controller of all events.
	eventController = "flotilla"
	// eventsPerSecond and eventBurst limit the events of one member.
	eventsPerSecond, eventBurst = 1, 50
	// suppressedDelay is the delay between the first event over the limit and the event that reports the number.
	suppressedDelay = time.Minute
	// NoteLimit and wordLimit are the limits of the API server in bytes, the former with a margin.
	NoteLimit, wordLimit = 1000, 128
	// hubReadTimeout limits cache reads, which block only while the cache is not synced.
	hubReadTimeout = time.Second

	reasonEventsSuppressed = "EventsSuppressed"
	actionSuppress         = "Suppress"
)

// Recorders provides event recorders by name of the reporting controller. A manager implements it.
type Recorders interface {
	GetEventRecorder(name string) events.EventRecorder
}

// Options configure a Recorder.
type Options struct {
	// HubID identifies our copies.
	HubID string
	// Scheme must know all kinds that events regard, because cached objects have no TypeMeta.
	Scheme *runtime.Scheme
	// Members provides the members and their recorders.
	Members clusters.Directory
	// Hub provides the hub's recorder.
	Hub Recorders
	// HubReader reads UIDs from the hub's cache; kubectl describe finds events by them. Its scheme must include copies
	// and MemberClusters.
	HubReader client.Reader
	// Clock is used for the limits.
	Clock clock.WithDelayedExecution
}

// NewRecorder returns a Recorder. It must be called before the pool starts.
func NewRecorder(options Options) clusters.Recorder {
	r := &recorder{
		Options: options,
		hub:     options.Hub.GetEventRecorder(eventController),
		budgets: budgets[multicluster.ClusterName]{clock: options.Clock, of: map[multicluster.ClusterName]*budget{}},
	}
	r.budgets.report = r.reportSuppressed
	options.Members.Subscribe(r.forgetIfGone)
	return r
}

// recorder implements clusters.Recorder. It passes on object references, because those that client-go builds include the
// resourceVersion, and events that differ in it are not aggregated to a series.
type recorder struct {
	Options

	hub events.EventRecorder

	// budgets limits the events per member.
	budgets budgets[multicluster.ClusterName]
}

// Record implements Recorder.
func (r *recorder) Record(clusterName multicluster.ClusterName, regarding client.Object, event clusters.Event) {
	snapshot, registered := r.Members.Snapshot(clusterName)
	if !registered {
		metrics.CountDroppedEvent(r.Members, clusterName, metrics.DropUnregistered)
		return
	}
	reference, err := r.reference(regarding)
	if err != nil {
		metrics.CountDroppedEvent(r.Members, clusterName, metrics.DropUnknownKind)
		return
	}
	if !r.budgets.allow(clusterName) {
		metrics.CountDroppedEvent(r.Members, clusterName, metrics.DropSuppressed)
		return
	}
	// A nil pointer in a non-nil interface would not be nil.
	var related runtime.Object
	if event.Related != nil {
		if ref, err := r.reference(event.Related); err == nil {
			related = ref
		}
	}
	event = clean(event)
	// The recorder of an unavailable cluster would keep a goroutine per event for minutes.
	if snapshot.Writable() {
		if member, err := r.Members.Member(clusterName); err == nil {
			member.GetEventRecorder(eventController).Eventf(reference, related, event.Type, event.Reason, event.Action, "%s", text.Cut(event.Note, NoteLimit))
		}
	}
	if related == nil {
		// Events with equal regarding and related are aggregated and keep the first note: one member would hide another.
		related = reference
	}
	onHub := r.hubReference(clusterName, reference, regarding.GetAnnotations())
	r.hub.Eventf(onHub, related, event.Type, event.Reason, event.Action, "%s", hubNote(clusterName, event.Note))
}

// reference returns a reference to an object without its resourceVersion.
func (r *recorder) reference(obj client.Object) (*corev1.ObjectReference, error) {
	gvk, err := apiutil.GVKForObject(obj, r.Scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}, nil
}

// hubReference returns a reference to the hub object that an event of a member regards: the source of a copy, else the
// MemberCluster.
func (r *recorder) hubReference(clusterName multicluster.ClusterName, reference *corev1.ObjectReference, annotations map[string]string) *corev1.ObjectReference {
	if source, ok := r.placedFrom(reference, annotations); ok {
		return source
	}
	return r.memberReference(clusterName)
}

// placedFrom returns a reference to the hub object of a copy, or false if the object is not one of our copies. The member
// controls the annotations, so they can select hub objects of our kinds only.
func (r *recorder) placedFrom(reference *corev1.ObjectReference, annotations map[string]string) (*corev1.ObjectReference, bool) {
	namespace, name, ok := strings.Cut(annotations[flotillav1.AnnotationPlacedFrom], "/")
	if !ok || name == "" || r.HubID == "" || annotations[flotillav1.AnnotationHub] != r.HubID ||
		reference.GroupVersionKind().Group != flotillav1.GroupVersion.Group || (namespace == "") != (reference.Namespace == "") {
		return nil, false
	}
	source := &corev1.ObjectReference{APIVersion: reference.APIVersion, Kind: reference.Kind, Namespace: namespace, Name: name}
	if source.UID = r.hubUID(source); source.UID == "" {
		source.UID = types.UID(annotations[flotillav1.AnnotationHubUID])
	}
	return source, true
}

// memberReference returns a reference to the MemberCluster of a member.
func (r *recorder) memberReference(clusterName multicluster.ClusterName) *corev1.ObjectReference {
	reference := &corev1.ObjectReference{APIVersion: flotillav1.GroupVersion.String(), Kind: flotillav1.KindMemberCluster, Name: string(clusterName)}
	reference.UID = r.hubUID(reference)
	return reference
}

// hubUID returns the UID of a hub object, or an empty one if it is not cached.
func (r *recorder) hubUID(reference *corev1.ObjectReference) types.UID {
	empty, err := r.Scheme.New(reference.GroupVersionKind())
	if err != nil {
		return ""
	}
	obj, ok := empty.(client.Object)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), hubReadTimeout)
	defer cancel()
	if err := r.HubReader.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, obj); err != nil {
		return ""
	}
	return obj.GetUID()
}

// hubNote returns a note for the hub.
func hubNote(clusterName multicluster.ClusterName, note string) string {
	return text.Cut(string(clusterName)+": "+note, NoteLimit)
}

// clean makes an event valid: API servers reject events with invalid words, which the recorder does not report.
func clean(event clusters.Event) clusters.Event {
	if event.Type != corev1.EventTypeWarning {
		event.Type = corev1.EventTypeNormal
	}
	if event.Reason == "" {
		event.Reason = "Unknown"
	}
	if event.Action == "" {
		event.Action = event.Reason
	}
	event.Reason, event.Action = text.Cut(event.Reason, wordLimit), text.Cut(event.Action, wordLimit)
	// Notes may quote the member.
	event.Note = text.Line(event.Note)
	return event
}
