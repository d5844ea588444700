// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// ended is how a script ends that waits until the kubelet has no more patience.
const ended = 143

func TestStart_decides_what_a_Pod_is(t *testing.T) {
	const (
		promotable = "10.0.0.11 6379 info replication"
		keyspace   = "10.0.0.11 6379 info keyspace"
		failover   = "sentinel failover mymaster"
	)
	us, other := "10.0.0.10", "10.0.0.12"
	for name, tc := range map[string]struct {
		ordinal string
		votes   []string
		data    string
		set     []string
		answers map[string]string
		seeking string
		// role is "primary" or the line that makes a replica; waits is why the Pod waits.
		role, waits string
		handsOver   bool
	}{
		"no voters":                              {waits: "Waiting: fewer than two sentinels agree on a primary"},
		"one voter":                              {votes: []string{other}, waits: "Waiting: fewer than two sentinels agree on a primary"},
		"voters that do not agree":               {votes: []string{us, other}, waits: "Waiting: fewer than two sentinels agree on a primary"},
		"no voter knows":                         {seeking: "TopologyUnknown: x", waits: "TopologyUnknown: x"},
		"a voter that has just begun":            {seeking: "yes", waits: "Waiting: fewer than two sentinels agree on a primary"},
		"no addresses yet":                       {set: []string{"ADDRESSES="}, waits: "Waiting: the addresses of the Pods are not recorded yet"},
		"no address of its own yet":              {ordinal: "4", votes: []string{us, us}, waits: "Waiting: the addresses of the Pods are not recorded yet"},
		"another Pod":                            {votes: []string{other, "", other}, data: manifest, role: "replicaof 10.0.0.12 6379"},
		"another Pod, by two of three":           {votes: []string{us, other, other}, role: "replicaof 10.0.0.12 6379"},
		"with data, nobody in sync":              {votes: []string{us, us}, data: manifest, role: "primary"},
		"with data, a replica in sync":           {votes: []string{us, us}, data: manifest, answers: map[string]string{promotable: sync}, role: "primary", handsOver: true},
		"with data, a replica that is not":       {votes: []string{us, us}, data: manifest, answers: map[string]string{promotable: "role:slave\nslave_priority:0"}, role: "primary"},
		"empty, a replica in sync":               {votes: []string{us, us}, answers: map[string]string{promotable: sync}, waits: "EmptyPrimaryBlocked: the volume of web-0 is empty; handing over to a replica", handsOver: true},
		"empty after data":                       {votes: []string{us, us}, waits: "EmptyPrimaryBlocked: the volume of web-0 is empty but this Redis had data"},
		"empty after data, a person's word":      {votes: []string{us, us}, set: []string{"FORCE_PRIMARY=0"}, role: "primary"},
		"empty after data, a word for another":   {votes: []string{us, us}, set: []string{"FORCE_PRIMARY=1"}, waits: "EmptyPrimaryBlocked: the volume of web-0 is empty but this Redis had data"},
		"a first start":                          {votes: []string{us, us}, set: []string{"INITIALIZED=false"}, role: "primary"},
		"a first start, a peer holds keys":       {votes: []string{us, us}, set: []string{"INITIALIZED=false"}, answers: map[string]string{keyspace: "# Keyspace\ndb0:keys=1"}, waits: "EmptyPrimaryBlocked: the volume of web-0 is empty but a peer holds data"},
		"a first start, a peer loads":            {votes: []string{us, us}, set: []string{"INITIALIZED=false"}, answers: map[string]string{keyspace: "LOADING Redis is loading"}, waits: "Waiting: a peer is loading its data"},
		"a first start of another ordinal":       {ordinal: "2", votes: []string{other, other}, set: []string{"INITIALIZED=false"}, waits: "EmptyPrimaryBlocked: the volume of web-2 is empty but this Redis had data"},
		"another ordinal of a cache in memory":   {ordinal: "2", votes: []string{other, other}, set: []string{"INITIALIZED=false", "GUARD=false"}, role: "primary"},
		"a file that the mode does not load":     {votes: []string{us, us}, data: "data/dump.rdb", waits: "EmptyPrimaryBlocked: the volume of web-0 has an RDB file but no append-only file, which persistence AOF loads"},
		"such a file, a replica in sync":         {votes: []string{us, us}, data: "data/dump.rdb", answers: map[string]string{promotable: sync}, waits: "EmptyPrimaryBlocked: the volume of web-0 has an RDB file but no append-only file, which persistence AOF loads; handing over to a replica", handsOver: true},
		"ordinal 0 while the mode changes":       {data: manifest, set: []string{"MIGRATING=true"}, role: "primary"},
		"ordinal 0 without data then":            {set: []string{"MIGRATING=true"}, waits: "EmptyPrimaryBlocked: the volume of web-0 is empty but this Redis had data"},
		"another ordinal while the mode changes": {ordinal: "1", set: []string{"MIGRATING=true"}, role: "replicaof 10.0.0.10 6379"},
		"a change of mode in which two agree":    {data: manifest, votes: []string{other, other}, set: []string{"MIGRATING=true"}, role: "replicaof 10.0.0.12 6379"},
		"an ordinal that does not vote":          {ordinal: "3", votes: []string{us, us}, role: "replicaof 10.0.0.10 6379"},
	} {
		t.Run(name, func(t *testing.T) {
			ordinal := tc.ordinal
			if ordinal == "" {
				ordinal = "0"
			}
			p := newPod(t, ordinal)
			p.votes(tc.votes...)
			p.set(tc.set...)
			p.answers(tc.answers)
			p.write("run/seeking", tc.seeking)
			p.write("run/stopped", "yes")
			if tc.data != "" {
				p.write(tc.data, "x")
			}
			output, code := p.run("start.sh")
			if got := p.asked(failover); got != tc.handsOver {
				t.Errorf("a failover is asked for: %t, want %t\n%s", got, tc.handsOver, p.read("answers/asked"))
			}
			if tc.waits != "" {
				hold := strings.TrimSpace(p.read("run/hold"))
				if code != ended || hold != tc.waits || strings.TrimSpace(p.read("message")) != tc.waits {
					t.Fatalf("exit code %d, holds because of %q, tells %q, want %q\n%s", code, hold, p.read("message"), tc.waits, output)
				}
				if ready, code := p.run("ready.sh"); code == 0 || strings.TrimSpace(ready) != tc.waits {
					t.Errorf("ready.sh exits with %d and says %q", code, ready)
				}
				if _, code := p.run("live.sh"); code != 0 {
					t.Errorf("live.sh exits with %d", code)
				}
				return
			}
			lines := strings.Split(output, "\n")
			if replica := slices.Contains(lines, tc.role); code != 0 || p.read("run/hold") != "" || !replica && (tc.role != "primary" || strings.Contains(output, "replicaof")) {
				t.Fatalf("exit code %d, want %s:\n%s", code, tc.role, output)
			}
			if announced := !strings.Contains(output, "replica-announced no"); announced != (ordinal < "3") {
				t.Errorf("announced to sentinels: %t\n%s", announced, output)
			}
			if p.read("run/stopped") != "" {
				t.Error("the mark of an earlier life stays")
			}
			if !slices.Contains(lines, "replica-priority 0") {
				t.Errorf("it is promotable from the start:\n%s", output)
			}
		})
	}
}

// TestStart_waits_for_the_promotion_that_was_granted has the replica promoted at once, and the voters name it some looks later.
func TestStart_waits_for_the_promotion_that_was_granted(t *testing.T) {
	const voter = "10.0.0.11 26379 "
	p := newPod(t, "0")
	p.write(manifest, "x")
	p.votes("10.0.0.10", "10.0.0.10", "10.0.0.10")
	p.answers(map[string]string{"10.0.0.11 6379 info replication": sync, voter + "sentinel failover mymaster": "OK"})
	p.write("answers/on "+voter+"sentinel failover mymaster", `printf 'role:master\n' >"$ANSWERS/10.0.0.11 6379 info replication"`+"\n")
	p.write("answers/on sleep", `[ "$n" != 4 ] || for v in 10 11 12; do printf '10.0.0.11\n6379\n' >"$ANSWERS/10.0.0.$v 26379 `+whom+`"; done`+"\n")
	if output, code := p.run("start.sh"); code != 0 || !strings.Contains(output, "replicaof 10.0.0.11 6379") {
		t.Errorf("exit code %d, and it is not a replica of the next primary:\n%s", code, output)
	}
}

// TestStart_asks_nobody_who_may_replace_the_next_primary has one voter that has promoted a replica, and two that do not know yet.
func TestStart_asks_nobody_who_may_replace_the_next_primary(t *testing.T) {
	p := newPod(t, "0")
	p.write(manifest, "x")
	p.votes("10.0.0.11", "10.0.0.10", "10.0.0.10")
	p.answers(map[string]string{"10.0.0.12 6379 info replication": sync, "10.0.0.12 26379 sentinel failover mymaster": "OK"})
	p.write("answers/on sleep", `[ "$n" != 4 ] || for v in 10 11 12; do printf '10.0.0.11\n6379\n' >"$ANSWERS/10.0.0.$v 26379 `+whom+`"; done`+"\n")
	output, code := p.run("start.sh")
	if code != 0 || p.asked("sentinel failover mymaster") || !strings.Contains(output, "replicaof 10.0.0.11 6379") {
		t.Errorf("exit code %d, want a replica that has asked for no failover:\n%s\n%s", code, p.read("answers/asked"), output)
	}
}

func TestStart_reads_the_record_again_while_it_waits(t *testing.T) {
	p := newPod(t, "0")
	p.votes("10.0.0.10", "10.0.0.10")
	p.write("answers/on sleep", "[ \"$n\" != 3 ] || printf 'FORCE_PRIMARY=0\\n' >>\"$FLOTILLA_RECORD_DIR/topology.env\"\n")
	if output, code := p.run("start.sh"); code != 0 || !strings.Contains(output, "starting as primary") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestStart_passwords(t *testing.T) {
	for name, tc := range map[string]struct {
		password, previous string
		want               []string
	}{
		"one":           {"a\"b\\c d", "", []string{`requirepass "a\"b\\c d"`, `masterauth "a\"b\\c d"`, "protected-mode yes"}},
		"two":           {"new", "o\"ld\n", []string{`user default on sanitize-payload ~* &* +@all ">new" ">o\"ld"`, `masterauth "o\"ld"`}},
		"none":          {"", "", []string{"protected-mode no"}},
		"none but told": {"-", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "1")
			p.votes("10.0.0.10", "10.0.0.10", "10.0.0.10")
			p.write("auth/password", tc.password)
			p.write("auth/previous", tc.previous)
			switch tc.password {
			case "":
				p.set("AUTH=Disabled")
				_ = os.Remove(p.path("auth/password"))
			case "-":
				_ = os.Remove(p.path("auth/password"))
			}
			for script, ordinal := range map[string]string{"start.sh": "redis.conf", "sentinel.sh": "sentinel.conf", "proxy.sh": "haproxy.cfg"} {
				output, code := p.run(script)
				if tc.want == nil {
					if code != 75 || strings.TrimSpace(p.read("message")) != "Waiting: the password is not there" {
						t.Errorf("%s exits with %d and tells %q", script, code, p.read("message"))
					}
					continue
				}
				if info, err := os.Stat(p.path("run/" + ordinal)); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the configuration of %s: %v, %v", script, info, err)
				}
				if code != 0 || !strings.Contains(output, "password in environment: none") && script != "proxy.sh" {
					t.Errorf("%s exits with %d:\n%s", script, code, output)
				}
				if script != "start.sh" {
					continue
				}
				for _, want := range tc.want {
					if !slices.Contains(strings.Split(output, "\n"), want) {
						t.Errorf("the server did not get %q:\n%s", want, output)
					}
				}
			}
			found, err := os.ReadDir(p.path("data"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range found {
				if tc.password != "" && strings.Contains(p.read("data/"+file.Name()), tc.password) {
					t.Errorf("the volume has the password in %s", file.Name())
				}
			}
		})
	}
}

func TestProbes(t *testing.T) {
	for name, tc := range map[string]struct {
		ping, info  string
		live, ready bool
		says        string
	}{
		"a primary":         {"PONG", "role:master", true, true, ""},
		"a replica in sync": {"PONG", sync, true, true, ""},

		"a replica that copies":                   {"PONG", "role:slave\nmaster_link_status:down\nmaster_sync_in_progress:1\nslave_priority:100\nmaster_link_down_since_seconds:1", true, false, "copying"},
		"a replica that was in sync a moment ago": {"PONG", "role:slave\nmaster_link_status:down\nslave_priority:100\nmaster_link_down_since_seconds:29", true, true, ""},
		"a replica that was in sync long ago":     {"PONG", "role:slave\nmaster_link_status:down\nslave_priority:100\nmaster_link_down_since_seconds:30", true, false, "not in sync"},
		"a replica that never was":                {"PONG", "role:slave\nmaster_link_status:down\nslave_priority:0\nmaster_link_down_since_seconds:1", true, false, "not in sync"},
		"a replica that never had a link":         {"PONG", "role:slave\nmaster_link_status:down\nslave_priority:100\nmaster_link_down_since_seconds:-1", true, false, "not in sync"},

		"a server that loads": {"LOADING Redis is loading the dataset in memory", "", true, false, "loading"},
		"a full disk":         {"MISCONF Errors writing to the AOF file", "aof_last_write_status:err\nrole:master", true, false, "writes are refused"},
		"no answer":           {"", "", false, false, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "1")
			if tc.ping != "" {
				p.answers(map[string]string{"127.0.0.1 6379 ping": tc.ping, "127.0.0.1 6379 info server persistence errorstats replication": tc.info})
			}
			for script, want := range map[string]bool{"live.sh": tc.live, "ready.sh": tc.ready} {
				output, code := p.run(script)
				if (code == 0) != want || script == "ready.sh" && !strings.Contains(output, tc.says) {
					t.Errorf("%s exits with %d and says %q", script, code, output)
				}
			}
		})
	}
}

func TestVoterLive(t *testing.T) {
	for name, tc := range map[string]struct {
		ordinal, seeking, ping string
		want                   bool
	}{
		"a voter":                       {"1", "", "PONG", true},
		"a voter with another password": {"1", "", "NOAUTH Authentication required.", true},
		"no voter":                      {"1", "", "", false},
		"one that seeks":                {"1", "yes", "", true},
		"an ordinal that does not vote": {"3", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, tc.ordinal)
			p.write("run/seeking", tc.seeking)
			if tc.ping != "" {
				p.answers(map[string]string{"127.0.0.1 26379 ping": tc.ping})
			}
			if output, code := p.run("voter-live.sh"); (code == 0) != tc.want {
				t.Errorf("exit code %d: %s", code, output)
			}
		})
	}
}
