// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// Labels and keys of third-party conventions.
const (
	LabelClusterAPIName = "cluster.x-k8s.io/cluster-name"
	keyClusterAPI       = "value"

	LabelArgoCDSecretType = "argocd.argoproj.io/secret-type"
	keyArgoCDName         = "name"
	keyArgoCDServer       = "server"
	keyArgoCDConfig       = "config"
)

// parser parses the content of a registration and accepts or refuses it by its bytes alone.
type parser func(content []byte, by *Rules) (*Credential, *verdict.Refusal)

// convention describes one convention.
type convention struct {
	// selector is the label selector for Secrets.
	selector string
	// recognises reports whether a selected Secret is a registration; nil accepts all.
	recognises func(*corev1.Secret) bool
	// keys are the only keys of the Secret's data that are read and kept.
	keys []string
	// content returns what parse expects, or the key that is missing.
	content func(*corev1.Secret) (content []byte, missing string)
	parse   parser
	// clusterName returns the requested cluster name.
	clusterName func(*corev1.Secret) string
	// marks are labels that only mark the Secret as a registration. They are not copied to the member.
	marks []string
}

// conventions holds all conventions.
var conventions = map[Convention]convention{
	ConventionFlotilla: {
		selector: flotillav1.LabelCluster + "=true",
		keys:     []string{flotillav1.KeyKubeconfig},
		content:  under(flotillav1.KeyKubeconfig),
		parse:    Parse,
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
		parse:       Parse,
		clusterName: func(secret *corev1.Secret) string { return secret.Name },
		marks:       []string{flotillav1.LabelMulticlusterRuntime},
	},
	ConventionClusterAPI: {
		selector: LabelClusterAPIName,
		// Cluster API also sets the label on the cluster's CA and key Secrets.
		recognises: func(secret *corev1.Secret) bool {
			return secret.Name == secret.Labels[LabelClusterAPIName]+"-kubeconfig"
		},
		keys:        []string{keyClusterAPI},
		content:     under(keyClusterAPI),
		parse:       Parse,
		clusterName: func(secret *corev1.Secret) string { return secret.Labels[LabelClusterAPIName] },
		marks:       []string{LabelClusterAPIName},
	},
	ConventionArgoCD: {
		selector: LabelArgoCDSecretType + "=cluster",
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
		marks: []string{LabelArgoCDSecretType},
	},
}

// under returns a content function that reads one key.
func under(key string) func(*corev1.Secret) ([]byte, string) {
	return func(secret *corev1.Secret) ([]byte, string) {
		content, ok := secret.Data[key]
		if !ok {
			return nil, key
		}
		return content, ""
	}
}

// lastApplied is the annotation in which kubectl apply stores the whole Secret.
const lastApplied = corev1.LastAppliedConfigAnnotation

// Known reports whether the convention exists.
func (c Convention) Known() bool {
	_, known := conventions[c]
	return known
}

// Selector returns the label selector for Secrets of the convention.
func (c Convention) Selector() string { return conventions[c].selector }

// Recognises reports whether a selected Secret is a registration.
func (c Convention) Recognises(secret *corev1.Secret) bool {
	recognises := conventions[c].recognises
	return recognises == nil || recognises(secret)
}

// Read returns the registration in a Secret. It must be called for recognised Secrets only.
func (c Convention) Read(secret *corev1.Secret) Registration {
	return Read(secret, conventions[c])
}

// Trim removes the data that the convention does not use, and all data of a Secret that is not a registration.
func (c Convention) Trim(secret *corev1.Secret) {
	recognised := c.Recognises(secret)
	for key := range secret.Data {
		if !recognised || !slices.Contains(conventions[c].keys, key) {
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

// argoCDContent returns server and config as one document.
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
