// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"strings"
	"testing"
	"time"
)

// info is what a primary says, line by line; the history of the backlog is the last one.
const info = `printf '# Replication\r\nrole:master\r\nconnected_slaves:2\r\nrepl_backlog_histlen:90\r\n'
`

// TestKeeper_reports_a_new_primary has voters that name the Pod of the keeper. At first none of their answers has been heard
// on a stream, so the keeper asks them itself.
func TestKeeper_reports_a_new_primary(t *testing.T) {
	for name, streams := range map[string]bool{"voters that are asked": false, "voters that are heard": true} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "1")
			p.votes("10.0.0.11", "10.0.0.11", "10.0.0.11")
			p.write("run/sentinel.conf", kept)
			p.write("answers/over time 127.0.0.1 6379", info+info+info)
			if streams {
				// By the time that the server speaks a second time, the voters have been heard.
				for _, voter := range []string{"10.0.0.10", "127.0.0.1", "10.0.0.12"} {
					p.write("answers/over time "+voter+" 26379", "printf '10.0.0.11\\n6379\\n'\n")
				}
			}
			output, code := p.run("keeper.sh")
			if code != 0 || p.read("message") != "primary 7\n" || p.read("run/told") != "7\n" {
				t.Errorf("exit code %d, message %q, told %q\n%s", code, p.read("message"), p.read("run/told"), output)
			}
		})
	}
}

// TestKeeper_looks_again_at_what_its_voter_knows has a configuration that the voter had written before the keeper looked, and
// put in place afterwards: it is older than the look.
func TestKeeper_looks_again_at_what_its_voter_knows(t *testing.T) {
	p := newPod(t, "1")
	p.votes("10.0.0.11", "10.0.0.11", "10.0.0.11")
	p.write("run/sentinel.conf", strings.NewReplacer("10.0.0.11", "10.0.0.10", "epoch mymaster 7", "epoch mymaster 6").Replace(kept))
	p.write("run/next", kept)
	p.age("run/next", time.Hour)
	p.write("answers/over time 127.0.0.1 6379", info+"/bin/mv $ANSWERS/../run/next $ANSWERS/../run/sentinel.conf\n"+info+info)
	output, code := p.run("keeper.sh")
	if code != 0 || p.read("message") != "primary 7\n" {
		t.Errorf("exit code %d, message %q\n%s", code, p.read("message"), output)
	}
}
