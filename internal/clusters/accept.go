// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

// AcceptKubeconfig says why the pool would refuse a kubeconfig, by its bytes alone.
func AcceptKubeconfig(kubeconfig []byte, policy Policy) error {
	if _, refused := parseCredential(kubeconfig, &rules{policy: policy}); refused != nil {
		return refused
	}
	return nil
}
