// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RedisSpec is the desired state of a Redis.
//
// +kubebuilder:validation:XValidation:rule="!has(self.persistence) || !has(self.persistence.mode) || self.persistence.mode != 'None' || (has(self.storage) && has(self.storage.type) && self.storage.type == 'EmptyDir') || (has(self.persistence.acceptDataLoss) && self.persistence.acceptDataLoss)",message="persistence.mode None on a PersistentVolumeClaim loses the data at each restart: set persistence.acceptDataLoss: true, or storage.type: EmptyDir"
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || !has(self.memory.maxMemoryPercent) || (has(self.resources) && has(self.resources.limits) && 'memory' in self.resources.limits)",message="memory.maxMemoryPercent needs resources.limits.memory: set it, or give memory.maxMemory"
// +kubebuilder:validation:XValidation:rule="!has(self.replication) || !has(self.replication.minReplicasToWrite) || !has(self.replicas) || self.replicas == 0 || self.replication.minReplicasToWrite < self.replicas",message="replication.minReplicasToWrite must be less than replicas, or no write is ever taken: lower it, or ask for more replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.service) || !has(self.service.type) || self.service.type == 'ClusterIP' || !has(self.auth) || !has(self.auth.mode) || self.auth.mode == 'Password'",message="service.type other than ClusterIP opens a Redis without a password to everybody: set auth.mode: Password, or service.type: ClusterIP"
// +kubebuilder:validation:XValidation:rule="(has(self.persistence) && has(self.persistence.mode) ? self.persistence.mode : 'AOF') == (has(oldSelf.persistence) && has(oldSelf.persistence.mode) ? oldSelf.persistence.mode : 'AOF') || ((has(self.persistence) && has(self.persistence.mode) ? self.persistence.mode : 'AOF').startsWith('AOF') && (has(oldSelf.persistence) && has(oldSelf.persistence.mode) ? oldSelf.persistence.mode : 'AOF').startsWith('AOF')) || (has(self.storage) && has(self.storage.type) && self.storage.type == 'EmptyDir')",message="on a PersistentVolumeClaim persistence.mode can only change between AOF and AOFAndRDB: Redis would start without the data, or with data of an earlier time; create another Redis and move the data"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Sentinel') || (has(self.replicas) && (self.replicas == 0 || self.replicas >= 3))",message="mode Sentinel needs three Pods that vote: set replicas to 3 or more, or to 0 to stop"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.mode) && oldSelf.mode == 'Sentinel') || (has(self.mode) && self.mode == 'Sentinel')",message="mode cannot go back to Replication: create another Redis and move the data"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Sentinel') || !has(self.port) || self.port != 16379",message="port 16379 is the proxy's in mode Sentinel: choose another"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Sentinel') || ((has(self.port) ? self.port : 6379) == (has(oldSelf.port) ? oldSelf.port : 6379) && (has(self.auth) && has(self.auth.mode) ? self.auth.mode : 'Password') == (has(oldSelf.auth) && has(oldSelf.auth.mode) ? oldSelf.auth.mode : 'Password'))",message="port and auth.mode cannot change in mode Sentinel, nor together with the mode: all Pods would have to go together"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Sentinel') || !has(self.replication) || !has(self.replication.minReplicasToWrite) || !has(self.replicas) || self.replicas == 0 || self.replication.minReplicasToWrite <= self.replicas - 2",message="with this in mode Sentinel, one missing Pod stops all writes: lower replication.minReplicasToWrite to replicas-2 or less"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Sentinel') || !has(self.terminationGracePeriodSeconds) || self.terminationGracePeriodSeconds >= 60",message="handing over takes up to 40 s in mode Sentinel: set terminationGracePeriodSeconds to 60 or more"
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Sentinel') || !(has(self.sentinel) || has(self.proxy))",message="sentinel and proxy need mode Sentinel: set it, or remove them"
type RedisSpec struct {
	// placement defines, on the hub, which members get a copy. It is ignored in a member.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// mode defines how the Pods work together. In Replication, <name>-0 is the primary and the others replicate from it. In
	// Sentinel, three sentinels in the Pods vote on the primary, and proxies in the Pods lead clients to it: if it fails,
	// another takes over within seconds, without the hub and without the API server of the member. Sentinel needs 3
	// replicas or more, and cannot be changed back. It is experimental. Default Replication.
	// +optional
	// +kubebuilder:validation:Enum=Replication;Sentinel
	// +kubebuilder:default=Replication
	Mode string `json:"mode,omitempty"`

	// sentinel configures the sentinels of mode Sentinel.
	// +optional
	Sentinel *RedisSentinel `json:"sentinel,omitempty"`

	// proxy configures the proxies of mode Sentinel.
	// +optional
	Proxy *RedisProxy `json:"proxy,omitempty"`

	// replicas is the number of data Pods, including the primary. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Replicas *int32 `json:"replicas,omitempty"`

	// image is an official redis (7.0 or later) or valkey image, used unchanged.
	// +optional
	// +kubebuilder:default="redis:8.2"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// port is the port that Redis listens on. Default 6379. Changing it restarts all Pods together.
	// +optional
	// +kubebuilder:default=6379
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="!(self in [8081, 9121, 26379])",message="ports 8081, 9121 and 26379 are reserved: choose another, such as 6379"
	Port int32 `json:"port,omitempty"`

	// resources of the redis container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// storage configures the volumes for the data.
	// +optional
	// +kubebuilder:default={type: "PersistentVolumeClaim", size: "1Gi", retentionPolicy: "Retain"}
	Storage RedisStorage `json:"storage,omitzero"`

	// persistence defines what is written to storage.
	// +optional
	// +kubebuilder:default={mode: "AOF", appendFsync: "everysec"}
	Persistence RedisPersistence `json:"persistence,omitzero"`

	// replication defines when the primary refuses writes because too few replicas follow it.
	// +optional
	Replication RedisReplication `json:"replication,omitzero"`

	// memory limits the data set.
	// +optional
	Memory *RedisMemory `json:"memory,omitempty"`

	// config contains further redis.conf directives, at most 64. Directives that the operator owns are refused.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-z][a-z0-9-]{0,63}$'))",message="a directive is lower-case letters, digits and hyphens: correct its name"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['activedefrag','active-defrag-cycle-max','active-defrag-cycle-min','active-defrag-ignore-bytes','active-defrag-threshold-lower','active-defrag-threshold-upper','activerehashing','auto-aof-rewrite-min-size','auto-aof-rewrite-percentage','busy-reply-threshold','client-output-buffer-limit','client-query-buffer-limit','databases','dynamic-hz','hash-max-listpack-entries','hash-max-listpack-value','hll-sparse-max-bytes','hz','io-threads','io-threads-do-reads','jemalloc-bg-thread','latency-monitor-threshold','latency-tracking','lazyfree-lazy-eviction','lazyfree-lazy-expire','lazyfree-lazy-server-del','lazyfree-lazy-user-del','lazyfree-lazy-user-flush','lfu-decay-time','lfu-log-factor','list-compress-depth','list-max-listpack-size','loglevel','maxclients','maxmemory-clients','maxmemory-eviction-tenacity','maxmemory-samples','no-appendfsync-on-rewrite','notify-keyspace-events','proto-max-bulk-len','rdbchecksum','rdbcompression','rdb-save-incremental-fsync','aof-rewrite-incremental-fsync','aof-use-rdb-preamble','repl-backlog-size','repl-backlog-ttl','repl-diskless-sync','repl-diskless-sync-delay','repl-disable-tcp-nodelay','repl-timeout','set-max-intset-entries','set-max-listpack-entries','set-max-listpack-value','slowlog-log-slower-than','slowlog-max-len','stream-node-max-bytes','stream-node-max-entries','stop-writes-on-bgsave-error','tcp-backlog','tcp-keepalive','timeout','tracking-table-max-keys','zset-max-listpack-entries','zset-max-listpack-value'])",message="only tunables may be set here; persistence, memory, auth, replication and network directives have fields of their own or belong to the operator (see docs/api.md)"
	Config map[string]ConfigValue `json:"config,omitempty"`

	// auth defines how clients authenticate.
	// +optional
	// +kubebuilder:default={mode: "Password"}
	Auth RedisAuth `json:"auth,omitzero"`

	// nodeSelector restricts the nodes that Pods run on.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// podAntiAffinity spreads the Pods over nodes. Default Preferred.
	// +optional
	// +kubebuilder:validation:Enum=Preferred;Required;Disabled
	// +kubebuilder:default=Preferred
	PodAntiAffinity string `json:"podAntiAffinity,omitempty"`

	// affinity of the Pods, in addition to podAntiAffinity.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// topologySpreadConstraints of the Pods. A constraint without a labelSelector selects the Pods of this Redis.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// podMetadata is added to the Pods. A change replaces them.
	// +optional
	PodMetadata *RedisPodMetadata `json:"podMetadata,omitempty"`

	// service configures the Services for clients.
	// +optional
	// +kubebuilder:default={type: "ClusterIP"}
	Service RedisService `json:"service,omitzero"`

	// podDisruptionBudget allows drains to evict one Pod at a time.
	// +optional
	// +kubebuilder:default={enabled: true}
	PodDisruptionBudget RedisPodDisruptionBudget `json:"podDisruptionBudget,omitzero"`

	// updateStrategy defines how Pods are replaced.
	// +optional
	// +kubebuilder:default={primary: "Automatic"}
	UpdateStrategy RedisUpdateStrategy `json:"updateStrategy,omitzero"`

	// priorityClassName of the Pods.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// runtimeClassName of the Pods, for instance node-pool-<pool>.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// imagePullSecrets refer to Secrets in the namespace of the Redis.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// imagePullPolicy of the redis container. Default IfNotPresent.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +kubebuilder:default=IfNotPresent
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// terminationGracePeriodSeconds is the time that Redis has to flush its data when a Pod stops. Default 60.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=3600
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// paused stops all changes of the objects of this Redis, including repairs. Status is still updated.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ConfigValue is the value of a directive: 1 to 256 printable ASCII characters without quotes and backslashes.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:Pattern=`^[ !#-&(-\[\]-~]+$`
type ConfigValue string

// RedisStorage configures the volume for the data of each Pod.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || !has(oldSelf.type) || self.type == oldSelf.type",message="storage.type is immutable: create another Redis and move the data"
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storage.storageClassName is immutable: create another Redis and move the data"
// +kubebuilder:validation:XValidation:rule="!has(self.size) || quantity(string(self.size)).isGreaterThan(quantity('0'))",message="storage.size must be more than zero: give a size such as 1Gi"
type RedisStorage struct {
	// type of the volume. Data on EmptyDir is lost with the Pod.
	// +optional
	// +kubebuilder:validation:Enum=PersistentVolumeClaim;EmptyDir
	// +kubebuilder:default=PersistentVolumeClaim
	Type string `json:"type,omitempty"`

	// size of each volume. Default 1Gi. Volumes grow to this size and never shrink: a larger one keeps its size.
	// +optional
	// +kubebuilder:default="1Gi"
	Size resource.Quantity `json:"size,omitzero"`

	// storageClassName of the volumes. Absent: the default class of the member.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// retentionPolicy defines whether the volumes are kept when the Redis itself is deleted. Default Retain.
	// Scaling down always keeps them.
	// +optional
	// +kubebuilder:validation:Enum=Retain;Delete
	// +kubebuilder:default=Retain
	RetentionPolicy string `json:"retentionPolicy,omitempty"`
}

// RedisPersistence defines what is written to storage.
type RedisPersistence struct {
	// mode of persistence. Default AOF. On a PersistentVolumeClaim it can only change between AOF and AOFAndRDB.
	// +optional
	// +kubebuilder:validation:Enum=AOF;RDB;AOFAndRDB;None
	// +kubebuilder:default=AOF
	Mode string `json:"mode,omitempty"`

	// appendFsync is Redis' own directive. Default everysec.
	// +optional
	// +kubebuilder:validation:Enum=always;everysec;"no"
	// +kubebuilder:default=everysec
	AppendFsync string `json:"appendFsync,omitempty"`

	// acceptDataLoss is required for mode None with a PersistentVolumeClaim.
	// +optional
	AcceptDataLoss bool `json:"acceptDataLoss,omitempty"`
}

// RedisReplication defines when the primary refuses writes.
type RedisReplication struct {
	// minReplicasToWrite is the number of replicas that must follow the primary for it to accept writes. Default 0: it
	// accepts writes alone. A higher value reduces the loss of data if the primary's volume is lost, but makes missing
	// replicas an outage of writes. In mode Sentinel it is at least 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=8
	MinReplicasToWrite int32 `json:"minReplicasToWrite,omitempty"`

	// minReplicasMaxLagSeconds is the maximum time since the last message from a replica that counts. Default 10. In mode
	// Sentinel it is at most sentinel.downAfterMilliseconds.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MinReplicasMaxLagSeconds int32 `json:"minReplicasMaxLagSeconds,omitempty"`
}

// RedisMemory limits the data set.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.maxMemory) && has(self.maxMemoryPercent))",message="give maxMemory or maxMemoryPercent, not both"
type RedisMemory struct {
	// maxMemory is the limit in bytes, as a quantity.
	// +optional
	MaxMemory *resource.Quantity `json:"maxMemory,omitempty"`

	// maxMemoryPercent is the limit as a percentage of resources.limits.memory. Default 75 if there is a memory limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=95
	MaxMemoryPercent *int32 `json:"maxMemoryPercent,omitempty"`

	// maxMemoryPolicy is Redis' own directive. Default noeviction.
	// +optional
	// +kubebuilder:validation:Enum=noeviction;allkeys-lru;allkeys-lfu;allkeys-random;volatile-lru;volatile-lfu;volatile-random;volatile-ttl
	// +kubebuilder:default=noeviction
	MaxMemoryPolicy string `json:"maxMemoryPolicy,omitempty"`
}

// RedisAuth defines how clients authenticate.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode == 'Password' || !has(self.secretRef)",message="auth.secretRef needs auth.mode Password: set that, or remove secretRef"
type RedisAuth struct {
	// mode is Password (default) or Disabled. Changing it restarts all Pods together.
	// +optional
	// +kubebuilder:validation:Enum=Password;Disabled
	// +kubebuilder:default=Password
	Mode string `json:"mode,omitempty"`

	// secretRef names a Secret of the member, in the namespace of the Redis and with label flotilla.dev/redis-auth:
	// "true". Absent: Secret <name>-auth is created once, with a generated password. To rotate the password, change it in
	// the Secret. If the old one is kept under key previous, Pods are replaced one by one and accept both until that key
	// is removed; otherwise all Pods restart together. For a key other than password, the old password is under
	// previous-<key>, so that each Redis that shares a Secret is rotated separately. An old password that no Pod uses is
	// refused.
	// +optional
	SecretRef *RedisSecretRef `json:"secretRef,omitempty"`
}

// RedisSecretRef is a key of a Secret.
type RedisSecretRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// key in the Secret. Default password.
	// +optional
	// +kubebuilder:default=password
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// RedisPodMetadata contains labels and annotations that are added to the Pods.
type RedisPodMetadata struct {
	// labels of the Pods, at most 16. Those of flotilla.dev and Kubernetes cannot be set.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-zA-Z0-9]([-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$') && self[k].matches('^([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?$'))",message="podMetadata.labels has something that is no label: correct the key or the value"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?(flotilla[.]dev|kubernetes[.]io|k8s[.]io)/') && k != 'controller-revision-hash')",message="podMetadata.labels cannot have labels of flotilla.dev, kubernetes.io or k8s.io: what finds the Pods depends on them; choose other keys"
	Labels map[string]RedisMetadataValue `json:"labels,omitempty"`

	// annotations of the Pods, at most 32. Those of flotilla.dev cannot be set.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-zA-Z0-9]([-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$'))",message="podMetadata.annotations has a key that is none: correct it"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?flotilla[.]dev/'))",message="podMetadata.annotations cannot have annotations of flotilla.dev: choose other keys"
	Annotations map[string]RedisMetadataValue `json:"annotations,omitempty"`
}

// RedisMetadataValue is the value of a label or an annotation.
//
// +kubebuilder:validation:MaxLength=1024
type RedisMetadataValue string

// RedisService configures the Services for clients, <name>-primary and <name>-any. The Service for replicas stays
// internal.
type RedisService struct {
	// type of the Services. Default ClusterIP. Any other type exposes the Redis to everyone who can reach the nodes or the
	// load balancer, protected only by its password.
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	// +kubebuilder:default=ClusterIP
	Type corev1.ServiceType `json:"type,omitempty"`

	// annotations of the Services, such as those that load balancers and external-dns read, at most 32. Those of
	// flotilla.dev cannot be set.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-zA-Z0-9]([-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$'))",message="service.annotations has a key that is none: correct it"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?flotilla[.]dev/'))",message="service.annotations cannot have annotations of flotilla.dev: choose other keys"
	Annotations map[string]RedisMetadataValue `json:"annotations,omitempty"`
}

// RedisPodDisruptionBudget allows drains to evict one Pod at a time.
type RedisPodDisruptionBudget struct {
	// enabled creates the budget. Default true. Disable it to use your own.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// RedisUpdateStrategy defines how Pods are replaced.
type RedisUpdateStrategy struct {
	// primary is Automatic (default) or Supervised. With Automatic the primary is replaced after all replicas. With
	// Supervised the update waits before the Pod that is the primary until a person approves it with the annotation that condition
	// RolloutBlocked names.
	// +optional
	// +kubebuilder:validation:Enum=Automatic;Supervised
	// +kubebuilder:default=Automatic
	Primary string `json:"primary,omitempty"`
}

// Values of the enums above.
const (
	RedisModeReplication          = "Replication"
	RedisModeSentinel             = "Sentinel"
	RedisStoragePVC               = "PersistentVolumeClaim"
	RedisStorageEmptyDir          = "EmptyDir"
	RedisRetentionDelete          = "Delete"
	RedisPersistenceAOF           = "AOF"
	RedisPersistenceRDB           = "RDB"
	RedisPersistenceAOFAndRDB     = "AOFAndRDB"
	RedisPersistenceNone          = "None"
	RedisAuthPassword             = "Password"
	RedisAuthDisabled             = "Disabled"
	RedisPodAntiAffinityPreferred = "Preferred"
	RedisPodAntiAffinityRequired  = "Required"
	RedisPrimaryAutomatic         = "Automatic"
	RedisPrimarySupervised        = "Supervised"
	RedisRolePrimary              = "primary"
	RedisRoleReplica              = "replica"
	RedisSecretKeyPassword        = "password"
	RedisSecretKeyPrevious        = "previous"
)

// Redis is a Redis instance: a primary and the replicas that follow it. On the hub it represents its copies in many
// members.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="flotilla.dev/crd-revision=8"
// +kubebuilder:resource:path=redises,categories=flotilla
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desiredReplicas`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Primary",type=string,JSONPath=`.status.primary`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusterCounts.desired`
// +kubebuilder:printcolumn:name="ClustersReady",type=integer,JSONPath=`.status.clusterCounts.ready`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.clusterCounts.unknown`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,priority=1
// +kubebuilder:printcolumn:name="Failovers",type=integer,JSONPath=`.status.failovers`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",message="the name of a Redis starts with a letter, has lower-case letters, digits and hyphens, and at most 40 characters: its Services and Pods are named after it"
type Redis struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the Redis.
	// +optional
	// +kubebuilder:default={}
	Spec RedisSpec `json:"spec,omitzero"`
	// status is the observed state of the Redis.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status RedisStatus `json:"status,omitzero"`
}

// RedisList is a list of Redis.
//
// +kubebuilder:object:root=true
type RedisList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Redis `json:"items"`
}

// GetPlacement returns spec.placement.
func (r *Redis) GetPlacement() *Placement { return r.Spec.Placement }

// GetFleetStatus returns the part of the status that both kinds have in common.
func (r *Redis) GetFleetStatus() *FleetStatus { return &r.Status.FleetStatus }

// GetConditions returns a pointer to the conditions.
func (r *Redis) GetConditions() *[]metav1.Condition { return &r.Status.Conditions }
