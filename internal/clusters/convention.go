// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Marks and keys of the conventions of others.
const (
	labelClusterAPIName = "cluster.x-k8s.io/cluster-name"
	keyClusterAPI       = "value"

	labelArgoCDSecretType = "argocd.argoproj.io/secret-type"
	keyArgoCDName         = "name"
	keyArgoCDServer       = "server"
	keyArgoCDConfig       = "config"
)

// parser accepts or refuses the content of a registration by its bytes alone.
type parser func(content []byte, by *rules) (*credential, *refusal)

// convention is one row of the table of conventions.
type convention struct {
	// selector is what the API server selects Secrets by.
	selector string
	// recognises says whether a selected Secret is a registration; nil accepts all.
	recognises func(*corev1.Secret) bool
	// keys are all that is read of the Secret's data; nothing else is kept.
	keys []string
	// content is what the registration connects with, as parse understands it, or the key that is missing.
	content func(*corev1.Secret) (content []byte, missing string)
	parse   parser
	// clusterName is the name that the registration asks for.
	clusterName func(*corev1.Secret) string
	// marks are labels that only say that the Secret is a registration; they are not labels of the member.
	marks []string
}

// conventions is the table of all conventions.
var conventions = map[Convention]convention{
	ConventionFlotilla: {
		selector: flotillav1.LabelCluster + "=true",
		keys:     []string{flotillav1.KeyKubeconfig},
		content:  under(flotillav1.KeyKubeconfig),
		parse:    parseCredential,
		clusterName: func(secret *corev1.Secret) string {
			if name, ok := secret.Annotations[flotillav1.AnnotationClusterName]; ok {
				return name
			}
			return secret.Name
		},
		marks: []string{flotillav1.LabelCluster},
	},
	ConventionMulticlusterRuntime: {
		selector:    flotillav1.LabelMulticlusterRuntime + "=true",
		keys:        []string{flotillav1.KeyKubeconfig},
		content:     under(flotillav1.KeyKubeconfig),
		parse:       parseCredential,
		clusterName: func(secret *corev1.Secret) string { return secret.Name },
		marks:       []string{flotillav1.LabelMulticlusterRuntime},
	},
	ConventionClusterAPI: {
		selector: labelClusterAPIName,
		// Cluster API puts the label on the cluster's authorities and keys as well.
		recognises: func(secret *corev1.Secret) bool {
			return secret.Name == secret.Labels[labelClusterAPIName]+"-kubeconfig"
		},
		keys:        []string{keyClusterAPI},
		content:     under(keyClusterAPI),
		parse:       parseCredential,
		clusterName: func(secret *corev1.Secret) string { return secret.Labels[labelClusterAPIName] },
		marks:       []string{labelClusterAPIName},
	},
	ConventionArgoCD: {
		selector: labelArgoCDSecretType + "=cluster",
		keys:     []string{keyArgoCDName, keyArgoCDServer, keyArgoCDConfig},
		content:  argoCDContent,
		parse:    parseArgoCD,
		// Names in Argo CD are free text, often the URL of the server.
		clusterName: func(secret *corev1.Secret) string {
			if name := string(secret.Data[keyArgoCDName]); len(validation.IsDNS1123Label(name)) == 0 {
				return name
			}
			return secret.Name
		},
		marks: []string{labelArgoCDSecretType},
	},
}

// under takes the content from one key.
func under(key string) func(*corev1.Secret) ([]byte, string) {
	return func(secret *corev1.Secret) ([]byte, string) {
		content, ok := secret.Data[key]
		if !ok {
			return nil, key
		}
		return content, ""
	}
}

// lastApplied is where kubectl apply keeps a copy of the whole Secret.
const lastApplied = corev1.LastAppliedConfigAnnotation

// trim drops what a registration does not consist of: all data of a Secret that is none.
func (c *convention) trim(secret *corev1.Secret) {
	recognised := c.recognises == nil || c.recognises(secret)
	for key := range secret.Data {
		if !recognised || !slices.Contains(c.keys, key) {
			delete(secret.Data, key)
		}
	}
	delete(secret.Annotations, lastApplied)
}

// argoCDSecret is the content of a cluster Secret of Argo CD.
type argoCDSecret struct {
	Server []byte `json:"server"`
	Config []byte `json:"config"`
}

// argoCDContent joins the two keys that matter.
func argoCDContent(secret *corev1.Secret) ([]byte, string) {
	for _, key := range []string{keyArgoCDServer, keyArgoCDConfig} {
		if _, ok := secret.Data[key]; !ok {
			return nil, key
		}
	}
	content, err := json.Marshal(argoCDSecret{Server: secret.Data[keyArgoCDServer], Config: secret.Data[keyArgoCDConfig]})
	if err != nil {
		return nil, keyArgoCDConfig
	}
	return content, ""
}
