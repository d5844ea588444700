// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func TestRequestsOf(t *testing.T) {
	sidecar := ownershiptest.Requesting("cpu=200m")
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	tests := map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"nothing asked for":  {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("")}}, want: "pods=1"},
		"containers add up":  {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("cpu=1 memory=1Gi"), ownershiptest.Requesting("cpu=500m example.com/gpu=2")}}, want: "cpu=1500m memory=1Gi example.com/gpu=2 pods=1"},
		"a small init":       {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("cpu=1")}, InitContainers: []corev1.Container{ownershiptest.Requesting("cpu=900m")}}, want: "cpu=1 pods=1"},
		"the largest init":   {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("cpu=1")}, InitContainers: []corev1.Container{ownershiptest.Requesting("cpu=3"), ownershiptest.Requesting("cpu=2 memory=1Gi")}}, want: "cpu=3 memory=1Gi pods=1"},
		"a sidecar":          {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("cpu=1")}, InitContainers: []corev1.Container{sidecar}}, want: "cpu=1200m pods=1"},
		"init after sidecar": {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("cpu=1")}, InitContainers: []corev1.Container{sidecar, ownershiptest.Requesting("cpu=2")}}, want: "cpu=2200m pods=1"},
		"init then sidecar":  {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("cpu=1")}, InitContainers: []corev1.Container{ownershiptest.Requesting("cpu=2"), sidecar}}, want: "cpu=2 pods=1"},
		"overhead":           {spec: corev1.PodSpec{Containers: []corev1.Container{ownershiptest.Requesting("cpu=1")}, Overhead: ownershiptest.Amounts("cpu=250m")}, want: "cpu=1250m pods=1"},
		"set for the Pod": {spec: corev1.PodSpec{
			Containers: []corev1.Container{ownershiptest.Requesting("cpu=1 memory=1Gi")}, Resources: &corev1.ResourceRequirements{Requests: ownershiptest.Amounts("cpu=4")},
		}, want: "cpu=4 memory=1Gi pods=1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(ownershiptest.Amounts(tc.want), ownership.RequestsOf(&tc.spec)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDamped(t *testing.T) {
	const allocatable = "cpu=100 memory=100Gi"
	tests := map[string]struct{ before, measured, want string }{
		"the first time":             {measured: "cpu=1", want: "cpu=1"},
		"the same":                   {before: "cpu=10", measured: "cpu=10", want: "cpu=10"},
		"less than a percent":        {before: "cpu=10", measured: "cpu=10900m", want: "cpu=10"},
		"less than a percent down":   {before: "cpu=10", measured: "cpu=9100m", want: "cpu=10"},
		"a percent":                  {before: "cpu=10", measured: "cpu=11", want: "cpu=11"},
		"of one of two":              {before: "cpu=10 memory=10Gi", measured: "cpu=10100m memory=12Gi", want: "cpu=10100m memory=12Gi"},
		"down to nothing":            {before: "cpu=500m", measured: "cpu=0", want: "cpu=0"},
		"up from nothing":            {before: "cpu=0", measured: "cpu=1m", want: "cpu=1m"},
		"another resource":           {before: "cpu=10", measured: "cpu=10 pods=1", want: "cpu=10 pods=1"},
		"one that no node offers":    {before: "cpu=10 example.com/x=1", measured: "cpu=10 example.com/x=2", want: "cpu=10 example.com/x=2"},
		"the same that none offers":  {before: "cpu=10 example.com/x=1", measured: "cpu=10 example.com/x=1", want: "cpu=10 example.com/x=1"},
		"another name of the number": {before: "cpu=10 a.b/x=1", measured: "cpu=10 a.b/y=1", want: "cpu=10 a.b/y=1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(ownershiptest.Amounts(tc.want), ownership.Damped(ownershiptest.Amounts(tc.before), ownershiptest.Amounts(tc.measured), ownershiptest.Amounts(allocatable))); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}
