// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Convention is a format of registration Secrets.
type Convention string

// The conventions.
const (
	// ConventionFlotilla uses label flotilla.dev/cluster and key kubeconfig.
	ConventionFlotilla Convention = "flotilla"
	// ConventionMulticlusterRuntime is the convention of multicluster-runtime's kubeconfig provider.
	ConventionMulticlusterRuntime Convention = "multicluster-runtime"
	// ConventionClusterAPI is the Secret <cluster>-kubeconfig that Cluster API creates for each cluster.
	ConventionClusterAPI Convention = "cluster-api"
	// ConventionArgoCD is the cluster Secret of Argo CD, which contains a server and a JSON document instead of a
	// kubeconfig.
	ConventionArgoCD Convention = "argo-cd"
)

// Source is a hub namespace with the conventions that apply there.
type Source struct {
	Namespace   string
	Conventions []Convention
}

// Conventions returns the known conventions, sorted.
func Conventions() []Convention { return slices.Sorted(maps.Keys(conventions)) }

// SecretRef identifies a registration Secret.
type SecretRef struct {
	Namespace, Name string
	UID             types.UID
}

// String implements fmt.Stringer.
func (r SecretRef) String() string { return r.Namespace + "/" + r.Name }

// SameName reports whether both refer to the same namespace and name, regardless of the UID.
func (r SecretRef) SameName(other SecretRef) bool {
	return r.Namespace == other.Namespace && r.Name == other.Name
}

// Registration is the content of a registration Secret.
type Registration struct {
	ClusterName multicluster.ClusterName
	Secret      SecretRef
	created     time.Time
	// refused is set if the Secret has an invalid name or nothing to parse.
	refused *verdict.Refusal
	// kubeconfig is the content as the convention defines it. parse parses it.
	kubeconfig sealed
	parse      parser
	// Digest identifies the content that a connection depends on.
	Digest string
	Labels map[string]string
	Paused bool
	Drain  bool
	Kinds  []string
	// Namespaces are the hub namespaces that may place in the member. Nil means unspecified.
	Namespaces []string
	// Replace is the UID of the cluster that may replace the recorded one.
	Replace types.UID
	// TakeOver is the hub whose claim may be taken over.
	TakeOver string
	// Contenders are the other Secrets that request the same name.
	Contenders []string
}

// Read returns the registration in a Secret. It must be called for recognised Secrets only.
func Read(secret *corev1.Secret, by convention) Registration {
	r := Registration{
		ClusterName: multicluster.ClusterName(by.clusterName(secret)),
		Secret:      SecretRef{Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID},
		created:     secret.CreationTimestamp.Time,
		Labels:      memberLabels(secret.Labels, by.marks),
		Paused:      secret.Annotations[flotillav1.AnnotationPaused] == "true",
		Drain:       secret.Annotations[flotillav1.AnnotationDrain] == "true",
		Kinds:       splitList(secret.Annotations[flotillav1.AnnotationKinds]),
		Namespaces:  readNamespaces(secret.Annotations),
		Replace:     types.UID(secret.Annotations[flotillav1.AnnotationReplace]),
		TakeOver:    secret.Annotations[flotillav1.AnnotationTakeOver],
		parse:       by.parse,
	}
	content, missing := by.content(secret)
	if missing != "" {
		r.refused = verdict.RefuseCredential(flotillav1.ReasonKeyMissing, fmt.Sprintf("The Secret has no key %q; add it", missing))
	}
	if name := string(r.ClusterName); len(validation.IsDNS1123Label(name)) > 0 {
		r.refused = verdict.RefuseCredential(flotillav1.ReasonInvalidName, "The cluster name of the registration is not a DNS label of at most 63 characters; give it another one")
	}
	r.kubeconfig = seal(content)
	hash := sha256.New()
	for _, part := range []string{string(secret.UID), by.selector, missing, string(content), string(r.Replace), r.TakeOver} {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	r.Digest = hex.EncodeToString(hash.Sum(nil))
	return r
}

// Credential parses the content of the registration and accepts or refuses it by its bytes alone.
func (r *Registration) Credential(by *Rules) (*Credential, *verdict.Refusal) {
	if r.refused != nil {
		return nil, r.refused
	}
	return r.parse(r.kubeconfig.reveal(), by)
}

// Same reports whether two registrations are equal. The digest represents the content.
func (r Registration) Same(other Registration) bool {
	r.kubeconfig, r.parse, r.refused = sealed{}, nil, nil
	other.kubeconfig, other.parse, other.refused = sealed{}, nil, nil
	return reflect.DeepEqual(r, other)
}

// Accepted returns the verdict on a registration whose credential is in use.
func (r *Registration) Accepted() verdict.Verdict {
	if len(r.Contenders) > 0 {
		return verdict.Good(flotillav1.ReasonContested, "The credential is in use; the cluster name is also asked for by "+text.List(r.Contenders, 3)+", which gets an event and nothing else")
	}
	return verdict.Good(flotillav1.ReasonAccepted, "The credential of the registration is in use")
}

// toolDomains are domains of labels by which tools track a Secret. They do not describe the member.
var toolDomains = []string{
	"argocd.argoproj.io", "fluxcd.io", "helm.sh", "meta.helm.sh", "kubectl.kubernetes.io", "velero.io", "flotilla.dev",
}

// toolLabels are single labels by which tools track a Secret.
var toolLabels = []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by"}

// memberLabels returns the labels of a Secret that describe the member.
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

// splitList splits a comma-separated list and drops empty items.
func splitList(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Complaint is the reason why a Secret does not become a member. It is recorded as an event on the Secret.
type Complaint struct {
	Secret          SecretRef
	Reason, Message string
}

// Assignment maps names to the registrations that hold them.
type Assignment struct {
	Holders    map[multicluster.ClusterName]Registration
	Complaints []Complaint
}

// Assign assigns each name to one registration. The recorded Secret keeps its name; it is matched by UID, then by
// namespace and name. Without a recorded one, the oldest wins, then the first by namespace and name. A registration with
// an invalid name is listed under the name of its Secret unless another one has that name.
func Assign(asking []Registration, recorded map[multicluster.ClusterName]SecretRef) Assignment {
	asking = slices.Clone(asking)
	slices.SortStableFunc(asking, func(a, b Registration) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.Secret.String(), b.Secret.String())
	})
	byName := map[multicluster.ClusterName][]Registration{}
	var unnamed []Registration
	for _, r := range asking {
		if r.refused != nil && r.refused.Reason == flotillav1.ReasonInvalidName {
			unnamed = append(unnamed, r)
			continue
		}
		byName[r.ClusterName] = append(byName[r.ClusterName], r)
	}
	result := Assignment{Holders: map[multicluster.ClusterName]Registration{}}
	for name, contenders := range byName {
		winner := incumbent(contenders, recorded[name])
		holder := contenders[winner]
		for i, loser := range contenders {
			if i == winner {
				continue
			}
			holder.Contenders = append(holder.Contenders, loser.Secret.String())
			result.Complaints = append(result.Complaints, Complaint{
				Secret: loser.Secret, Reason: flotillav1.ReasonContested,
				Message: fmt.Sprintf("Cluster name %q is held by Secret %s; ask for another name or remove this registration", name, holder.Secret),
			})
		}
		slices.Sort(holder.Contenders)
		result.Holders[name] = holder
	}
	for _, r := range unnamed {
		stand := multicluster.ClusterName(r.Secret.Name)
		if _, taken := result.Holders[stand]; taken || len(validation.IsDNS1123Label(string(stand))) > 0 {
			result.Complaints = append(result.Complaints, Complaint{Secret: r.Secret, Reason: r.refused.Reason, Message: r.refused.Message})
			continue
		}
		r.ClusterName = stand
		result.Holders[stand] = r
	}
	slices.SortFunc(result.Complaints, func(a, b Complaint) int { return strings.Compare(a.Secret.String(), b.Secret.String()) })
	return result
}

// incumbent returns the index of the registration that gets the name.
func incumbent(contenders []Registration, recorded SecretRef) int {
	if i := slices.IndexFunc(contenders, func(r Registration) bool { return r.Secret.UID == recorded.UID }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(contenders, func(r Registration) bool { return r.Secret.SameName(recorded) }))
}

// EveryNamespace stands for all namespaces of the hub and its cluster-scoped objects.
const EveryNamespace = "*"

// readNamespaces returns the namespaces that may place in a member, or nil if the annotation is missing. An empty list
// allows none.
func readNamespaces(annotations map[string]string) []string {
	list, said := annotations[flotillav1.AnnotationAllowedNamespaces]
	if !said {
		return nil
	}
	return append([]string{}, splitList(list)...)
}
