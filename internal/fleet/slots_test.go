// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func slotKey(i int) ObjectKey {
	return ObjectKey{Kind: Redis.Name, Object: types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("cache-", i)}}
}

func TestSlots_are_given_in_the_order_of_the_line(t *testing.T) {
	s, woken := NewSlots(2), []ObjectKey(nil)
	s.Subscribe(func(key ObjectKey) { woken = append(woken, key) })
	for i, want := range []bool{true, true, false, false, false} {
		if got := s.Take(slotKey(i), "eu-1"); got != want {
			t.Errorf("object %d has a slot: %t", i, got)
		}
	}
	if !s.Take(slotKey(0), "eu-1") || !s.Take(slotKey(4), "us-1") || s.Free(slotKey(4), "eu-1") || !s.Free(slotKey(1), "eu-1") {
		t.Error("a slot is not kept, or taken in another cluster")
	}
	s.Forget(slotKey(3))
	s.Keep(slotKey(0), nil)
	s.Keep(slotKey(1), nil)
	if diff := cmp.Diff([]ObjectKey{slotKey(2), slotKey(4)}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if !s.Take(slotKey(4), "eu-1") || s.Take(slotKey(5), "eu-1") {
		t.Error("who is woken has no slot, or there are too many")
	}
}

func TestSlots_are_seeded_once_and_hold_more_if_they_have_to(t *testing.T) {
	s, calls := NewSlots(1), 0
	seed := func(err error) error {
		return s.Seed(func(keep func(ObjectKey, []string)) error {
			calls++
			keep(slotKey(0), []string{"eu-1"})
			keep(slotKey(1), []string{"eu-1"})
			return err
		})
	}
	if seed(fmt.Errorf("later")) == nil || seed(nil) != nil || seed(nil) != nil || calls != 2 {
		t.Errorf("seeded %d times", calls)
	}
	s.Keep(slotKey(0), nil)
	if s.Take(slotKey(2), "eu-1") {
		t.Error("the other object of the seed has lost its slot")
	}
	s.Keep(slotKey(1), nil)
	if !s.Take(slotKey(2), "eu-1") {
		t.Error("there is no room")
	}
}

func TestSlots_none_means_no_limit(t *testing.T) {
	s := NewSlots(0)
	s.Keep(slotKey(0), []string{"eu-1"})
	s.Forget(slotKey(0))
	if !s.Take(slotKey(1), "eu-1") || !s.Free(slotKey(1), "eu-1") {
		t.Error("there is a limit")
	}
}

// TestSlots_never_too_many_and_nobody_is_forgotten plays objects that change in clusters for a while, in any order.
func TestSlots_never_too_many_and_nobody_is_forgotten(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		limit, objects, clusters := 1+random.IntN(3), 2+random.IntN(8), 1+random.IntN(3)
		s := NewSlots(limit)
		queue := map[ObjectKey]bool{}
		s.Subscribe(func(key ObjectKey) { queue[key] = true })
		// left are the clusters that an object still has to change, and now those that it changes.
		left, now := map[ObjectKey][]string{}, map[ObjectKey][]string{}
		for i := range objects {
			queue[slotKey(i)] = true
			for c := range clusters {
				left[slotKey(i)] = append(left[slotKey(i)], fmt.Sprint("m", c))
			}
		}
		pass := func(key ObjectKey) {
			delete(queue, key)
			if len(now[key]) == 0 {
				for _, name := range left[key] {
					if s.Take(key, name) {
						now[key] = []string{name}
						break
					}
				}
			}
			s.Keep(key, now[key])
		}
		for range 2000 {
			if keys := slices.SortedFunc(maps.Keys(queue), func(a, b ObjectKey) int { return len(a.Object.Name) - len(b.Object.Name) }); len(keys) > 0 && random.IntN(3) > 0 {
				pass(keys[random.IntN(len(keys))])
			}
			if key := slotKey(random.IntN(objects)); len(now[key]) > 0 && random.IntN(2) == 0 {
				left[key] = slices.DeleteFunc(left[key], func(name string) bool { return name == now[key][0] })
				now[key] = nil
				queue[key] = true
			} else if random.IntN(200) == 0 {
				// It is deleted, and made again.
				s.Forget(key)
				now[key], queue[key] = nil, true
			}
			count := map[string]int{}
			for _, names := range now {
				for _, name := range names {
					count[name]++
				}
			}
			for name, n := range count {
				if n > limit {
					t.Fatalf("seed %d: %d objects change in %s, the limit is %d", seed, n, name, limit)
				}
			}
		}
		for key, names := range left {
			if len(names) > 0 {
				t.Fatalf("seed %d: %v waits for %v for ever; queued %v", seed, key, names, queue)
			}
		}
		if len(s.taken)+len(s.waiting)+len(s.clusters) > 0 {
			t.Fatalf("seed %d: left over are %v, %v and %v", seed, s.taken, s.waiting, s.clusters)
		}
	}
}
