// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"cmp"
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

// replica is what a replica says, line by line, with the state of its link and its priority.
func replica(link, priority string) string {
	return `printf '# Replication\r\nrole:slave\r\nmaster_host:10.0.0.10\r\nmaster_link_status:` + link + `\r\nslave_priority:` + priority +
		`\r\nrepl_backlog_histlen:90\r\n'
`
}

// TestKeeper_of_a_replica has a server that says something, and looks at what it is asked for then.
func TestKeeper_of_a_replica(t *testing.T) {
	const priority, following = "config set replica-priority ", "replicaof "
	const copying = `down\r\nmaster_sync_in_progress:1`
	for name, tc := range map[string]struct {
		ordinal, says  string
		votes          []string
		set            []string
		leaves         bool
		want, unwanted string
	}{
		"in sync for the first time":         {says: replica("up", "0"), want: priority + "100", unwanted: following},
		"in sync still":                      {says: replica("up", "100"), want: "config set min-replicas-to-write 1", unwanted: priority},
		"copies everything":                  {says: replica(copying, "100"), want: priority + "0"},
		"lost its link":                      {says: replica("down", "100"), votes: []string{"10.0.0.10", "10.0.0.10"}, unwanted: priority},
		"lost its link, others say whose":    {says: replica("down", "100"), votes: []string{"10.0.0.12", "", "10.0.0.12"}, want: following + "10.0.0.12 6379", unwanted: priority},
		"lost its link, one voter only":      {says: replica("down", "100"), votes: []string{"10.0.0.12"}, unwanted: following},
		"lost its link, is named itself":     {says: replica("down", "100"), votes: []string{"10.0.0.11", "10.0.0.11"}, unwanted: following},
		"follows another, its link is up":    {says: replica("up", "100"), votes: []string{"10.0.0.12", "10.0.0.12"}, unwanted: following},
		"is being deleted":                   {says: replica("up", "100"), leaves: true, want: priority + "0"},
		"does not vote":                      {ordinal: "3", says: replica("up", "100"), votes: []string{"10.0.0.10", "10.0.0.10"}, want: priority + "0", unwanted: following},
		"does not vote and follows another":  {ordinal: "3", says: replica("up", "0"), votes: []string{"10.0.0.12", "10.0.0.12"}, want: following + "10.0.0.12 6379", unwanted: priority},
		"is chosen by a person":              {says: replica("down", "0"), set: []string{"FORCE_PRIMARY=1"}, want: priority + "1"},
		"is not the one chosen by a person":  {says: replica("down", "0"), set: []string{"FORCE_PRIMARY=2"}, unwanted: priority},
		"addresses of voters are not known":  {says: replica("up", "0"), set: []string{`ADDRESSES="10.0.0.10"`}, unwanted: "config set"},
		"is gone":                            {says: "", unwanted: "config set"},
		"is loading and says something else": {says: "printf 'LOADING Redis is loading the dataset in memory\\r\\n'\n", unwanted: "config set"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, cmp.Or(tc.ordinal, "1"))
			p.env["PATIENCE"] = "2"
			p.set(tc.set...)
			p.votes(tc.votes...)
			if tc.leaves {
				p.write("run/leaving", "yes")
			}
			p.write("answers/over time 127.0.0.1 6379", tc.says)
			output, _ := p.run("keeper.sh")
			asked := p.read("answers/asked")
			if tc.want != "" && !p.asked(tc.want) || tc.unwanted != "" && strings.Contains(asked, tc.unwanted) {
				t.Errorf("it was asked:\n%swant %q and not %q\n%s", asked, tc.want, tc.unwanted, output)
			}
		})
	}
}

// TestKeeper_of_a_primary has voters that name another one, or nobody, and then change their mind.
func TestKeeper_of_a_primary(t *testing.T) {
	const refuse, accept = "config set min-replicas-to-write 9", "config set min-replicas-to-write 1"
	named := func(pod *pod, address string) string {
		pod.write("run/vote", address+"\n6379\n")
		script := ""
		for _, voter := range []string{"10.0.0.10", "10.0.0.12"} {
			script += `while IFS= read -r l; do printf '%s\n' "$l"; done <"$ANSWERS/../run/vote" >"$ANSWERS/` + voter + " 26379 " + whom + "\"\n"
		}
		return script
	}
	for name, tc := range map[string]struct {
		votes      []string
		successor  string
		fenceAfter string
		renamed    string
		want       []string
		unwanted   string
	}{
		"another is named":               {votes: []string{"10.0.0.12", "", "10.0.0.12"}, fenceAfter: "1", want: []string{"config set replica-priority 0", refuse}, unwanted: accept},
		"the one that is named serves":   {votes: []string{"10.0.0.12", "", "10.0.0.12"}, successor: "role:master", fenceAfter: "1", want: []string{refuse, "127.0.0.1 6379 replicaof 10.0.0.12 6379"}, unwanted: accept},
		"it does not yet":                {votes: []string{"10.0.0.12", "", "10.0.0.12"}, successor: "role:slave", fenceAfter: "1", want: []string{refuse}, unwanted: "replicaof"},
		"it serves for a moment":         {votes: []string{"10.0.0.12", "", "10.0.0.12"}, successor: "role:master", fenceAfter: "60", unwanted: "replicaof"},
		"it serves by one vote":          {votes: []string{"10.0.0.12"}, successor: "role:master", fenceAfter: "1", want: []string{refuse}, unwanted: "replicaof"},
		"nobody is named":                {fenceAfter: "1", want: []string{refuse}, unwanted: accept},
		"one voter is not enough":        {votes: []string{"10.0.0.11"}, fenceAfter: "1", want: []string{refuse}, unwanted: accept},
		"not named for a moment":         {fenceAfter: "60", want: []string{"config set replica-priority 0"}, unwanted: "min-replicas"},
		"named again after it was":       {fenceAfter: "1", renamed: "10.0.0.11", want: []string{refuse, accept}},
		"another is named, and stays so": {fenceAfter: "1", renamed: "10.0.0.10", want: []string{refuse}, unwanted: accept},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "1")
			p.env["PATIENCE"] = "2"
			p.set("FENCE_AFTER=" + tc.fenceAfter)
			p.votes(tc.votes...)
			if tc.successor != "" {
				p.answers(map[string]string{"10.0.0.12 6379 info replication": tc.successor})
			}
			says := info
			if tc.renamed != "" {
				says += "/bin/sleep 2\n" + named(p, tc.renamed)
			}
			p.write("answers/over time 127.0.0.1 6379", says+info)
			output, _ := p.run("keeper.sh")
			asked := p.read("answers/asked")
			for _, want := range tc.want {
				if !p.asked(want) {
					t.Errorf("it was not asked for %q", want)
				}
			}
			if tc.unwanted != "" && strings.Contains(asked, tc.unwanted) {
				t.Errorf("it was asked for %q", tc.unwanted)
			}
			if refused := strings.Count(asked, refuse); refused > 1 {
				t.Errorf("it was fenced %d times", refused)
			}
			if t.Failed() {
				t.Logf("asked:\n%s%s", asked, output)
			}
		})
	}
}

// TestKeeper_of_a_primary_that_became_a_replica listens to the other voters only while it is a primary.
func TestKeeper_of_a_primary_that_became_a_replica(t *testing.T) {
	p := newPod(t, "1")
	p.env["PATIENCE"] = "1"
	p.set("FENCE_AFTER=60")
	const look = "/bin/sleep 0.3\n[ ! -s \"$ANSWERS/../run/watching\" ] || printf 'watches\\n' >>\"$ANSWERS/../run/seen\"\n"
	p.write("answers/over time 127.0.0.1 6379", info+look+replica("up", "0"))
	output, _ := p.run("keeper.sh")
	if p.read("run/seen") != "watches\n" || p.read("run/watching") != "" || !p.asked("config set replica-priority 100") {
		t.Errorf("it watched %q, and still does %q\n%s\n%s", p.read("run/seen"), p.read("run/watching"), p.read("answers/asked"), output)
	}
}
