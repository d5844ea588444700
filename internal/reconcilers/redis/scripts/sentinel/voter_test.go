// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	kept = `sentinel monitor mymaster 10.0.0.11 6379 2
sentinel config-epoch mymaster 7
sentinel leader-epoch mymaster 7
sentinel known-replica mymaster 10.0.0.10 6379
sentinel known-sentinel mymaster 10.0.0.10 26379 aaaa
sentinel current-epoch 8
`
	whole = kept + "# primary 1 7\n# instance shop/web\n# end\n"
)

// TestSentinel_learns_whom_to_monitor has the sources in their order: each case has those that come after it as well.
func TestSentinel_learns_whom_to_monitor(t *testing.T) {
	voter := map[string]string{
		"10.0.0.11 26379 " + whom: "10.0.0.12\n6379", "10.0.0.11 26379 sentinel master mymaster": "name\nmymaster\nconfig-epoch\n5",
		"10.0.0.12 26379 " + whom: "10.0.0.11\n6379", "10.0.0.12 26379 sentinel master mymaster": "name\nmymaster\nconfig-epoch\n4",
	}
	server := map[string]string{"10.0.0.12 6379 info replication": "role:master\nconnected_slaves:1"}
	for name, tc := range map[string]struct {
		memory, volume, last string
		voters, servers      bool
		set                  []string
		want                 []string
		unwanted             string
	}{
		"its own memory":            {memory: strings.ReplaceAll(kept, "10.0.0.11", "10.0.0.12") + "requirepass x\n", volume: whole, voters: true, want: []string{"sentinel monitor mymaster 10.0.0.12 6379 2", "sentinel config-epoch mymaster 7"}, unwanted: "requirepass \"x\""},
		"the volume":                {volume: whole, voters: true, want: []string{"sentinel monitor mymaster 10.0.0.11 6379 2", "sentinel known-sentinel mymaster 10.0.0.10 26379 aaaa", "sentinel current-epoch 8"}},
		"a record that was cut off": {volume: strings.TrimSuffix(whole, "# end\n"), voters: true, servers: true, want: []string{"sentinel monitor mymaster 10.0.0.12 6379 2", "sentinel config-epoch mymaster 5", "sentinel current-epoch 5"}, unwanted: "known-replica"},
		"a record of another Redis": {volume: strings.ReplaceAll(whole, "shop/web", "shop/other"), voters: true, want: []string{"sentinel monitor mymaster 10.0.0.12 6379 2"}, unwanted: "known-replica"},
		"a server with replicas":    {servers: true, last: "shop/web 1 3", want: []string{"sentinel monitor mymaster 10.0.0.12 6379 2"}, unwanted: "config-epoch"},
		"other addresses":           {volume: strings.ReplaceAll(whole, "10.0.0", "10.9.9"), set: []string{"FORCE_PRIMARY=2"}, want: []string{"sentinel monitor mymaster 10.0.0.11 6379 2", "sentinel config-epoch mymaster 7"}, unwanted: "10.9.9"},
		"the other file":            {last: "shop/web 2 3", set: []string{"FORCE_PRIMARY=1"}, want: []string{"sentinel monitor mymaster 10.0.0.12 6379 2", "sentinel config-epoch mymaster 3"}},
		"the other file of another": {last: "shop/other 2 3", set: []string{"FORCE_PRIMARY=1"}, want: []string{"sentinel monitor mymaster 10.0.0.11 6379 2"}, unwanted: "config-epoch"},
		"a person":                  {set: []string{"FORCE_PRIMARY=1", "INITIALIZED=false"}, want: []string{"sentinel monitor mymaster 10.0.0.11 6379 2"}},
		"the first start":           {set: []string{"INITIALIZED=false"}, want: []string{"sentinel monitor mymaster 10.0.0.10 6379 2"}},
		"a change of the mode":      {set: []string{"MIGRATING=true"}, want: []string{"sentinel monitor mymaster 10.0.0.10 6379 2"}},
		"nobody":                    {},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "0")
			p.set(tc.set...)
			p.write("run/sentinel.conf", tc.memory)
			p.write("data/.flotilla-sentinel", tc.volume)
			p.write("data/.flotilla-primary", tc.last)
			if tc.voters {
				p.answers(voter)
			}
			if tc.servers {
				p.answers(server)
			}
			output, code := p.run("sentinel.sh")
			if tc.want == nil {
				if code != ended || !strings.HasPrefix(p.read("run/seeking"), "TopologyUnknown: ") {
					t.Errorf("exit code %d, seeks because of %q\n%s", code, p.read("run/seeking"), output)
				}
				return
			}
			lines := strings.Split(output, "\n")
			for _, want := range append(tc.want, "sentinel myid aaaa", "sentinel announce-ip 10.0.0.10", `sentinel auth-pass mymaster "secret"`, `requirepass "secret"`) {
				if !slices.Contains(lines, want) {
					t.Errorf("the voter did not get %q", want)
				}
			}
			if code != 0 || tc.unwanted != "" && strings.Contains(output, tc.unwanted) || p.read("run/seeking") != "" {
				t.Errorf("exit code %d, unwanted %q:\n%s", code, tc.unwanted, output)
			}
		})
	}
}

func TestSentinel_idles_on_ordinals_that_do_not_vote(t *testing.T) {
	p := newPod(t, "3")
	if output, code := p.run("sentinel.sh"); code != ended || strings.Contains(output, "args") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

// TestKnowledge_is_an_interface_between_versions keeps and recalls the record on the volume.
func TestKnowledge_is_an_interface_between_versions(t *testing.T) {
	p := newPod(t, "0")
	p.write("run/sentinel.conf", "port 26379\nrequirepass \"secret\"\nsentinel auth-pass mymaster \"secret\"\n"+kept)
	p.write("config/keep.sh", `. "$FLOTILLA_CONFIG_DIR/client.sh"
. "$config_dir/voters.sh"
. "$config_dir/knowledge.sh"
locate
keep "$(knowledge "$run_dir/sentinel.conf")"
`)
	if output, code := p.run("keep.sh"); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
	if got := p.read("data/.flotilla-sentinel"); got != whole {
		t.Errorf("the record is\n%s\nwant\n%s", got, whole)
	}
	if got := p.read("data/.flotilla-primary"); got != "shop/web 1 7\n" {
		t.Errorf("the other file is %q", got)
	}
}

func TestProxy_configuration(t *testing.T) {
	const password = "a\"b\\c é"
	p := newPod(t, "1")
	p.write("auth/password", "new")
	p.write("auth/previous", password)
	output, code := p.run("proxy.sh")
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
	for _, want := range []string{
		"  maxconn 2000", "  retries 0",
		// *2 $4 AUTH $8 and the password, whatever it consists of.
		"  tcp-check send-binary 2a320d0a24340d0a415554480d0a24380d0a6122625c6320c3a90d0a",
		`  tcp-check expect string $9\r\n10.0.0.12\r\n min-recv 20`,
		"  server voter1 127.0.0.1:26379 check inter 300ms fall 1 rise 1",
		"  server voter2 10.0.0.12:26379 check inter 300ms fall 1 rise 1",
		"  server redis1 127.0.0.1:6379 check inter 300ms fall 1 rise 1 on-marked-down shutdown-sessions",
		"  server redis0 10.0.0.10:6379 check inter 300ms fall 1 rise 1 on-marked-down shutdown-sessions",
		"  use_backend primary_2 if { nbsrv(voters_for_2) ge 2 } { nbsrv(primary_2) ge 1 }",
		"  bind :16379", "  bind :8081",
	} {
		if !slices.Contains(strings.Split(output, "\n"), want) {
			t.Errorf("no line %q", want)
		}
	}
	if strings.Contains(output, "default_backend") || strings.Contains(output, "secret") {
		t.Error("there is a default, or a password in the open")
	}
	if t.Failed() {
		t.Log(output)
	}
	if haproxy, err := exec.LookPath("haproxy"); err == nil {
		if out, err := exec.Command(haproxy, "-c", "-f", p.path("run/haproxy.cfg")).CombinedOutput(); err != nil {
			t.Errorf("haproxy does not accept it: %s", out)
		}
	}
}

func TestProxy_waits_for_addresses(t *testing.T) {
	p := newPod(t, "1")
	p.set("ADDRESSES=")
	if output, code := p.run("proxy.sh"); code != ended || !strings.Contains(output, "Waiting: the addresses") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestPrestopWait(t *testing.T) {
	for name, stopped := range map[string]string{"the server has ended": "yes", "it has not": ""} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "0")
			p.env["PATIENCE"] = "1000"
			p.write("run/stopped", stopped)
			_, code := p.run("prestop-wait.sh", "0.5")
			want := "1\n"
			if stopped == "" {
				want = "451\n"
			}
			if got := p.slept(); code != 0 || got != want {
				t.Errorf("exit code %d, slept %q times, want %q", code, got, want)
			}
		})
	}
}
