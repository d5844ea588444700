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
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// state is what one pass has observed. Plan and report only read it.
type state struct {
	redis *flotillav1.Redis
	// spec is the spec of redis with defaults.
	spec flotillav1.RedisSpec
	now  time.Time

	// The children that exist and belong to the Redis; others are nil or missing.
	statefulSet *appsv1.StatefulSet
	// configMap has the files that Pods of the current spec start with, record the record, and former is the ConfigMap of
	// an earlier version.
	configMap, record, former *corev1.ConfigMap
	// configMaps are all ConfigMaps that Pods were ever started with, including former and configMap.
	configMaps []*corev1.ConfigMap
	budget     *policyv1.PodDisruptionBudget
	services   map[string]*corev1.Service
	// foreign are objects with the name of a child that do not belong to the Redis, as "Kind name".
	foreign []string

	// pods are the Pods of the StatefulSet by ordinal.
	pods []pod
	// absent are the desired Pods that do not exist.
	absent absence
	// claims are the volume claims by ordinal.
	claims map[int32]*corev1.PersistentVolumeClaim
	// recorded is the content of record, or of former while there is no record.
	recorded topology
	password password
	// answers are the responses to earlier applies that altered an object.
	answers map[types.UID]answer
	// growthRefused explains why the member does not allow volumes to grow. apply sets it.
	growthRefused string
	// keepRefused reports whether the member does not allow the Secret to be protected from pruning. apply sets it.
	keepRefused bool
}

// password describes the Secret, without the password itself.
type password struct {
	// exists reports whether the Secret exists.
	exists bool
	// problem explains why the Secret cannot be used. It is empty if it can be used or does not exist.
	problem string
	// version changes with the password, previous with the previous one. previous is empty if only one is accepted.
	version, previous string
	// keep protects a generated password from pruning; nil if nothing has to change.
	keep *metadataPatch
}

// versions returns the versions of the accepted passwords. Replicas use the first one. It is the previous password
// while there is one, because Pods that were started before the rotation do not accept the new one.
func (p password) versions() []string {
	if p.previous != "" {
		return []string{p.previous, p.version}
	}
	return []string{p.version}
}

// pod is a Pod as plan and report see it.
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
	// ends is when a Pod that is being deleted should have terminated.
	ends time.Time
	// unscheduled is until when a failure to schedule the Pod is not reported; zero if there is none.
	unscheduled time.Time
	// resources are those of its server, and port is where the server listens, or 0 if unknown.
	resources corev1.ResourceRequirements
	port      int32
	ready     bool
	// primary reports whether it is the primary. The plan sets it.
	primary bool
	besides
	// changed is when ready last changed.
	changed time.Time
	// probed reports whether its server runs but fails its readiness probe, whose output is only in events.
	probed bool
	// risk is the problem that forbids replacing the Pod, or nil. The plan sets it.
	risk *problem
	// diagnosis explains why the Pod is not Ready, as far as this is known.
	diagnosis
}

// observe reads everything from the caches, and live what is missing there: the caches select by label, so an object
// that is not cached may exist all the same.
func observe(ctx context.Context, member cluster.Cluster, redis *flotillav1.Redis, now time.Time) (*state, error) {
	s := &state{redis: redis, spec: redisspec.Of(redis), now: now, services: map[string]*corev1.Service{}}
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
	for _, service := range s.renderServices() {
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

// readChild returns the child with that name, or nil if there is none or it does not belong to the Redis.
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

// observeBudget reads the budget. If none is requested, an object with its name may belong to the user.
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

// kindOf returns the kind of a child, because typed objects from a cache do not contain it.
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
			// The caches do not keep the last termination of a container. Only a Pod that does not run is worth a request.
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

// unlogged is for requests about Secrets: client-go logs request bodies at verbosity 8.
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

// viewSecret determines whether a Secret can be used, and the version of its password.
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
	if seen.version, err = redisspec.PasswordVersion(redis, text); err != nil {
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
		seen.previous, err = redisspec.PasswordVersion(redis, before)
	}
	return seen, err
}

// passwordText returns the password as the start script reads it: one line, with or without a newline.
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
		// A claim that was restored by a person may lack the label.
		if s.claims[p.ordinal] == nil {
			unseen = append(unseen, p.ordinal)
		}
	}
	if s.claims[0] == nil && len(s.pods) == 0 && !s.password.exists && s.spec.Auth.Mode == flotillav1.RedisAuthPassword {
		// Whether there is data decides if a password is generated or reported as lost.
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

// viewPod returns the relevant parts of a Pod, or false if it does not belong to the StatefulSet.
func viewPod(seen *corev1.Pod, set *appsv1.StatefulSet) (pod, bool) {
	ordinal, ok := ordinalOf(seen.Name, set.Name)
	if !ok || !metav1.IsControlledBy(seen, set) {
		return pod{}, false
	}
	view := pod{
		name:            seen.Name,
		ordinal:         ordinal,
		uid:             seen.UID,
		resourceVersion: seen.ResourceVersion,
		node:            seen.Spec.NodeName,
		hash:            seen.Annotations[flotillav1.AnnotationSpecHash],
		config:          cmp.Or(seen.Annotations[flotillav1.AnnotationConfig], formerConfigName(set.Name)),
		created:         seen.CreationTimestamp.Time,
		changed:         seen.CreationTimestamp.Time,
		deleting:        seen.DeletionTimestamp != nil,
	}
	view.besides = besideServer(seen)
	if view.deleting {
		view.ends = seen.DeletionTimestamp.Time
	}
	if at := slices.IndexFunc(seen.Spec.Containers, func(c corev1.Container) bool { return c.Name == containerName }); at >= 0 {
		server := seen.Spec.Containers[at]
		view.resources = server.Resources
		if len(server.Ports) > 0 {
			view.port = server.Ports[0].ContainerPort
		}
	}
	if condition := podCondition(seen, corev1.PodReady); condition != nil {
		// A terminating Pod no longer counts, whatever its probe reports.
		view.ready = condition.Status == corev1.ConditionTrue && !view.deleting
		view.changed = condition.LastTransitionTime.Time
	}
	if !view.ready {
		view.diagnosis = cmp.Or(diagnoseBeside(seen), diagnose(seen))
		view.probed = probed(seen, view.ready) && !view.serves
	}
	return view, true
}
