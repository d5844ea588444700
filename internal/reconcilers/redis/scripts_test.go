// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// The stubs replace the programs of an image. The client answers from files, so that tests define the answer of each host.
const (
	serverStub = "#!/bin/sh\nprintf 'args: %s\\n' \"$*\"\nprintf 'password in environment: %s\\n' \"${REDISCLI_AUTH-none}\"\nwhile IFS= read -r line; do printf '%s\\n' \"$line\"; done\n"
	clientStub = "#!/bin/sh\nhost=$2\nshift 4\nprintf '%s\\n' \"$*\" >>\"$ANSWERS/asked\"\nif [ -e \"$ANSWERS/$host $*\" ]; then while IFS= read -r line; do printf '%s\\n' \"$line\"; done <\"$ANSWERS/$host $*\"; else printf 'Could not connect to Redis at %s\\n' \"$host\" >&2; exit 1; fi\n" +
		"[ \"$*\" != auth ] || printf '%s' \"${REDISCLI_AUTH-none}\"\n"
)

// podDir is the folder that represents the file system of a Pod.
type podDir struct {
	*testing.T
	dir string
	env map[string]string
}

// newPod writes scripts and stubs. The PATH holds nothing else, so that a script which needs any other program fails.
func newPod(t *testing.T, topologyEnv string, ordinal string) *podDir {
	t.Helper()
	p := &podDir{T: t, dir: t.TempDir(), env: map[string]string{"FLOTILLA_POD": "web-" + ordinal, "FLOTILLA_PORT": "6379"}}
	p.env["PATH"] = p.path("bin")
	p.env["ANSWERS"] = p.path("answers")
	p.env["FLOTILLA_CONFIG_DIR"] = p.path("config")
	p.env["FLOTILLA_DATA_DIR"] = p.path("data")
	p.env["FLOTILLA_AUTH_FILE"] = p.path("auth", "password")
	p.env["FLOTILLA_TERMINATION_LOG"] = p.path("termination-log")
	for name, content := range scripts() {
		p.write(content, "config", name)
	}
	p.env["FLOTILLA_RECORD_DIR"] = p.path("config")
	p.write("", "config", "settings.env")
	p.write(topologyEnv, "config", "topology.env")
	p.write("secret", "auth", "password")
	p.write(serverStub, "bin", "redis-server")
	p.write(clientStub, "bin", "redis-cli")
	for _, folder := range []string{"data", "answers", "auth"} {
		if err := os.MkdirAll(p.path(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *podDir) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

func (p *podDir) write(content string, parts ...string) {
	p.Helper()
	path := p.path(parts...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
		p.Fatal(err)
	}
}

// run runs a script with the shells that official images have as /bin/sh, as far as they are here.
func (p *podDir) run(script string) (output string, code int) {
	p.Helper()
	cmd := exec.Command("/bin/sh", p.path("config", script))
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		cmd.Env = append(cmd.Env, name+"="+p.env[name])
	}
	raw, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.Fatal(err)
	}
	return string(raw), cmd.ProcessState.ExitCode()
}

func topologyOf(mutate ...func(*topology)) string {
	redis := redisOf()
	replicas := int32(2)
	redis.Spec.Replicas = &replicas
	s := redisspec.Of(redis)
	var record topology
	for _, m := range mutate {
		m(&record)
	}
	return renderSettings(redis, &s) + renderTopology(redis, &s, record, false)
}

func withoutAuth() string {
	return strings.ReplaceAll(topologyOf(), "AUTH=Password", "AUTH=Disabled")
}

func initialized(t *topology) { t.initialized = true }

func TestStartScript_the_server_gets_its_role_and_password_on_standard_input(t *testing.T) {
	for name, tc := range map[string]struct {
		ordinal, password string
		want              []string
		unwanted          string
		previous          string
	}{
		"the primary":                   {"0", "secret\n", []string{"port 6379", "protected-mode yes", `requirepass "secret"`, `masterauth "secret"`}, "shutdown-on-sigterm", ""},
		"a replica":                     {"1", "secret", []string{`requirepass "secret"`, "replicaof web-0.shop 6379", "shutdown-on-sigterm force"}, "protected-mode no", ""},
		"without a password":            {"1", "", []string{"protected-mode no", "replicaof web-0.shop 6379"}, "requirepass", ""},
		"a password that needs quotes":  {"0", "a\"b\\c $(x) `y` %s 'z' ", []string{"requirepass \"a\\\"b\\\\c $(x) `y` %s 'z' \""}, "replicaof", ""},
		"two passwords":                 {"1", "new", []string{`user default on sanitize-payload ~* &* +@all ">new" ">o\"ld"`, `masterauth "o\"ld"`}, "requirepass", "o\"ld\n"},
		"a previous password of no use": {"1", "same", []string{`requirepass "same"`, `masterauth "same"`}, "user default", "same\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, topologyOf(), tc.ordinal)
			if tc.password == "" {
				p.write(withoutAuth(), "config", "topology.env")
				if err := os.Remove(p.path("auth", "password")); err != nil {
					t.Fatal(err)
				}
			} else {
				p.write(tc.password, "auth", "password")
			}
			if tc.previous != "" {
				p.write(tc.previous, "auth", "previous")
			}
			output, code := p.run("start.sh")
			if code != 0 {
				t.Fatalf("exit code %d:\n%s", code, output)
			}
			lines := strings.Split(output, "\n")
			for _, want := range append(tc.want, "args: "+p.path("config", "redis.conf")+" -", "password in environment: none") {
				if !slices.Contains(lines, want) {
					t.Errorf("the server did not get %q:\n%s", want, output)
				}
			}
			if strings.Contains(output, tc.unwanted) {
				t.Errorf("the server got %q:\n%s", tc.unwanted, output)
			}
		})
	}
}

func TestStartScript_waits_for_a_password_that_is_not_there(t *testing.T) {
	p := newPod(t, topologyOf(), "1")
	for _, content := range []string{"", "\n"} {
		p.write(content, "auth", "password")
		if output, code := p.run("start.sh"); code == 0 || strings.Contains(output, "args:") {
			t.Errorf("with password %q the server was started, open to everybody:\n%s", content, output)
		}
	}
	if err := os.Remove(p.path("auth", "password")); err != nil {
		t.Fatal(err)
	}
	output, code := p.run("start.sh")
	if said, err := os.ReadFile(p.path("termination-log")); err != nil || code != exitWaiting || string(said) != "Waiting: the password is not there\n" {
		t.Errorf("exit code %d, termination message %q (%v):\n%s", code, said, err, output)
	}
}

func TestStartScript_tells_of_a_full_disk_and_lets_the_server_try(t *testing.T) {
	for name, full := range map[string]bool{"full": true, "not full": false} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, topologyOf(), "1")
			if full {
				// Opens, and fails each write as a full disk does.
				if err := os.Symlink("/dev/full", p.path("data", ".flotilla.written")); err != nil {
					t.Fatal(err)
				}
			}
			output, code := p.run("start.sh")
			if code != 0 || !strings.Contains(output, "args:") {
				t.Errorf("the server was not started: exit code %d:\n%s", code, output)
			}
			said, err := os.ReadFile(p.path("termination-log"))
			if got := err == nil && string(said) == "DiskFull: the volume of web-1 cannot be written\n"; got != full {
				t.Errorf("the termination message is %q, %v", said, err)
			}
		})
	}
}

func TestStartScript_prefers_valkey(t *testing.T) {
	p := newPod(t, topologyOf(), "0")
	p.write("#!/bin/sh\nprintf 'valkey\\n'\n", "bin", "valkey-server")
	p.write(clientStub, "bin", "valkey-cli")
	if output, code := p.run("start.sh"); code != 0 || output != "valkey\n" {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestStartScript_guards_an_empty_primary(t *testing.T) {
	const manifest, rdb, unsaved = "appendonlydir/appendonly.aof.manifest", "dump.rdb", ".flotilla.unsaved"
	peer := "web-1.web-headless info keyspace"
	for name, tc := range map[string]struct {
		topology, ordinal string
		data              []string
		peerSays          string
		want              int
		says              string
	}{
		"a first start":                       {topology: topologyOf(), ordinal: "0"},
		"data is there":                       {topology: topologyOf(initialized), ordinal: "0", data: []string{manifest}},
		"an empty volume after data":          {topology: topologyOf(initialized), ordinal: "0", want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 is empty but this Redis had data"},
		"a person accepts the loss":           {topology: strings.ReplaceAll(topologyOf(initialized), "FORCE_EMPTY_PRIMARY=false", "FORCE_EMPTY_PRIMARY=true"), ordinal: "0"},
		"a replica may be empty":              {topology: topologyOf(initialized), ordinal: "1"},
		"no guard, no data expected":          {topology: strings.ReplaceAll(topologyOf(initialized), "GUARD=true", "GUARD=false"), ordinal: "0"},
		"a peer has keys":                     {topology: topologyOf(), ordinal: "0", peerSays: "# Keyspace\r\ndb0:keys=3,expires=0\r\n", want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 is empty but web-1.web-headless holds data"},
		"a peer is empty":                     {topology: topologyOf(), ordinal: "0", peerSays: "# Keyspace\r\n"},
		"a peer is loading":                   {topology: topologyOf(), ordinal: "0", peerSays: "LOADING Redis is loading the dataset in memory\n", want: 75, says: "Waiting: web-1.web-headless is loading its data"},
		"a peer has another password":         {topology: topologyOf(), ordinal: "0", peerSays: "NOAUTH Authentication required.\n", want: 75, says: "Waiting: web-1.web-headless does not say whether it holds data"},
		"an RDB file that AOF would ignore":   {topology: topologyOf(), ordinal: "0", data: []string{rdb}, want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 has an RDB file but no append-only file, which persistence AOF loads"},
		"an AOF that RDB would ignore":        {topology: rdbTopology(), ordinal: "0", data: []string{rdb, manifest}, want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 has an append-only file, which persistence RDB does not load"},
		"RDB with its file":                   {topology: rdbTopology(), ordinal: "0", data: []string{rdb}},
		"RDB that has not saved yet":          {topology: rdbTopology(), ordinal: "0", data: []string{".flotilla"}},
		"RDB on an empty volume":              {topology: rdbTopology(), ordinal: "0", want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 is empty but this Redis had data"},
		"data of before persistence None":     {topology: topologyOf(initialized), ordinal: "0", data: []string{manifest, unsaved}, want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 has only data of before persistence None, which would be served again"},
		"a snapshot of before None":           {topology: rdbTopology(), ordinal: "0", data: []string{rdb, unsaved}, want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 has only data of before persistence None, which would be served again"},
		"RDB after None on an empty volume":   {topology: rdbTopology(), ordinal: "0", data: []string{".flotilla", unsaved}, want: 78, says: "EmptyPrimaryBlocked: the volume of web-0 is empty but this Redis had data"},
		"a replica after None":                {topology: topologyOf(initialized), ordinal: "1", data: []string{manifest, unsaved}},
		"an append-only file of the old sort": {topology: topologyOf(initialized), ordinal: "0", data: []string{"appendonly.aof"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, tc.topology, tc.ordinal)
			for _, file := range tc.data {
				p.write("x", "data", file)
			}
			if tc.peerSays != "" {
				p.write(tc.peerSays, "answers", peer)
			}
			output, code := p.run("start.sh")
			if code != tc.want {
				t.Fatalf("exit code %d, want %d:\n%s", code, tc.want, output)
			}
			said, err := os.ReadFile(p.path("termination-log"))
			if err != nil && tc.says != "" {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(said)) != tc.says {
				t.Errorf("the termination message is %q, want %q", said, tc.says)
			}
			if _, err := os.Stat(p.path("data", ".flotilla")); tc.want != 0 && err == nil && !slices.Contains(tc.data, ".flotilla") {
				t.Error("a refused volume is marked")
			}
		})
	}
}

func TestStartScript_persistence_none_leaves_behind_what_is_on_the_volume(t *testing.T) {
	none := strings.NewReplacer("PERSISTENCE=AOF", "PERSISTENCE=None", "GUARD=true", "GUARD=false").Replace(topologyOf(initialized))
	p := newPod(t, none, "0")
	p.write("x", "data", "appendonlydir/appendonly.aof.manifest")
	p.write("x", "data", "dump.rdb")
	output, code := p.run("start.sh")
	if code != 0 || !strings.Contains(output, "dbfilename unsaved.rdb\n") {
		t.Fatalf("the server loads the snapshot of before; exit code %d:\n%s", code, output)
	}
	p.write(topologyOf(initialized), "config", "topology.env")
	if output, code := p.run("start.sh"); code != 78 {
		t.Fatalf("data of before persistence None is served again; exit code %d:\n%s", code, output)
	}
	// A person accepts it, once.
	p.write(strings.ReplaceAll(topologyOf(initialized), "FORCE_EMPTY_PRIMARY=false", "FORCE_EMPTY_PRIMARY=true"), "config", "topology.env")
	if output, code := p.run("start.sh"); code != 0 || strings.Contains(output, "dbfilename") {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
	p.write(topologyOf(initialized), "config", "topology.env")
	if output, code := p.run("start.sh"); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
}

func rdbTopology() string {
	return strings.ReplaceAll(topologyOf(initialized), "PERSISTENCE=AOF", "PERSISTENCE=RDB")
}

// The answers of servers that cannot persist, as Redis 7.0 and 8.0 and Valkey 8.1 give them.
const (
	appendFailed   = "MISCONF Errors writing to the AOF file: No space left on device"
	snapshotFailed = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error."
)

// inform is what the readiness probe asks a server for.
const inform = "127.0.0.1 info server persistence errorstats replication"

func TestProbes(t *testing.T) {
	for name, tc := range map[string]struct {
		ordinal, ping, info string
		live, ready         bool
		persistence, says   string
	}{
		"a primary that answers":        {"0", "PONG", "role:master\r\n", true, true, "", ""},
		"a server that loads":           {"0", "LOADING Redis is loading the dataset in memory", "", true, false, "", "The server is loading its data"},
		"a server that runs a script":   {"0", "BUSY Redis is busy running a script.", "", true, false, "", "The server answers: BUSY"},
		"another password":              {"0", "NOAUTH Authentication required.", "", true, false, "", "NOAUTH"},
		"too many clients":              {"0", "AUTH failed: ERR max number of clients reached\nError: Connection reset by peer", "", true, false, "", "max number of clients"},
		"an error of a later version":   {"0", "NEWERROR something", "", true, false, "", "NEWERROR something"},
		"no answer":                     {"0", "", "", false, false, "", "The server does not answer"},
		"no client":                     {"0", "/bin/sh: 1: redis-cli: not found", "", false, false, "", "redis-cli: not found"},
		"a replica in sync":             {"1", "PONG", "role:slave\r\nmaster_link_status:up\r\n", true, true, "", ""},
		"a replica without its primary": {"1", "PONG", "role:slave\r\nmaster_link_status:down\r\n", true, false, "", ""},
		"a full disk":                   {"0", appendFailed, "", true, false, "rdb_last_bgsave_status:ok\r\naof_enabled:1\r\naof_last_write_status:err\r\n", "DiskFull: the append-only file cannot be written, so writes are refused: " + appendFailed},
		"a failed snapshot":             {"0", snapshotFailed, "", true, false, "rdb_last_bgsave_status:err\r\naof_enabled:0\r\naof_last_write_status:ok\r\n", "SnapshotFailed: the last snapshot failed, so writes are refused: "},
		"a failed snapshot beside a healthy append-only file": {
			"0", snapshotFailed, "", true, false, "rdb_last_bgsave_status:err\r\naof_enabled:1\r\naof_last_write_status:ok\r\n",
			"SnapshotFailed: the last snapshot failed, so writes are refused; the append-only file has all data: ",
		},
		"both failed":                          {"0", snapshotFailed, "", true, false, "rdb_last_bgsave_status:err\r\naof_enabled:1\r\naof_last_write_status:err\r\n", "DiskFull: "},
		"a failed snapshot of Valkey":          {"0", strings.ReplaceAll(snapshotFailed, "Redis", "Valkey"), "", true, false, "rdb_last_bgsave_status:err\r\naof_enabled:0\r\n", "SnapshotFailed: "},
		"a replica with a full disk":           {"1", appendFailed, "role:slave\r\nmaster_link_status:up\r\n", true, false, "aof_enabled:1\r\naof_last_write_status:err\r\n", "DiskFull: "},
		"a replica with a failed snapshot":     {"1", snapshotFailed, "role:slave\r\nmaster_link_status:up\r\n", true, false, "rdb_last_bgsave_status:err\r\naof_enabled:0\r\n", "SnapshotFailed: "},
		"a snapshot that stops no writes":      {"0", "PONG", "", true, true, "rdb_last_bgsave_status:err\r\naof_enabled:0\r\n", ""},
		"a snapshot that no save point wanted": {"0", "PONG", "", true, true, "rdb_last_bgsave_status:err\r\naof_enabled:1\r\naof_last_write_status:ok\r\n", ""},
		"a client that warns first":            {"0", "Warning: something\nPONG", "", true, true, "", ""},
		"a replica that serves no old data":    {"1", "MASTERDOWN Link with MASTER is down", "", true, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, topologyOf(), tc.ordinal)
			p.write("secret", "auth", "password")
			p.write("whole:", "data", ".flotilla.appended")
			if tc.ping != "" {
				p.write(tc.ping+"\n", "answers", "127.0.0.1 ping")
				p.write(tc.persistence+tc.info, "answers", inform)
			}
			for script, want := range map[string]bool{"live.sh": tc.live, "ready.sh": tc.ready} {
				if output, code := p.run(script); (code == 0) != want {
					t.Errorf("%s exits with %d, want success: %t\n%s", script, code, want, output)
				} else if script == "ready.sh" && !strings.Contains(output, tc.says) {
					t.Errorf("%s says %q, want %q", script, output, tc.says)
				}
			}
		})
	}
}

func TestReadyProbe_an_append_only_file_is_rewritten_after_refused_writes(t *testing.T) {
	const (
		rewriting = "DiskFull: the append-only file is being rewritten"
		request   = "bgrewriteaof"
	)
	info := func(uptime int, inProgress, status string, refused string) string {
		text := fmt.Sprintf("uptime_in_seconds:%d\r\naof_enabled:1\r\naof_rewrite_in_progress:%s\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:%s\r\naof_last_write_status:ok\r\n", uptime, inProgress, status)
		if refused != "" {
			text += "errorstat_ERR:count=7\r\nerrorstat_MISCONF:count=" + refused + "\r\n"
		}
		return text
	}
	for _, ordinal := range []string{"0", "1"} {
		t.Run("ordinal "+ordinal, func(t *testing.T) {
			p := newPod(t, topologyOf(), ordinal)
			if output, code := p.run("start.sh"); code != 0 {
				t.Fatalf("start.sh exits with %d\n%s", code, output)
			}
			for _, step := range []struct {
				name, ping, info, answer, says string
				asked                          bool
			}{
				{"nothing was refused", "PONG", info(1, "0", "ok", ""), "", "", false},
				{"the volume is full", appendFailed, info(10, "0", "ok", "2"), "", "DiskFull: the append-only file cannot be written", false},
				{"there is room, and another rewrite at work", "PONG", info(20, "1", "ok", "2"), "", rewriting, false},
				{"the server refuses", "PONG", info(22, "0", "ok", "2"), "ERR already in progress", rewriting, true},
				{"it may begin", "PONG", info(24, "0", "ok", "2"), "Background append only file rewriting started", rewriting, true},
				{"it is at work", "PONG", info(26, "1", "ok", "2"), "", rewriting, false},
				{"it is done", "PONG", info(28, "0", "ok", "2"), "", "", false},
				{"nothing was refused since", "PONG", info(30, "0", "ok", "2"), "", "", false},
				{"a write was refused between two probes", "PONG", info(32, "0", "ok", "3"), "Background append only file rewriting scheduled", rewriting, true},
				{"the rewrite failed", "PONG", info(34, "0", "err", "3"), "", rewriting, false},
				{"a minute later it is tried again", "PONG", info(61, "0", "err", "3"), "Background append only file rewriting started", rewriting, true},
				{"and is done", "PONG", info(90, "0", "ok", "3"), "", "", false},
				{"the volume is full again, and no counter says so", appendFailed, info(95, "0", "ok", "3"), "", "DiskFull: ", false},
				{"there is room", "PONG", info(97, "0", "ok", "3"), "Background append only file rewriting started", rewriting, true},
				{"the counters are set back", "PONG", info(99, "0", "ok", ""), "Background append only file rewriting started", rewriting, true},
				{"and all is well", "PONG", info(101, "0", "ok", ""), "", "", false},
			} {
				p.write(step.ping+"\n", "answers", "127.0.0.1 ping")
				if step.ping == appendFailed {
					step.info = strings.ReplaceAll(step.info, "aof_last_write_status:ok", "aof_last_write_status:err")
				}
				p.write(step.info+"role:slave\r\nmaster_link_status:up\r\n", "answers", inform)
				p.write(step.answer+"\n", "answers", "127.0.0.1 "+request)
				p.write("", "answers", "asked")
				output, code := p.run("ready.sh")
				if (code == 0) != (step.says == "") || !strings.HasPrefix(output, step.says) {
					t.Errorf("%s: ready.sh exits with %d and says %q, want %q", step.name, code, output, step.says)
				}
				asked, err := os.ReadFile(p.path("answers", "asked"))
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Contains(string(asked), request); got != step.asked {
					t.Errorf("%s: a rewrite is asked for: %t, want %t", step.name, got, step.asked)
				}
			}
		})
	}
}

func TestAsk_tries_the_previous_password(t *testing.T) {
	// This server was started before the rotation, and the file has changed under it.
	const oldServer = "#!/bin/sh\nif [ \"${REDISCLI_AUTH-}\" = old ]; then printf 'PONG\\n'; else printf 'AUTH failed: WRONGPASS\\nNOAUTH Authentication required.\\n' >&2; fi\n"
	for name, tc := range map[string]struct {
		previous string
		want     bool
	}{"with the previous one": {"old\n", true}, "without it": {"", false}} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, topologyOf(), "0")
			p.write("new", "auth", "password")
			p.write(tc.previous, "auth", "previous")
			p.write(oldServer, "bin", "redis-cli")
			if output, code := p.run("ready.sh"); (code == 0) != tc.want {
				t.Errorf("ready.sh exits with %d, want success: %t\n%s", code, tc.want, output)
			}
			if output, code := p.run("live.sh"); code != 0 {
				t.Errorf("live.sh exits with %d\n%s", code, output)
			}
		})
	}
}
