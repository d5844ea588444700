// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// diskClass is the StorageClass of small filesystems, which hack/e2e.sh makes and breaks.
	diskClass = "disks"
	// patience is longer than a liveness probe waits before it has a server killed.
	patience = 75 * time.Second
	// snapshotTime is longer than a server takes to its next snapshot when only few writes get through.
	snapshotTime = 6 * time.Minute
)

// fault is something wrong with the volume of a Pod, in a mode of persistence that cannot do without it.
type fault struct {
	name, mode, reason string
	// begin and end are commands for the filesystem.
	begin, end []string
	// appended says that the append-only file has everything all the same, so that an update may go on.
	appended bool
}

var faults = []fault{
	{
		name: "volume full", mode: flotillav1.RedisPersistenceAOF, reason: flotillav1.ReasonDiskFull,
		begin: []string{"room", "64"}, end: []string{"room", "32768"},
	},
	{
		// A snapshot that fails before the append-only file does would have another reason: there is next to no room.
		name: "volume full", mode: flotillav1.RedisPersistenceAOFAndRDB, reason: flotillav1.ReasonDiskFull,
		begin: []string{"room", "4"}, end: []string{"room", "32768"},
	},
	{
		name: "no room for snapshots", mode: flotillav1.RedisPersistenceRDB, reason: flotillav1.ReasonSnapshotFailed,
		begin: []string{"room", "64"}, end: []string{"room", "32768"},
	},
	{
		name: "snapshots forbidden", mode: flotillav1.RedisPersistenceAOFAndRDB, reason: flotillav1.ReasonSnapshotFailed,
		begin: []string{"mode", "0555"}, end: []string{"mode", "0777"}, appended: true,
	},
}

// TestVolumes breaks the volume of a replica, then that of the primary: servers that cannot write are left alone, say why,
// and recover by themselves.
func TestVolumes(t *testing.T) {
	w := connect(t)
	for _, e := range w.engines() {
		t.Run(e.name, func(t *testing.T) {
			what := "volumes, " + e.name
			if testing.Short() {
				notRun(t, what, "only the short selection was asked for")
			}
			if !w.ours() {
				notRun(t, what, "the machines below the given clusters are not ours to break")
			}
			e.mustHaveImage(t)
			for i, f := range faults {
				t.Run(f.name+", "+f.mode, func(t *testing.T) {
					t.Parallel()
					f.try(t, w, fmt.Sprintf("e2e-volume-%s-%d", e.id, i), e)
				})
			}
		})
	}
}

func (f fault) try(t *testing.T, w *world, namespace string, e engine) {
	const replicas = 2
	for ordinal := range replicas {
		w.provideDisk(t, namespace, ordinal)
	}
	r := w.create(t, namespace, w.members[:1], flotillav1.RedisSpec{
		Image: e.image, Replicas: new(int32(replicas)),
		Persistence: flotillav1.RedisPersistence{Mode: f.mode},
		Storage:     flotillav1.RedisStorage{StorageClassName: new(diskClass)},
	})
	r.mustBe(t, e.says)
	runAll(t, []scenario{
		{name: f.name + ", replica", run: f.breakReplica},
		{name: f.name + ", primary", run: f.breakPrimary},
	}, story{instance: r}, ", "+f.mode+", "+e.name)
	t.Run("no password anywhere", r.noPasswordAnywhere)
	r.remove(t)
}

func diskName(namespace string, ordinal int) string { return fmt.Sprintf("%s-%d", namespace, ordinal) }

// provideDisk makes a small filesystem in the first member and has it bound to the claim of a Pod.
func (w *world) provideDisk(t *testing.T, namespace string, ordinal int) {
	t.Helper()
	member, name := w.members[0], diskName(namespace, ordinal)
	dir, err := filepath.Abs(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	w.machine(t, "disk", member.name, name, "make")
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: diskClass}, Provisioner: "kubernetes.io/no-provisioner"}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              diskClass,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: namespace, Name: fmt.Sprintf("data-%s-%d", redisName, ordinal)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(dir, "clusters", member.name, "disks", name)},
			},
		},
	}
	t.Cleanup(func() {
		_ = member.Delete(context.WithoutCancel(t.Context()), volume)
		w.machine(t, "disk", member.name, name, "drop")
	})
	if err := member.Create(t.Context(), class); client.IgnoreAlreadyExists(err) != nil {
		t.Fatalf("creating StorageClass %q: %v", diskClass, err)
	}
	if err := member.Create(t.Context(), volume); err != nil {
		t.Fatalf("creating PersistentVolume %q: %v", name, err)
	}
}

// breakReplica shows that the primary does not care, and that the replica follows it in memory.
func (f fault) breakReplica(t *testing.T, s *story) {
	before := s.identities(t, s.member)
	w := s.mustKeepAll(t, func(w *writer) {
		f.hold(t, s, 1, w)
		s.mustFollow(t)
		f.mend(t, s, 1)
	})
	s.mustBeUntouched(t, s.member, before)
	w.mustFlow(t, "the primary was not touched")
}

// breakPrimary shows that writes are refused until the volume is mended, that no update ends the server before that where
// its memory has more than the volume, and that the volume has everything afterwards.
func (f fault) breakPrimary(t *testing.T, s *story) {
	s.mustKeepAll(t, func(w *writer) {
		if f.mode != flotillav1.RedisPersistenceRDB {
			s.rewriteFile(t)
		}
		before := s.identities(t, s.member)
		if f.appended {
			f.hold(t, s, 0, w)
			f.mend(t, s, 0)
			s.mustBeUntouched(t, s.member, before)
			s.replacePrimary(t)
			return
		}
		f.hold(t, s, 0, w)
		s.ask(t, func(spec *flotillav1.RedisSpec) { spec.Config = map[string]flotillav1.ConfigValue{"hz": "23"} })
		s.awaitCondition(t, flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue, f.reason)
		s.tell("update blocked")
		s.mustBeUntouched(t, s.member, map[string]string{redisName + "-0": before[redisName+"-0"]})
		f.mend(t, s, 0)
		eventually(t, settleTime, "the update replaces the primary", func(ctx context.Context) error {
			if s.identities(t, s.member)[redisName+"-0"] == before[redisName+"-0"] {
				return fmt.Errorf("it is the same as before")
			}
			return s.allReady(ctx, s.member, len(before))
		})
	})
}

// hold breaks the volume of a Pod and looks for longer than any probe waits: the server is not ended, answers, is not
// Ready, and the Redis says why.
func (f fault) hold(t *testing.T, s *story, ordinal int, w *writer) {
	t.Helper()
	before := s.identities(t, s.member)
	began := time.Now()
	s.disk(t, ordinal, f.begin)
	eventually(t, snapshotTime, "Degraded becomes True "+f.reason, func(ctx context.Context) error {
		seen, err := s.copyOf(ctx, s.member)
		if err != nil {
			return err
		}
		return has(seen, flotillav1.ConditionDegraded, metav1.ConditionTrue, f.reason)
	})
	s.awaitCondition(t, flotillav1.ConditionReady, metav1.ConditionFalse, "")
	s.awaitEvent(t, f.reason, podName(ordinal))
	s.tell("%s after %.0fs", f.reason, time.Since(began).Seconds())
	acknowledged := w.acks.Load()
	lasts(t, patience, time.Second, "a server that cannot write is left alone", func(context.Context) error {
		if err := s.untouched(t, s.member, before); err != nil {
			return err
		}
		if more := w.acks.Load() - acknowledged; ordinal == 0 && more > 0 {
			return fmt.Errorf("%d writes were acknowledged", more)
		}
		return nil
	})
	eventually(t, settleTime, "the server answers, and the Redis says what it lacks", func(ctx context.Context) error { return f.visible(ctx, s, ordinal) })
	s.tell("no restart in %.0fs", time.Since(began).Seconds())
}

// visible tells what of a fault cannot be seen.
func (f fault) visible(ctx context.Context, s *story, ordinal int) error {
	pods, err := s.pods(ctx, s.member)
	if err != nil {
		return err
	}
	name := podName(ordinal)
	if podReady(pods[name]) {
		return fmt.Errorf("%s is Ready", name)
	}
	c := s.dialPod(pods[name])
	defer func() { _ = c.Close() }()
	var answer redis.Error
	if err := c.Ping(ctx).Err(); !errors.As(err, &answer) || !strings.HasPrefix(answer.Error(), "MISCONF ") {
		return fmt.Errorf("%s answers PING with %w", name, err)
	}
	if err := c.DBSize(ctx).Err(); err != nil {
		return fmt.Errorf("%s does not serve reads: %w", name, err)
	}
	seen, err := s.copyOf(ctx, s.member)
	if err != nil {
		return err
	}
	return has(seen, flotillav1.ConditionDegraded, metav1.ConditionTrue, f.reason)
}

// mend ends the fault and waits until all is well. An update that waited for this may replace the Pod at once.
func (f fault) mend(t *testing.T, s *story, ordinal int) {
	t.Helper()
	name := podName(ordinal)
	mended := time.Now()
	s.disk(t, ordinal, f.end)
	eventually(t, snapshotTime, name+" is Ready again", func(ctx context.Context) error {
		pods, err := s.pods(ctx, s.member)
		if err == nil && !podReady(pods[name]) {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	s.tell("Ready %.0fs after it was mended", time.Since(mended).Seconds())
}

func (s *story) disk(t *testing.T, ordinal int, command []string) {
	t.Helper()
	s.machine(t, append([]string{"disk", s.member.name, diskName(s.namespace, ordinal)}, command...)...)
}

// mustFollow writes something and waits until the replica has it.
func (s *story) mustFollow(t *testing.T) {
	t.Helper()
	primary := s.dialPrimary()
	defer func() { _ = primary.Close() }()
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	replica := s.dialPod(pods[redisName+"-1"])
	defer func() { _ = replica.Close() }()
	eventually(t, settleTime, "the replica follows", func(ctx context.Context) error {
		return errors.Join(primary.Set(ctx, "followed", "yes", 0).Err(), replica.Get(ctx, "followed").Err())
	})
}

// rewriteFile has the append-only file of the primary rewritten, as servers do by themselves when it has grown. The file
// that is begun then is opened otherwise than at the start of a server.
func (s *story) rewriteFile(t *testing.T) {
	t.Helper()
	c := s.dialPrimary()
	defer func() { _ = c.Close() }()
	if err := c.BgRewriteAOF(t.Context()).Err(); err != nil {
		t.Fatalf("rewriting the append-only file: %v", err)
	}
	eventually(t, settleTime, "the append-only file is rewritten", func(ctx context.Context) error {
		info, err := c.Info(ctx, "persistence").Result()
		if err == nil && (!strings.Contains(info, "aof_rewrite_in_progress:0") || !strings.Contains(info, "aof_rewrite_scheduled:0") || strings.Contains(info, "aof_rewrites:0")) {
			err = errors.New(info)
		}
		return err
	})
}

// replacePrimary ends the server of the primary, so that the next one has what is on the volume.
func (s *story) replacePrimary(t *testing.T) {
	t.Helper()
	var pod corev1.Pod
	s.get(t, redisName+"-0", &pod)
	s.drop(t, &corev1.Pod{}, pod.Name)
	s.awaitReplaced(t, pod.Name, pod.UID)
}
