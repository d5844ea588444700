// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// RedisSentinel configures the sentinels that choose the primary. There are three, in Pods 0 to 2, and two must agree.
type RedisSentinel struct {
	// downAfterMilliseconds is how long a primary does not answer before another one takes over. Default 5000. Lower values
	// cause failovers on busy nodes.
	// +optional
	// +kubebuilder:default=5000
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=60000
	DownAfterMilliseconds int32 `json:"downAfterMilliseconds,omitempty"`

	// failoverTimeoutMilliseconds limits a failover; a failed one is tried again after twice this time. Default 10000.
	// +optional
	// +kubebuilder:default=10000
	// +kubebuilder:validation:Minimum=5000
	// +kubebuilder:validation:Maximum=600000
	FailoverTimeoutMilliseconds int32 `json:"failoverTimeoutMilliseconds,omitempty"`

	// resources of the containers sentinel and keeper, each. Default: requests of 20m CPU and 32Mi memory. A CPU limit can
	// cause failovers.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// RedisProxy configures the proxies that lead clients of <name>-primary to the primary.
type RedisProxy struct {
	// image is an official haproxy image, 2.6 or later, used unchanged. Default haproxy:3.2.
	// +optional
	// +kubebuilder:default="haproxy:3.2"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// resources of the container proxy. Default: requests of 20m CPU and 48Mi memory. A connection takes about 33 KiB.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// maxConnections is the number of client connections that each proxy accepts. Default 2000.
	// +optional
	// +kubebuilder:default=2000
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=50000
	MaxConnections int32 `json:"maxConnections,omitempty"`
}
