// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"
)

func TestNormal_does_not_depend_on_how_long_things_took(t *testing.T) {
	const want = "AGO   OBJECT        REASON\n12s   Redis cache   RolloutBlocked\n12s   Redis cache   Blocked\n" +
		"OBJECT       SINCE   DETAIL\nRedis cache  12s     Not ready for 12s: x\n"
	for name, text := range map[string]string{
		"at once": "AGO   OBJECT        REASON\n1s    Redis cache   RolloutBlocked\n0s    Redis cache   Blocked\n" +
			"OBJECT       SINCE   DETAIL\nRedis cache  0s      Not ready for 0s: x\n",
		"within two minutes": "AGO    OBJECT        REASON\n119s   Redis cache   RolloutBlocked\n98s    Redis cache   Blocked\n" +
			"OBJECT       SINCE   DETAIL\nRedis cache  119s    Not ready for 119s: x\n",
		"within ten minutes": "AGO     OBJECT        REASON\n4m10s   Redis cache   RolloutBlocked\n100s    Redis cache   Blocked\n" +
			"OBJECT       SINCE   DETAIL\nRedis cache  4m10s   Not ready for 4m10s: x\n",
	} {
		if got := normal(text); got != want {
			t.Errorf("%s it is\n%s\nwant\n%s", name, got, want)
		}
	}
}
