// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestPassing(t *testing.T) {
	object := func(created time.Time, progressing metav1.ConditionStatus) *flotillav1.Redis {
		redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
		if progressing != "" {
			redis.Status.Conditions = []metav1.Condition{{Type: flotillav1.ConditionProgressing, Status: progressing}}
		}
		return redis
	}
	deleted := func(at time.Time) *flotillav1.Redis {
		redis := object(noon.Add(-time.Hour), metav1.ConditionFalse)
		redis.DeletionTimestamp = &metav1.Time{Time: at}
		return redis
	}
	young := noon.Add(-500 * time.Millisecond)
	for name, tc := range map[string]struct {
		before, after *flotillav1.Redis
		want          time.Duration
	}{
		"copies are being made":      {object(young, ""), object(young, metav1.ConditionTrue), 1500 * time.Millisecond},
		"all of them are ready":      {object(young, ""), object(young, metav1.ConditionFalse), 0},
		"it takes them longer":       {object(noon.Add(-2*time.Second), ""), object(young, metav1.ConditionTrue), 0},
		"it has a status":            {object(young, metav1.ConditionTrue), object(young, metav1.ConditionTrue), 0},
		"it was deleted just now":    {deleted(young), object(young, metav1.ConditionTrue), 1500 * time.Millisecond},
		"its removal is held":        {deleted(young), object(young, metav1.ConditionFalse), 0},
		"its removal takes longer":   {deleted(noon.Add(-2 * time.Second)), object(young, metav1.ConditionTrue), 0},
		"the clock of the hub leads": {object(noon.Add(time.Second), ""), object(young, metav1.ConditionTrue), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if wait := passing(tc.before, tc.after, noon); wait != tc.want {
				t.Errorf("it waits for %s, want %s", wait, tc.want)
			}
		})
	}
}
