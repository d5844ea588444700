// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sentinel tests the scripts of the Pods of mode Sentinel, each branch, with stubs of the programs of an image.
// test/ha tests what they do together with real servers.
package sentinel

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// The server prints how it was started and its configuration.
	serverStub = `#!/bin/sh
printf 'args: %s\npassword in environment: %s\n' "$*" "${REDISCLI_AUTH-none}"
while IFS= read -r line; do printf '%s\n' "$line"; done <"$1"
`
	// The client answers from files, named by host, port and command, and notes what it was asked. What happens on a request
	// is another file. A request that is repeated runs a file with what the server says over time.
	clientStub = `#!/bin/sh
host=$2 port=$4
shift 4
if [ "$1" = -r ]; then
	shift 4
	[ ! -e "$ANSWERS/over time $host $port" ] || . "$ANSWERS/over time $host $port"
	exit
fi
printf '%s\n' "$host $port $*" >>"$ANSWERS/asked"
if [ -e "$ANSWERS/$host $port $*" ]; then
	while IFS= read -r line; do printf '%s\n' "$line"; done <"$ANSWERS/$host $port $*"
else
	printf 'Could not connect to Redis at %s\n' "$host" >&2
fi
[ ! -e "$ANSWERS/on $host $port $*" ] || . "$ANSWERS/on $host $port $*"
`
	timeoutStub = "#!/bin/sh\nshift\nexec \"$@\"\n"
	// No time passes. A process that has waited for long enough is ended as a kubelet does it.
	sleepStub = `#!/bin/sh
n=0
[ ! -e "$ANSWERS/slept $PPID" ] || IFS= read -r n <"$ANSWERS/slept $PPID"
n=$((n + 1))
printf '%s\n' "$n" >"$ANSWERS/slept $PPID"
[ ! -e "$ANSWERS/on sleep" ] || . "$ANSWERS/on sleep"
[ "$n" -lt "${PATIENCE:-40}" ] || kill -TERM $PPID
`
	settings = `AUTH=Password
PERSISTENCE=AOF
GUARD=true
INSTANCE="shop/web"
VOTER_IDS="aaaa bbbb cccc"
MIN_REPLICAS=1
MAX_LAG=5
DOWN_AFTER=5000
FAILOVER_TIMEOUT=10000
INFO_PERIOD=1000
FENCE_AFTER=3
ALIGN=true
ALIGN_FROM=420
ALIGN_TO=620
PROXY_INTER=300ms
PROXY_FALL=1
PROXY_MAXCONN=2000
PROXY_PORT=16379
PROXY_HEALTH_PORT=8081
`
	record = `FORCE_EMPTY_PRIMARY=false
INITIALIZED=true
MIGRATING=false
FORCE_PRIMARY=
ADDRESSES="10.0.0.10 10.0.0.11 10.0.0.12 10.0.0.13"
`
	manifest = "data/appendonlydir/appendonly.aof.manifest"
)

// pod is the folder that represents the file system of a Pod, all containers together.
type pod struct {
	*testing.T
	dir string
	env map[string]string
}

// newPod writes scripts and stubs. The PATH holds nothing else, so that a script which needs any other program fails.
func newPod(t *testing.T, ordinal string) *pod {
	t.Helper()
	p := &pod{T: t, dir: t.TempDir()}
	p.env = map[string]string{
		"FLOTILLA_POD": "web-" + ordinal, "FLOTILLA_PORT": "6379", "PATH": p.path("bin"), "ANSWERS": p.path("answers"),
		"FLOTILLA_CONFIG_DIR": p.path("config"), "FLOTILLA_RECORD_DIR": p.path("record"), "FLOTILLA_DATA_DIR": p.path("data"),
		"FLOTILLA_RUN_DIR": p.path("run"), "FLOTILLA_AUTH_FILE": p.path("auth/password"), "FLOTILLA_TERMINATION_LOG": p.path("message"),
	}
	for _, source := range []string{"..", "."} {
		files, err := filepath.Glob(source + "/*.sh")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p.write("config/"+filepath.Base(file), string(content))
		}
	}
	p.write("config/redis.conf", "appendonly yes\n")
	p.write("config/settings.env", settings)
	p.write("record/topology.env", record)
	p.write("auth/password", "secret")
	p.write("bin/redis-server", serverStub)
	p.write("bin/haproxy", strings.ReplaceAll(serverStub, `"$1"`, `"$3"`))
	p.write("bin/redis-cli", clientStub)
	p.write("bin/timeout", timeoutStub)
	p.write("bin/sleep", sleepStub)
	for _, folder := range []string{"data", "run", "answers"} {
		if err := os.MkdirAll(p.path(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *pod) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pod) write(name, content string) {
	p.Helper()
	path := p.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
		p.Fatal(err)
	}
}

func (p *pod) read(name string) string {
	content, _ := os.ReadFile(p.path(name))
	return string(content)
}

// age makes a file older.
func (p *pod) age(name string, by time.Duration) {
	p.Helper()
	then := time.Now().Add(-by)
	if err := os.Chtimes(p.path(name), then, then); err != nil {
		p.Fatal(err)
	}
}

// set replaces lines of the settings or of the record.
func (p *pod) set(lines ...string) {
	p.Helper()
	for _, file := range []string{"config/settings.env", "record/topology.env"} {
		content := strings.Split(p.read(file), "\n")
		for i, old := range content {
			for _, line := range lines {
				if key, _, _ := strings.Cut(line, "="); strings.HasPrefix(old, key+"=") {
					content[i] = line
				}
			}
		}
		p.write(file, strings.Join(content, "\n"))
	}
}

// answers defines what hosts say: "10.0.0.11 6379 info replication" → text.
func (p *pod) answers(answers map[string]string) {
	p.Helper()
	for request, text := range answers {
		p.write("answers/"+request, text+"\n")
	}
}

const (
	whom = "sentinel get-master-addr-by-name mymaster"
	sync = "# Replication\nrole:slave\nmaster_host:10.0.0.10\nmaster_link_status:up\nslave_repl_offset:90\nslave_priority:100\n"
	lags = "# Replication\nrole:slave\nmaster_host:10.0.0.10\nmaster_link_status:up\nslave_repl_offset:80\nslave_priority:100\n"
)

// votes has voters name an address; an empty one says nothing.
func (p *pod) votes(addresses ...string) {
	p.Helper()
	for i, address := range addresses {
		if address != "" {
			p.answers(map[string]string{"10.0.0.1" + string(rune('0'+i)) + " 26379 " + whom: address + "\n6379"})
		}
	}
}

func (p *pod) command(script string, args ...string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", append([]string{p.path("config/" + script)}, args...)...)
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		cmd.Env = append(cmd.Env, name+"="+p.env[name])
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run runs a script until it ends.
func (p *pod) run(script string, args ...string) (output string, code int) {
	p.Helper()
	cmd := p.command(script, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// asked reports whether some host was asked something that ends like this.
func (p *pod) asked(request string) bool {
	return slices.ContainsFunc(strings.Split(p.read("answers/asked"), "\n"), func(line string) bool {
		return line != "" && strings.HasSuffix(line, request)
	})
}

// slept returns what the one process that waited has counted.
func (p *pod) slept() string {
	p.Helper()
	counts, err := filepath.Glob(p.path("answers/slept *"))
	if err != nil || len(counts) != 1 {
		p.Fatalf("%d processes have waited: %v", len(counts), err)
	}
	content, err := os.ReadFile(counts[0])
	if err != nil {
		p.Fatal(err)
	}
	return string(content)
}
