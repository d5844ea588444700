// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// state is what one pass has seen. observe fills it; the plan and the report only read it.
type state struct {
	redis *flotillav1.Redis
	// spec is that of redis with defaults.
	spec flotillav1.RedisSpec
	now  time.Time

	// The children that are there and ours, nil or missing otherwise.
	statefulSet *appsv1.StatefulSet
	// configMap is what Pods of the present spec are started with, record what is recorded, former the one ConfigMap of
	// earlier versions.
	configMap, record, former *corev1.ConfigMap
	// configMaps are all that Pods were ever started with, former and configMap among them.
	configMaps []*corev1.ConfigMap
	budget     *policyv1.PodDisruptionBudget
	services   map[string]*corev1.Service
	// foreign are objects of a child's name that are not ours, as "Kind name".
	foreign []string

	// pods are those of the StatefulSet, by ordinal.
	pods []pod
	// absent are the Pods that are asked for and do not exist.
	absent absence
	// claims are the volume claims by ordinal.
	claims map[int32]*corev1.PersistentVolumeClaim
	// recorded is what record remembers, or former while there is no record.
	recorded topology
	password password
	// answers are what the API server has made of objects that were applied before, where that is not what was asked for.
	answers map[types.UID]answer
	// growthRefused says why the member does not let volumes grow; apply fills it, as only trying tells.
	growthRefused string
	// keepRefused says that the member does not let the Secret be kept from being pruned; apply fills it.
	keepRefused bool
}

// password is what is known about the Secret; never the password itself.
type password struct {
	// exists says that there is a Secret of that name.
	exists bool
	// problem says why it cannot be used; empty when it can, or when it does not exist.
	problem string
	// version changes with the password, previous with the one before it; empty when only one is accepted.
	version, previous string
	// keep is what keeps a generated password from being pruned; nil when nothing has to change.
	keep *metadataPatch
}

// versions returns the versions of the passwords that Pods accept, the one that replicas use first. That is the previous
// one as long as it is there, because Pods that were started before the new one do not accept that.
func (p password) versions() []string {
	if p.previous != "" {
		return []string{p.previous, p.version}
	}
	return []string{p.version}
}

// pod is what the plan and the report need of a Pod.
type pod struct {
	name            string
	ordinal         int32
	uid             types.UID
	resourceVersion string
	node            string
	hash            string
	// config is the name of the ConfigMap that it was started with.
	config   string
	created  time.Time
	deleting bool
	// ends is when a Pod that is being deleted should have ended.
	ends time.Time
	// unscheduled is until when it is not said that no node takes it; zero when there is nothing to say.
	unscheduled time.Time
	// resources are those of its server, and port is where that listens; 0 when it does not say.
	resources corev1.ResourceRequirements
	port      int32
	ready     bool
	// changed is when ready last changed.
	changed time.Time
	// probed says that its server runs and does not pass its readiness probe, whose output is in events only.
	probed bool
	// risk says why the Pod must not be replaced; nil when it may. The plan fills it.
	risk *problem
	// diagnosis says why the Pod is not Ready, as far as that is known.
	diagnosis
}

// observe reads everything from the caches, and live what they do not have: they are selected by label, so an object
// that they miss may exist all the same.
func observe(ctx context.Context, member cluster.Cluster, redis *flotillav1.Redis, now time.Time) (*state, error) {
	s := &state{redis: redis, spec: spec(redis), now: now, services: map[string]*corev1.Service{}}
	var err error
	if s.statefulSet, err = readChild(ctx, member, s, redis.Name, &appsv1.StatefulSet{}); err != nil {
		return nil, err
	}
	if err := s.observeConfigMaps(ctx, member); err != nil {
		return nil, err
	}
	if err := s.observeBudget(ctx, member); err != nil {
		return nil, err
	}
	for _, service := range renderServices(redis, &s.spec) {
		live, err := readChild(ctx, member, s, service.Name, &corev1.Service{})
		if err != nil {
			return nil, err
		}
		if live != nil {
			s.services[service.Name] = live
		}
	}
	if err := s.observePods(ctx, member); err != nil {
		return nil, err
	}
	if err := s.observeAbsence(ctx, member.GetAPIReader()); err != nil {
		return nil, err
	}
	if err := s.observePassword(ctx, member.GetAPIReader()); err != nil {
		return nil, err
	}
	return s, s.observeClaims(ctx, member)
}

// readChild returns the child of that name, or nil when there is none or it is not ours.
func readChild[T interface {
	comparable
	client.Object
}](ctx context.Context, member cluster.Cluster, s *state, name string, obj T) (T, error) {
	var none T
	key := client.ObjectKey{Namespace: s.redis.Namespace, Name: name}
	err := member.GetClient().Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		err = member.GetAPIReader().Get(ctx, key, obj)
	}
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("reading %s %q: %w", kindOf(obj), name, err)
	}
	if !metav1.IsControlledBy(obj, s.redis) {
		s.foreign = append(s.foreign, kindOf(obj)+" "+name)
		return none, nil
	}
	return obj, nil
}

// observeBudget reads the budget. Where none is asked for, one that a person brings may have our name.
func (s *state) observeBudget(ctx context.Context, member cluster.Cluster) error {
	foreign := s.foreign
	var err error
	if s.budget, err = readChild(ctx, member, s, s.redis.Name, &policyv1.PodDisruptionBudget{}); err != nil {
		return err
	}
	if !*s.spec.PodDisruptionBudget.Enabled {
		s.foreign = foreign
	}
	return nil
}

// kindOf names the kind of a child, which typed objects from a cache do not say.
func kindOf(obj client.Object) string {
	switch obj.(type) {
	case *appsv1.StatefulSet:
		return "StatefulSet"
	case *corev1.ConfigMap:
		return "ConfigMap"
	case *corev1.Service:
		return "Service"
	case *policyv1.PodDisruptionBudget:
		return "PodDisruptionBudget"
	case *corev1.Secret:
		return "Secret"
	default:
		return fmt.Sprintf("%T", obj)
	}
}

func (s *state) observePods(ctx context.Context, member cluster.Cluster) error {
	if s.statefulSet == nil {
		return nil
	}
	var list corev1.PodList
	err := member.GetClient().List(ctx, &list, client.InNamespace(s.redis.Namespace), client.MatchingLabels(selectorLabels(s.redis.Name)))
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	for i := range list.Items {
		seen := &list.Items[i]
		if crashed(seen) {
			// The caches do not keep why a container ended before; only a Pod that does not run is worth a request.
			live := &corev1.Pod{}
			err := member.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(seen), live)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading Pod %q: %w", seen.Name, err)
			}
			if err == nil && live.UID == seen.UID {
				seen = live
			}
		}
		view, ok := viewPod(seen, s.statefulSet)
		if !ok {
			continue
		}
		view.holdBack(seen, s.now)
		if err := readProbe(ctx, member.GetAPIReader(), seen, &view); err != nil {
			return err
		}
		if err := s.observeNode(ctx, member.GetAPIReader(), &view); err != nil {
			return err
		}
		s.pods = append(s.pods, view)
	}
	slices.SortFunc(s.pods, func(a, b pod) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return nil
}

// unlogged is for requests about Secrets: client-go logs whole bodies at verbosity 8.
func unlogged(ctx context.Context) context.Context {
	return logr.NewContext(ctx, logr.Discard())
}

func (s *state) observePassword(ctx context.Context, reader client.Reader) error {
	if s.spec.Auth.Mode != flotillav1.RedisAuthPassword {
		return nil
	}
	ref := secretRef(s.redis, &s.spec)
	secret := &corev1.Secret{}
	err := reader.Get(unlogged(ctx), client.ObjectKey{Namespace: s.redis.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Secret %q: %w", ref.Name, err)
	}
	s.password, err = viewSecret(client.ObjectKeyFromObject(s.redis), secret, ref.Key)
	if secret.Labels[flotillav1.LabelRedis] == s.redis.Name && secret.DeletionTimestamp == nil {
		if keep, needed := keepPatch("Secret", secret); needed {
			s.password.keep = &keep
		}
	}
	return err
}

// viewSecret says whether a Secret can be used and which version its password has.
func viewSecret(redis types.NamespacedName, secret *corev1.Secret, key string) (password, error) {
	seen := password{exists: true}
	value, found := secret.Data[key]
	switch {
	case secret.Labels[flotillav1.LabelRedisAuth] != "true":
		seen.problem = fmt.Sprintf("Secret %s lacks label %s=true, which consents to its use as a password", secret.Name, flotillav1.LabelRedisAuth)
		return seen, nil
	case !found:
		seen.problem = fmt.Sprintf("Secret %s lacks key %s", secret.Name, key)
		return seen, nil
	}
	text, ok := passwordText(value)
	if !ok {
		seen.problem = fmt.Sprintf("Key %s of Secret %s is not a password: one line of 1 to 512 bytes without control characters", key, secret.Name)
		return seen, nil
	}
	var err error
	if seen.version, err = passwordVersion(redis, text); err != nil {
		return seen, err
	}
	previous := previousKey(key)
	earlier := secret.Data[previous]
	if len(earlier) == 0 {
		return seen, nil
	}
	before, ok := passwordText(earlier)
	switch {
	case !ok:
		seen.problem = fmt.Sprintf("Key %s of Secret %s is not a password: one line of 1 to 512 bytes without control characters", previous, secret.Name)
	case before != text:
		seen.previous, err = passwordVersion(redis, before)
	}
	return seen, err
}

// passwordText returns the password as the start script reads it: a line, with or without its end.
func passwordText(value []byte) (string, bool) {
	if n := len(value); n > 0 && value[n-1] == '\n' {
		value = value[:n-1]
	}
	control := slices.ContainsFunc(value, func(b byte) bool { return b < ' ' || b == 0x7f })
	return string(value), len(value) > 0 && len(value) <= 512 && !control
}

func (s *state) observeClaims(ctx context.Context, member cluster.Cluster) error {
	s.claims = map[int32]*corev1.PersistentVolumeClaim{}
	if s.spec.Storage.Type != flotillav1.RedisStoragePVC {
		return nil
	}
	var list corev1.PersistentVolumeClaimList
	err := member.GetClient().List(ctx, &list, client.InNamespace(s.redis.Namespace), client.MatchingLabels(selectorLabels(s.redis.Name)))
	if err != nil {
		return fmt.Errorf("listing PersistentVolumeClaims: %w", err)
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if ordinal, ok := ordinalOf(claim.Name, dataVolume+"-"+s.redis.Name); ok && ordinal < maxOrdinals {
			s.claims[ordinal] = claim
		}
	}
	var unseen []int32
	for _, p := range s.pods {
		// A claim that a person has restored may lack our label.
		if s.claims[p.ordinal] == nil {
			unseen = append(unseen, p.ordinal)
		}
	}
	if s.claims[0] == nil && len(s.pods) == 0 && !s.password.exists && s.spec.Auth.Mode == flotillav1.RedisAuthPassword {
		// A password is about to be generated, or called lost, by whether there is data.
		unseen = append(unseen, 0)
	}
	for _, ordinal := range unseen {
		if err := s.readClaim(ctx, member.GetAPIReader(), ordinal); err != nil {
			return err
		}
	}
	return nil
}

// readClaim reads a claim live.
func (s *state) readClaim(ctx context.Context, reader client.Reader, ordinal int32) error {
	claim := &corev1.PersistentVolumeClaim{}
	name := claimName(s.redis.Name, ordinal)
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.redis.Namespace, Name: name}, claim)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading PersistentVolumeClaim %q: %w", name, err)
	}
	if err == nil {
		s.claims[ordinal] = claim
	}
	return nil
}

// podAt returns the Pod of an ordinal.
func (s *state) podAt(ordinal int32) (pod, bool) {
	at := slices.IndexFunc(s.pods, func(p pod) bool { return p.ordinal == ordinal })
	if at < 0 {
		return pod{}, false
	}
	return s.pods[at], true
}
