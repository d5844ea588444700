// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Convention is a way to mark and to fill registration Secrets.
type Convention string

// The conventions.
const (
	// ConventionFlotilla is label flotilla.dev/cluster with key kubeconfig.
	ConventionFlotilla Convention = "flotilla"
	// ConventionMulticlusterRuntime is the one of multicluster-runtime's kubeconfig provider.
	ConventionMulticlusterRuntime Convention = "multicluster-runtime"
	// ConventionClusterAPI is the Secret <cluster>-kubeconfig that Cluster API makes for each cluster.
	ConventionClusterAPI Convention = "cluster-api"
	// ConventionArgoCD is the cluster Secret of Argo CD, which holds no kubeconfig but a server and a JSON document.
	ConventionArgoCD Convention = "argo-cd"
)

// Source is a namespace on the hub with the conventions that hold there.
type Source struct {
	Namespace   string
	Conventions []Convention
}

// Conventions lists the known conventions, sorted.
func Conventions() []Convention { return slices.Sorted(maps.Keys(conventions)) }

// secretRef names one registration Secret.
type secretRef struct {
	namespace, name string
	uid             types.UID
}

// String implements fmt.Stringer.
func (r secretRef) String() string { return r.namespace + "/" + r.name }

// sameName says whether both name the same Secret, or one that took its place under the same name.
func (r secretRef) sameName(other secretRef) bool {
	return r.namespace == other.namespace && r.name == other.name
}

// registration is what a Secret asks for.
type registration struct {
	clusterName multicluster.ClusterName
	secret      secretRef
	created     time.Time
	// refused is set when the Secret holds nothing to parse.
	refused *refusal
	// kubeconfig is what the convention takes for one, and parse reads it.
	kubeconfig sealed
	parse      parser
	// digest is equal for equal content of everything that a connection depends on.
	digest string
	labels map[string]string
	paused bool
	drain  bool
	kinds  []string
	// namespaces are those of the hub that may place in the member; nil when the Secret does not say.
	namespaces []string
	// replace is the UID of the cluster that may take the place of the recorded one.
	replace types.UID
	// takeOver is the hub whose claim may be taken.
	takeOver string
	// contenders are other Secrets that ask for the same name.
	contenders []string
}

// readRegistration reads a Secret. It is called for recognised Secrets only.
func readRegistration(secret *corev1.Secret, by convention) registration {
	r := registration{
		clusterName: multicluster.ClusterName(by.clusterName(secret)),
		secret:      secretRef{namespace: secret.Namespace, name: secret.Name, uid: secret.UID},
		created:     secret.CreationTimestamp.Time,
		labels:      memberLabels(secret.Labels, by.marks),
		paused:      secret.Annotations[flotillav1.AnnotationPaused] == "true",
		drain:       secret.Annotations[flotillav1.AnnotationDrain] == "true",
		kinds:       splitList(secret.Annotations[flotillav1.AnnotationKinds]),
		namespaces:  readNamespaces(secret.Annotations),
		replace:     types.UID(secret.Annotations[flotillav1.AnnotationReplace]),
		takeOver:    secret.Annotations[flotillav1.AnnotationTakeOver],
		parse:       by.parse,
	}
	content, missing := by.content(secret)
	if missing != "" {
		r.refused = refuseCredential(flotillav1.ReasonKeyMissing, fmt.Sprintf("The Secret has no key %q; add it", missing))
	}
	if name := string(r.clusterName); len(validation.IsDNS1123Label(name)) > 0 {
		r.refused = refuseCredential(flotillav1.ReasonInvalidName, "The cluster name of the registration is not a DNS label of at most 63 characters; give it another one")
	}
	r.kubeconfig = seal(content)
	hash := sha256.New()
	for _, part := range []string{string(secret.UID), by.selector, missing, string(content), string(r.replace), r.takeOver} {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	r.digest = hex.EncodeToString(hash.Sum(nil))
	return r
}

// toolDomains are prefixes of labels that tools put on a Secret to keep track of it. They say nothing about the member.
var toolDomains = []string{
	"argocd.argoproj.io", "fluxcd.io", "helm.sh", "meta.helm.sh", "kubectl.kubernetes.io", "velero.io", "flotilla.dev",
}

// toolLabels are single labels of that sort.
var toolLabels = []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by"}

// memberLabels picks those labels of a Secret that describe the member.
func memberLabels(labels map[string]string, marks []string) map[string]string {
	picked := map[string]string{}
	for key, value := range labels {
		domain, _, hasDomain := strings.Cut(key, "/")
		isTool := hasDomain && slices.ContainsFunc(toolDomains, func(tool string) bool {
			return domain == tool || strings.HasSuffix(domain, "."+tool)
		})
		if !isTool && !slices.Contains(toolLabels, key) && !slices.Contains(marks, key) {
			picked[key] = value
		}
	}
	return picked
}

// splitList splits at commas and drops blanks.
func splitList(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// complaint is about a Secret that becomes no member; an event on the Secret tells it.
type complaint struct {
	secret          secretRef
	reason, message string
}

// assignment says which registration holds which name.
type assignment struct {
	holders    map[multicluster.ClusterName]registration
	complaints []complaint
}

// assign gives each name to one registration. The recorded Secret keeps its name, by UID and else by namespace and
// name; among unrecorded ones the oldest wins, then the first by namespace and name. Those with a bad name are shown
// under the name of their Secret when nobody else asks for it.
func assign(asking []registration, recorded map[multicluster.ClusterName]secretRef) assignment {
	asking = slices.Clone(asking)
	slices.SortStableFunc(asking, func(a, b registration) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.secret.String(), b.secret.String())
	})
	byName := map[multicluster.ClusterName][]registration{}
	var unnamed []registration
	for _, r := range asking {
		if r.refused != nil && r.refused.reason == flotillav1.ReasonInvalidName {
			unnamed = append(unnamed, r)
			continue
		}
		byName[r.clusterName] = append(byName[r.clusterName], r)
	}
	result := assignment{holders: map[multicluster.ClusterName]registration{}}
	for name, contenders := range byName {
		winner := incumbent(contenders, recorded[name])
		holder := contenders[winner]
		for i, loser := range contenders {
			if i == winner {
				continue
			}
			holder.contenders = append(holder.contenders, loser.secret.String())
			result.complaints = append(result.complaints, complaint{
				secret: loser.secret, reason: flotillav1.ReasonContested,
				message: fmt.Sprintf("Cluster name %q is held by Secret %s; ask for another name or remove this registration", name, holder.secret),
			})
		}
		slices.Sort(holder.contenders)
		result.holders[name] = holder
	}
	for _, r := range unnamed {
		stand := multicluster.ClusterName(r.secret.name)
		if _, taken := result.holders[stand]; taken || len(validation.IsDNS1123Label(string(stand))) > 0 {
			result.complaints = append(result.complaints, complaint{secret: r.secret, reason: r.refused.reason, message: r.refused.message})
			continue
		}
		r.clusterName = stand
		result.holders[stand] = r
	}
	slices.SortFunc(result.complaints, func(a, b complaint) int { return strings.Compare(a.secret.String(), b.secret.String()) })
	return result
}

// incumbent returns the index of the contender that holds the name.
func incumbent(contenders []registration, recorded secretRef) int {
	if i := slices.IndexFunc(contenders, func(r registration) bool { return r.secret.uid == recorded.uid }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(contenders, func(r registration) bool { return r.secret.sameName(recorded) }))
}
