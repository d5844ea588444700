// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Request names an object in a member, or on the hub when ClusterName is empty.
type Request = mcreconcile.Request

// State is where a member is in its life.
type State string

// The states of a member.
const (
	// StatePending waits for a slot to connect.
	StatePending State = "Pending"
	// StateConnecting dials and runs the preflight.
	StateConnecting State = "Connecting"
	// StateSyncing fills the caches.
	StateSyncing State = "Syncing"
	// StateReady is engaged and answers.
	StateReady State = "Ready"
	// StateUnreachable does not answer. When it was engaged before, reads return what was last known and writes fail at once.
	StateUnreachable State = "Unreachable"
	// StateAuthFailed refuses the credential.
	StateAuthFailed State = "AuthFailed"
	// StateInvalid has a registration that is refused.
	StateInvalid State = "Invalid"
	// StateIncompatible lacks CRDs or rights, is too old, or belongs to another hub.
	StateIncompatible State = "Incompatible"
	// StateGone is offboarded.
	StateGone State = "Gone"
)

// states lists them all.
var states = []State{
	StatePending, StateConnecting, StateSyncing, StateReady, StateUnreachable, StateAuthFailed, StateInvalid, StateIncompatible, StateGone,
}

// Snapshot is what the pool knows about a member at one moment. It is a value: nothing in it changes afterwards.
type Snapshot struct {
	Name  multicluster.ClusterName
	State State
	// Reason and Message say why the member is not Ready; the reason is one of MemberCluster's.
	Reason, Message string
	// Since is when State last changed; it survives restarts through the MemberCluster.
	Since time.Time
	// UID of the member's kube-system namespace; empty before the first preflight.
	UID types.UID
	// Replaced says that this process has found another cluster behind the name than was recorded, as the registration asked.
	Replaced bool
	// Incarnation differs whenever the caches were built anew.
	Incarnation uint64
	// Labels are those of the MemberCluster; placement selects on them.
	Labels map[string]string
	// Accepted says that the registration has been accepted, now or before: refused ones are not chosen by selectors.
	Accepted bool
	// Decided says that the member has been Ready or found away at least once in this process.
	Decided bool
	// Paused forbids writes to the member; Draining asks for its copies to be removed.
	Paused, Draining bool
	// Frozen says that the freeze switch forbids writes to the member.
	Frozen bool
	// Namespaces lists the namespaces of the hub that may place in the member, with "" for cluster-scoped objects; nil is all.
	Namespaces []string
	// Kinds is the list of our kinds that the member takes part in; empty means all.
	Kinds []string
	// Off says, by kind of ours, why the manager can do nothing about it in the member now, with a reason of MemberCluster's:
	// rights are missing, or what it consists of cannot be read. What is known of the kind is from before.
	Off map[string]string
	// Lacks lists, by kind, the fields of spec that the member's schema lacks. Definitions differs whenever one of the
	// member's CustomResourceDefinitions has changed.
	Lacks       map[string][]MissingField
	Definitions string
	// LacksStatus lists, by kind, the paths of the fields of status that the member's schema lacks.
	LacksStatus map[string][]string
}

// Visible reports whether the member's caches show the member as it is now.
func (s Snapshot) Visible() bool { return s.State == StateReady }

// Writable reports whether placement and the reconcilers may write to the member now.
func (s Snapshot) Writable() bool { return s.State == StateReady && !s.Paused && !s.Frozen }

// TakesPart reports whether the member is to have objects of a kind. Placement chooses by it.
func (s Snapshot) TakesPart(kind string) bool { return takesPart(s.Kinds, kind) }

// takesPart reads the list of kinds of a registration.
func takesPart(kinds []string, kind string) bool {
	return len(kinds) == 0 || slices.Contains(kinds, kind)
}

// Serves reports whether the manager can work with a kind in the member: the member takes part in it, and it is not off.
func (s Snapshot) Serves(kind string) bool { return s.TakesPart(kind) && s.Off[kind] == "" }

// Directory tells about members. It never does I/O and never blocks.
type Directory interface {
	// Member returns the cluster of an engaged member, also while it is unreachable (its caches are then stale).
	// It returns an error that wraps multicluster.ErrClusterNotFound for a name that is not registered and
	// a *NotReadyError for one that was never engaged.
	Member(name multicluster.ClusterName) (cluster.Cluster, error)
	// Snapshot returns what is known about a member; false when the name is not registered.
	Snapshot(name multicluster.ClusterName) (Snapshot, bool)
	// Snapshots returns all members, sorted by name.
	Snapshots() []Snapshot
	// Subscribe calls fn, from the goroutine of the member concerned, after each visible change of a member's
	// snapshot, its removal included. fn must not block. Call it before the pool starts.
	Subscribe(fn func(multicluster.ClusterName))
}

// Event is something that happened to an object of a member.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason and Action are UpperCamel words, at most 128 characters.
	Reason, Action string
	// Note is one sentence for people, at most 1,000 characters.
	Note string
	// Related is the Pod, Node or Service concerned, or nil.
	Related client.Object
}

// Recorder records events on the member's object in the member and, with the cluster's name first in the note, on
// the hub: regarding the hub object when the member's object is a copy, else regarding the MemberCluster.
// It never blocks and never fails; what cannot be told is dropped and counted.
type Recorder interface {
	Record(clusterName multicluster.ClusterName, regarding client.Object, event Event)
}

// NotReadyError says that a registered member is not engaged. It is not multicluster.ErrClusterNotFound: work for such
// a member is taken up again when it becomes ready.
type NotReadyError struct{ Snapshot Snapshot }

// Error implements error.
func (e *NotReadyError) Error() string {
	return "cluster \"" + string(e.Snapshot.Name) + "\" is not ready: " + string(e.Snapshot.State) + ": " + e.Snapshot.Reason
}
