// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"fmt"
	"strings"
	"testing"
)

// TestLinks plays seconds in which the sentinel uses so many hundredths of its CPU.
func TestLinks(t *testing.T) {
	const (
		set    = "sentinel set mymaster auth-user "
		config = "sentinel config set sentinel-user "
	)
	steady := func(seconds, each int) (used []int) {
		for range seconds {
			used = append(used, each)
		}
		return used
	}
	for name, tc := range map[string]struct {
		used  []int
		flags string
		want  int
	}{
		"at rest":                         {used: steady(30, 1), flags: "master"},
		"a Pod that is not there":         {used: []int{90, 1, 1, 90, 1, 1, 95, 30, 1, 90, 1, 1}, flags: "master"},
		"busy and at rest":                {used: []int{70, 70, 70, 1, 1, 1, 1, 1, 1}, flags: "master", want: 1},
		"busy on a crowded node":          {used: []int{12, 11, 15, 1, 1, 1, 1, 1, 1}, flags: "master", want: 1},
		"busy all the time":               {used: steady(29, 99), flags: "master", want: 3},
		"busy again after a while":        {used: append(append(steady(3, 70), steady(5, 1)...), steady(3, 70)...), flags: "master", want: 2},
		"busy in a failover":              {used: steady(12, 99), flags: "master,failover_in_progress"},
		"busy while it is down":           {used: steady(12, 99), flags: "s_down,master"},
		"a sentinel that does not answer": {used: steady(12, 99)},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "0")
			p.env["FLOTILLA_STAT"] = p.path("stat")
			if tc.flags != "" {
				p.answers(map[string]string{"127.0.0.1 26379 sentinel master mymaster": "name\nmymaster\nflags\n" + tc.flags})
			}
			spent, script := 1000, "case $n in\n"
			stat := func() string {
				return fmt.Sprintf("1 (redis-server) S 0 1 1 0 -1 4194560 1 2 3 4 %d %d 0 0 20 0 5 0\n", spent-900, 900)
			}
			p.write("stat", stat())
			for i, used := range tc.used {
				spent += used
				script += fmt.Sprintf("%d) printf '%%s\\n' '%s' >%s ;;\n", i+1, strings.TrimSpace(stat()), p.path("stat"))
			}
			// The container ends.
			p.write("answers/on sleep", script+fmt.Sprintf("*) : >%s ;;\nesac\n", p.path("stat")))
			output, _ := p.run("voter-links.sh")
			asked := p.read("answers/asked")
			for _, command := range []string{set, config} {
				got := strings.Count(asked, "127.0.0.1 26379 "+command+"\n")
				if got != tc.want {
					t.Errorf("%q was asked %d times, want %d\n%s", command, got, tc.want, output)
				}
			}
		})
	}
}
