// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodePoolSpec is the desired state of the nodes of a pool. Rules that involve several fields are only enforced when
// one of these fields changes, so that an object that is older than a rule can still be updated.
//
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && has(self.labels) == has(oldSelf.value().labels) && (!has(self.labels) || self.labels == oldSelf.value().labels) && has(self.nodeSelector) == has(oldSelf.value().nodeSelector) && (!has(self.nodeSelector) || self.nodeSelector == oldSelf.value().nodeSelector) || !has(self.labels) || !has(self.nodeSelector) || ((!has(self.nodeSelector.matchLabels) || self.nodeSelector.matchLabels.all(k, !(k in self.labels))) && (!has(self.nodeSelector.matchExpressions) || self.nodeSelector.matchExpressions.all(e, !(e.key in self.labels))))",message="labels must not set keys that nodeSelector selects on: nodes would join or leave by the pool's own labels",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && has(self.handler) == has(oldSelf.value().handler) && (!has(self.handler) || self.handler == oldSelf.value().handler) && has(self.nodeSelector) == has(oldSelf.value().nodeSelector) && (!has(self.nodeSelector) || self.nodeSelector == oldSelf.value().nodeSelector) || !has(self.handler) || !has(self.nodeSelector) || !has(self.nodeSelector.matchExpressions) || size(self.nodeSelector.matchExpressions) == 0",message="handler needs a nodeSelector with matchLabels only: a RuntimeClass cannot express matchExpressions",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && has(self.taints) == has(oldSelf.value().taints) && (!has(self.taints) || self.taints == oldSelf.value().taints) && has(self.allowControlPlane) == has(oldSelf.value().allowControlPlane) && (!has(self.allowControlPlane) || self.allowControlPlane == oldSelf.value().allowControlPlane) || !has(self.taints) || (has(self.allowControlPlane) && self.allowControlPlane) || self.taints.all(t, !(t.key in ['node-role.kubernetes.io/control-plane', 'node-role.kubernetes.io/master']))",message="control-plane taints need allowControlPlane: true",optionalOldSelf=true
type NodePoolSpec struct {
	// placement defines, on the hub, which members get a copy. It is ignored in a member.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// nodeSelector selects the nodes of the pool. Absent: those with label node-role.kubernetes.io/<pool>.
	// An empty selector is refused.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty nodeSelector is refused: leave it out to use the label node-role.kubernetes.io/<pool>"
	NodeSelector *NodeSelector `json:"nodeSelector,omitempty"`

	// labels of every node of the pool.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a key needs a prefix and a name, as in example.com/team"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([-a-z0-9.]+[.])?(kubernetes|k8s)[.]io/') || k.startsWith('node-role.kubernetes.io/') || k.matches('^([-a-z0-9.]+[.])?node-restriction[.]kubernetes[.]io/'))",message="labels under kubernetes.io and k8s.io belong to the system, except node-role.kubernetes.io and node-restriction.kubernetes.io"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([-a-z0-9.]+[.])?(karpenter[.]sh|cluster[.]x-k8s[.]io|flotilla[.]dev)/'))",message="this label prefix belongs to another controller"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['node-role.kubernetes.io/control-plane', 'node-role.kubernetes.io/master']))",message="control-plane role labels cannot be set by a pool"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// annotations of every node of the pool.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a key needs a prefix and a name, as in example.com/team"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([-a-z0-9.]+[.])?(kubernetes[.]io|k8s[.]io|karpenter[.]sh|cluster[.]x-k8s[.]io|flotilla[.]dev)/'))",message="annotations under this prefix belong to the system or to another controller"
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`

	// taints of every node of the pool.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	Taints []NodePoolTaint `json:"taints,omitempty"`

	// handler of the RuntimeClass node-pool-<pool>, which selects the nodes of the pool and tolerates its taints, except
	// those with propagation OnInitialization. Absent: there is no RuntimeClass. Without nodeSelector, the role label must
	// have the same value on all nodes of the pool.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="handler is a DNS label, as in runc or gvisor"
	Handler string `json:"handler,omitempty"`

	// weight defines the precedence of pools that share a node and set the same key: the higher weight wins, then the
	// name. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`

	// conflictPolicy defines what happens if others wrote another value on a node. Preserve (default) keeps that value and
	// reports a conflict; Override replaces it and restores it later. A change of a value that the pool wrote is always
	// reverted.
	// +optional
	// +kubebuilder:validation:Enum=Preserve;Override
	// +kubebuilder:default=Preserve
	ConflictPolicy string `json:"conflictPolicy,omitempty"`

	// deletionPolicy defines what happens to the nodes when the pool is deleted. Clean (default) removes the pool's keys
	// and restores the values of others; Orphan keeps the nodes unchanged.
	// +optional
	// +kubebuilder:validation:Enum=Clean;Orphan
	// +kubebuilder:default=Clean
	DeletionPolicy string `json:"deletionPolicy,omitempty"`

	// allowControlPlane includes control-plane nodes in the pool.
	// +optional
	AllowControlPlane bool `json:"allowControlPlane,omitempty"`

	// rollout limits how fast NoExecute taints spread.
	// +optional
	Rollout *NodePoolRollout `json:"rollout,omitempty"`

	// reporting enables additional fields of the status.
	// +optional
	Reporting *NodePoolReporting `json:"reporting,omitempty"`

	// paused stops all changes of nodes and of the RuntimeClass. Status is still updated. It does not delay the deletion
	// of the pool.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// dryRun writes nothing to nodes and reports in status.plan what would be written. It does not delay the deletion of
	// the pool.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// LabelValue is the value of a label: at most 63 letters, digits, '-', '_' and '.'.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="a label value consists of letters, digits, dashes, underscores and dots, and starts and ends with a letter or digit"
type LabelValue string

// AnnotationValue is the value of an annotation: at most 1024 characters.
//
// +kubebuilder:validation:MaxLength=1024
type AnnotationValue string

// NodeSelector selects nodes by their labels.
type NodeSelector struct {
	// matchLabels are labels that a node must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a key of nodeSelector is a label key, as in team or example.com/team"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are requirements that a node must satisfy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []NodeSelectorRequirement `json:"matchExpressions,omitempty"`
}

// NodeSelectorRequirement is one requirement on a label.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || size(self.values) == 0 : has(self.values) && size(self.values) > 0",message="In and NotIn need values; Exists and DoesNotExist take none"
type NodeSelectorRequirement struct {
	// key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.indexOf('/') <= 253 && self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="a key of nodeSelector is a label key, as in team or example.com/team"
	Key string `json:"key"`
	// operator of the requirement.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// values for In and NotIn.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.all(v, v.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="a label value consists of letters, digits, dashes, underscores and dots, and starts and ends with a letter or digit"
	Values []string `json:"values,omitempty"`
}

// NodePoolTaint is a taint of the nodes of a pool.
type NodePoolTaint struct {
	// key of the taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="a key needs a prefix and a name, as in example.com/team"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([-a-z0-9.]+[.])?(node[.]kubernetes[.]io|node[.]cloudprovider[.]kubernetes[.]io|readiness[.]k8s[.]io|karpenter[.]sh|cluster[.]x-k8s[.]io|flotilla[.]dev)/')",message="this taint prefix belongs to the system or to another controller"
	Key string `json:"key"`
	// value of the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="the value of a taint consists of letters, digits, dashes, underscores and dots, and starts and ends with a letter or digit"
	Value string `json:"value,omitempty"`
	// effect of the taint.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
	// propagation defines when the taint is added. Always (default) keeps it on the nodes; OnInitialization adds it once,
	// when a node joins.
	// +optional
	// +kubebuilder:validation:Enum=Always;OnInitialization
	// +kubebuilder:default=Always
	Propagation string `json:"propagation,omitempty"`
}

// NodePoolRollout limits how fast NoExecute taints spread.
type NodePoolRollout struct {
	// maxUnavailable is the maximum number or percentage of nodes of the pool that are not ready while NoExecute taints
	// are added. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable is a number of nodes or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// minReadySeconds is how long a node that got a NoExecute taint counts as unavailable, so that evicted Pods can start
	// elsewhere before the next node gets one. A node that is younger than that does not wait for the others. 0 means that
	// nodes follow one another at once while they stay Ready. Default 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// defaultMinReady is the default of minReadySeconds. It is not in the schema, so that pools of a version without it keep
// the spec that they have.
const defaultMinReady = 60 * time.Second

// Pause returns for how long a node counts as unavailable after a NoExecute taint. Without a pause a pool would be emptied
// within seconds, because nodes stay Ready when their Pods are evicted. r may be nil.
func (r *NodePoolRollout) Pause() time.Duration {
	if r == nil || r.MinReadySeconds == nil {
		return defaultMinReady
	}
	return time.Duration(*r.MinReadySeconds) * time.Second
}

// Budget returns how many of the nodes of a pool may be unavailable at a time. Percentages are rounded up, as in other
// rollouts. r may be nil.
func (r *NodePoolRollout) Budget(nodes int) int {
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	budget, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, nodes, true)
	if err != nil {
		return 1
	}
	return budget
}

// NodePoolReporting enables additional fields of the status.
type NodePoolReporting struct {
	// requested enables status.requested and status.utilization. It costs one paged list of the running Pods of each
	// member per minute, independently of the number of pools.
	// +optional
	Requested bool `json:"requested,omitempty"`
}

// Values of the enums above.
const (
	NodeConflictPolicyPreserve       = "Preserve"
	NodeConflictPolicyOverride       = "Override"
	NodeDeletionPolicyClean          = "Clean"
	NodeDeletionPolicyOrphan         = "Orphan"
	TaintPropagationAlways           = "Always"
	TaintPropagationOnInitialization = "OnInitialization"
	// NodeRolePrefix is the prefix of the role label that makes a node a member of a pool without nodeSelector.
	NodeRolePrefix = "node-role.kubernetes.io/"
	// RuntimeClassPrefix is the prefix of the RuntimeClass of a pool.
	RuntimeClassPrefix = "node-pool-"
)

// NodePool gives a set of nodes the same labels, annotations and taints. On the hub it represents its copies in many
// members.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="flotilla.dev/crd-revision=7"
// +kubebuilder:resource:path=nodepools,scope=Cluster,categories=flotilla
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=integer,JSONPath=`.status.status`
// +kubebuilder:printcolumn:name="NodeCount",type=integer,JSONPath=`.status.nodeCount`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyNodes`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedNodes`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusterCounts.desired`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.clusterCounts.unknown`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.allocatable.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.allocatable.memory`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Conflicts",type=integer,JSONPath=`.status.conflictingNodes`,priority=1
// +kubebuilder:printcolumn:name="CPU%",type=integer,JSONPath=`.status.utilization.cpu`,priority=1
// +kubebuilder:printcolumn:name="Memory%",type=integer,JSONPath=`.status.utilization.memory`,priority=1
// +kubebuilder:printcolumn:name="Weight",type=integer,JSONPath=`.spec.weight`,priority=1
// +kubebuilder:printcolumn:name="Handler",type=string,JSONPath=`.spec.handler`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 53 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a NodePool is a DNS label of at most 53 characters: its role label and RuntimeClass are named after it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && has(self.spec.labels) == has(oldSelf.value().spec.labels) && (!has(self.spec.labels) || self.spec.labels == oldSelf.value().spec.labels) || !has(self.spec.labels) || !self.spec.labels.exists(k, k.startsWith('node-role.kubernetes.io/')) || (self.spec.labels.exists_one(k, k.startsWith('node-role.kubernetes.io/')) && ('node-role.kubernetes.io/' + self.metadata.name) in self.spec.labels)",message="a pool may set only its own node-role.kubernetes.io label",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && has(self.spec.labels) == has(oldSelf.value().spec.labels) && (!has(self.spec.labels) || self.spec.labels == oldSelf.value().spec.labels) && has(self.spec.nodeSelector) == has(oldSelf.value().spec.nodeSelector) && (!has(self.spec.nodeSelector) || self.spec.nodeSelector == oldSelf.value().spec.nodeSelector) || !has(self.spec.labels) || has(self.spec.nodeSelector) || !(('node-role.kubernetes.io/' + self.metadata.name) in self.spec.labels)",message="without nodeSelector the role label is what makes a node a member: a pool cannot set it",optionalOldSelf=true
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the nodes of the pool.
	// +optional
	// +kubebuilder:default={}
	Spec NodePoolSpec `json:"spec,omitzero"`
	// status is the observed state of the pool.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodePoolStatus `json:"status,omitzero"`
}

// NodePoolList is a list of NodePool.
//
// +kubebuilder:object:root=true
type NodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePool `json:"items"`
}

// GetPlacement returns spec.placement.
func (p *NodePool) GetPlacement() *Placement { return p.Spec.Placement }

// GetFleetStatus returns the part of the status that both kinds have in common.
func (p *NodePool) GetFleetStatus() *FleetStatus { return &p.Status.FleetStatus }

// GetConditions returns a pointer to the conditions.
func (p *NodePool) GetConditions() *[]metav1.Condition { return &p.Status.Conditions }
