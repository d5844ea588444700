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

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Request names an object in a member, or on the hub when ClusterName is empty.
type Request = mcreconcile.Request

// State is the phase of a member's lifecycle.
type State string

// The states of a member.
const (
	// StatePending means that the member waits for a slot to connect.
	StatePending State = "Pending"
	// StateConnecting means that the member is being dialed and checked by the preflight.
	StateConnecting State = "Connecting"
	// StateSyncing means that the caches are being filled, or catch up after an outage.
	StateSyncing State = "Syncing"
	// StateReady means that the member is engaged and answers.
	StateReady State = "Ready"
	// StateUnreachable means that the member does not answer. If it was engaged before, reads return the last known state
	// and writes fail immediately.
	StateUnreachable State = "Unreachable"
	// StateAuthFailed means that the member rejects the credential.
	StateAuthFailed State = "AuthFailed"
	// StateInvalid means that the registration is refused.
	StateInvalid State = "Invalid"
	// StateIncompatible means that the member lacks CRDs or permissions, is too old, or belongs to another hub.
	StateIncompatible State = "Incompatible"
	// StateGone means that the member has been offboarded.
	StateGone State = "Gone"
)

// States lists all states.
var States = []State{
	StatePending, StateConnecting, StateSyncing, StateReady, StateUnreachable, StateAuthFailed, StateInvalid, StateIncompatible, StateGone,
}

// Snapshot describes a member at one moment. It is immutable.
type Snapshot struct {
	Name  multicluster.ClusterName
	State State
	// Reason and Message explain why the member is not Ready. Reason is one of those of MemberCluster.
	Reason, Message string
	// Since is when State last changed. It is restored from the MemberCluster after a restart.
	Since time.Time
	// UID is the UID of the member's kube-system namespace. It is empty before the first preflight.
	UID types.UID
	// Replaced is true if this process found a different cluster behind the name than the recorded one, and the
	// registration allowed that.
	Replaced bool
	// Incarnation changes whenever the caches are rebuilt.
	Incarnation uint64
	// Labels are the labels of the MemberCluster. Placement selects by them.
	Labels map[string]string
	// Accepted is true once the registration has been accepted. Selectors do not match members that never were.
	Accepted bool
	// Decided is true once this process has found the member Ready, unreachable or refused.
	Decided bool
	// Paused forbids writes to the member. Draining requests the removal of its copies.
	Paused, Draining bool
	// Frozen is true while the freeze switch forbids writes to the member.
	Frozen bool
	// Namespaces lists the hub namespaces that may place in the member; "" stands for cluster-scoped objects. Nil allows
	// all.
	Namespaces []string
	// Kinds lists the Flotilla kinds that the member takes part in. Empty means all.
	Kinds []string
	// Off maps each Flotilla kind that the manager cannot work with in the member to the reason, one of MemberCluster's:
	// permissions are missing, or objects cannot be read. What is known about such a kind is outdated.
	Off map[string]string
	// Lacks lists, by kind, the fields of spec that the member's schema lacks. Definitions changes whenever one of the
	// member's CustomResourceDefinitions changes.
	Lacks       map[string][]MissingField
	Definitions string
	// LacksStatus lists, by kind, the paths of the status fields that the member's schema lacks.
	LacksStatus map[string][]string
}

// Visible reports whether the member's caches are current.
func (s Snapshot) Visible() bool { return s.State == StateReady }

// Writable reports whether placement and the reconcilers may write to the member.
func (s Snapshot) Writable() bool { return s.State == StateReady && !s.Paused && !s.Frozen }

// TakesPart reports whether the member takes part in a kind. Placement selects by it.
func (s Snapshot) TakesPart(kind string) bool { return TakesPart(s.Kinds, kind) }

// OurKinds returns the Flotilla kinds that a member may take part in.
func OurKinds() []string { return []string{flotillav1.KindNodePool, flotillav1.KindRedis} }

// TakesPart reports whether the list of kinds of a registration contains a kind. An empty list contains all.
func TakesPart(kinds []string, kind string) bool {
	return len(kinds) == 0 || slices.Contains(kinds, kind)
}

// Serves reports whether the manager can work with a kind in the member: the member takes part in it, and it is not off.
func (s Snapshot) Serves(kind string) bool { return s.TakesPart(kind) && s.Off[kind] == "" }

// Directory provides the known members. It does no I/O and never blocks.
type Directory interface {
	// Member returns the cluster of an engaged member, even while it is unreachable (its caches are stale then). It
	// returns an error that wraps multicluster.ErrClusterNotFound for a name that is not registered, and a *NotReadyError
	// for a member that was never engaged.
	Member(name multicluster.ClusterName) (cluster.Cluster, error)
	// Snapshot returns the snapshot of a member, or false if the name is not registered.
	Snapshot(name multicluster.ClusterName) (Snapshot, bool)
	// Snapshots returns the snapshots of all members, sorted by name.
	Snapshots() []Snapshot
	// Subscribe registers fn, which is called on the goroutine of the member after each visible change of its snapshot
	// and after its removal. fn must not block. Subscribe must be called before the pool starts.
	Subscribe(fn func(multicluster.ClusterName))
}

// Event describes an occurrence on an object of a member.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason and Action are UpperCamelCase words of at most 128 characters.
	Reason, Action string
	// Note is one human-readable sentence of at most 1,000 characters.
	Note string
	// Related is the Pod, Node or Service concerned, or nil.
	Related client.Object
}

// Recorder records events about the member's object in the member and, with the cluster's name prepended to the note, on
// the hub: regarding the hub object if the member's object is a copy, else regarding the MemberCluster. It never blocks
// and never fails; events that cannot be recorded are dropped and counted.
type Recorder interface {
	Record(clusterName multicluster.ClusterName, regarding client.Object, event Event)
}

// NotReadyError is returned for a registered member that is not engaged. It does not wrap
// multicluster.ErrClusterNotFound: work for the member resumes when it becomes ready.
type NotReadyError struct{ Snapshot Snapshot }

// Error implements error.
func (e *NotReadyError) Error() string {
	return "cluster \"" + string(e.Snapshot.Name) + "\" is not ready: " + string(e.Snapshot.State) + ": " + e.Snapshot.Reason
}

// MissingField is a field of our schema that a member's schema lacks.
type MissingField struct {
	// Path is the path of the field, such as spec.taints[].effect; "*" stands for the keys of a map.
	Path string
	// Default is the default of our schema as canonical JSON. It is empty if there is none.
	Default string
}
