// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// eventController is the reporting controller of all events.
	eventController = "flotilla"
	// eventsPerSecond and eventBurst limit the events of one member.
	eventsPerSecond, eventBurst = 1, 50
	// suppressedDelay is from the first event over the limit to the one that counts them.
	suppressedDelay = time.Minute
	// noteLimit and wordLimit are the API server's, in bytes; the former with room to spare.
	noteLimit, wordLimit = 1000, 128
	// hubReadTimeout is for reads of a cache, which wait only while it is not synced.
	hubReadTimeout = time.Second

	reasonEventsSuppressed = "EventsSuppressed"
	actionSuppress         = "Suppress"
)

// EventRecorders gives event recorders by name of the reporting controller; a manager is one.
type EventRecorders interface {
	GetEventRecorder(name string) events.EventRecorder
}

// RecorderOptions are what a Recorder needs.
type RecorderOptions struct {
	// HubID tells our copies from other objects.
	HubID string
	// Scheme knows all kinds that events are about, because objects from caches do not say theirs.
	Scheme *runtime.Scheme
	// Members are where the events of members go.
	Members Directory
	// Hub is where the hub's events go.
	Hub EventRecorders
	// HubReader reads the hub's cache for the UIDs by which kubectl describe finds events. It must know the kinds of
	// copies and MemberClusters.
	HubReader client.Reader
	// Clock measures the limit.
	Clock clock.WithDelayedExecution
}

// NewRecorder makes a Recorder. Call it before the pool starts.
func NewRecorder(options RecorderOptions) Recorder {
	r := &recorder{
		RecorderOptions: options,
		hub:             options.Hub.GetEventRecorder(eventController),
		budgets:         budgets[multicluster.ClusterName]{clock: options.Clock, of: map[multicluster.ClusterName]*budget{}},
	}
	r.budgets.tell = r.tellSuppressed
	options.Members.Subscribe(r.forgetIfGone)
	return r
}

// recorder is the Recorder. It passes prepared references on: those that client-go makes carry the resourceVersion, and
// events that differ in it do not fold into a series.
type recorder struct {
	RecorderOptions

	hub events.EventRecorder

	// budgets of the members that have had events.
	budgets budgets[multicluster.ClusterName]
}

// Record implements Recorder.
func (r *recorder) Record(clusterName multicluster.ClusterName, regarding client.Object, event Event) {
	snapshot, registered := r.Members.Snapshot(clusterName)
	if !registered {
		countDroppedEvent(r.Members, clusterName, dropUnregistered)
		return
	}
	reference, err := r.reference(regarding)
	if err != nil {
		countDroppedEvent(r.Members, clusterName, dropUnknownKind)
		return
	}
	if !r.budgets.allow(clusterName) {
		countDroppedEvent(r.Members, clusterName, dropSuppressed)
		return
	}
	// A nil pointer in an interface would not be nil.
	var related runtime.Object
	if event.Related != nil {
		if ref, err := r.reference(event.Related); err == nil {
			related = ref
		}
	}
	event = clean(event)
	// Recorders of a cluster that is away would keep a goroutine with each event for minutes.
	if snapshot.Writable() {
		if member, err := r.Members.Member(clusterName); err == nil {
			member.GetEventRecorder(eventController).Eventf(reference, related, event.Type, event.Reason, event.Action, "%s", text.Cut(event.Note, noteLimit))
		}
	}
	if related == nil {
		// Events that agree in regarding and related fold into one and keep the first note: members would hide each other.
		related = reference
	}
	onHub := r.hubReference(clusterName, reference, regarding.GetAnnotations())
	r.hub.Eventf(onHub, related, event.Type, event.Reason, event.Action, "%s", hubNote(clusterName, event.Note))
}

// reference names an object of a cluster, without its resourceVersion.
func (r *recorder) reference(obj client.Object) (*corev1.ObjectReference, error) {
	gvk, err := apiutil.GVKForObject(obj, r.Scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}, nil
}

// hubReference names the object on the hub that an event of a member is about: the object that a copy comes from, else
// the MemberCluster.
func (r *recorder) hubReference(clusterName multicluster.ClusterName, reference *corev1.ObjectReference, annotations map[string]string) *corev1.ObjectReference {
	if source, ok := r.placedFrom(reference, annotations); ok {
		return source
	}
	return r.memberReference(clusterName)
}

// placedFrom names the hub object that a copy comes from; false when the object is not a copy of ours. Annotations are
// the member's word, so that they choose only among hub objects of our kinds.
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

// memberReference names the MemberCluster of a member.
func (r *recorder) memberReference(clusterName multicluster.ClusterName) *corev1.ObjectReference {
	reference := &corev1.ObjectReference{APIVersion: flotillav1.GroupVersion.String(), Kind: "MemberCluster", Name: string(clusterName)}
	reference.UID = r.hubUID(reference)
	return reference
}

// hubUID returns the UID of an object on the hub; empty when the cache does not have it.
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

// hubNote is a note as the hub shows it.
func hubNote(clusterName multicluster.ClusterName, note string) string {
	return text.Cut(string(clusterName)+": "+note, noteLimit)
}

// clean makes an event that the API server accepts: it drops those with a wrong word without telling anybody.
func clean(event Event) Event {
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
	// Notes may quote what a member says.
	event.Note = text.Line(event.Note)
	return event
}
