// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"cmp"
	"crypto/sha1"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	redisPort  = 6379
	voterPort  = 26379
	proxyPort  = 16379
	healthPort = 8081
	// pods is for how many ordinals there are addresses.
	pods = 5
	// voters are the ordinals that vote and may become the primary.
	voters     = 3
	settleTime = 90 * time.Second
)

// scriptsPath is where the scripts are: those of this tree, or others to compare with.
var scriptsPath = cmp.Or(os.Getenv("HA_SCRIPTS"), "../../internal/reconcilers/redis/scripts")

// TestMain runs the laboratory in a root with programs, in namespaces that hack/ha.sh has made for it.
func TestMain(m *testing.M) {
	if os.Getenv("HA_ROOT") == "" || os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "not run: the laboratory needs root, namespaces of its own and a root with programs; run `make ha`")
		os.Exit(1)
	}
	if err := prepare(os.Getenv("HA_ROOT")); err != nil {
		fmt.Fprintln(os.Stderr, "not run:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		_ = os.RemoveAll(files)
	}
	os.Exit(code)
}

// files is the folder of this run.
var files string

func prepare(root string) error {
	if err := makeNetwork(); err != nil {
		return err
	}
	if err := syscall.Mount("proc", root+"/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := syscall.Mount("/dev", root+"/dev", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting /dev: %w", err)
	}
	// Runs at the same time have a folder of their own, each in its mount namespace.
	var err error
	if files, err = os.MkdirTemp(root+"/tmp", "lab-"); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(files, 0o755), os.MkdirAll(root+inRoot(), 0o755)); err != nil {
		return err
	}
	if err := syscall.Mount(files, root+inRoot(), "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting the files: %w", err)
	}
	return nil
}

// inRoot is a path of the laboratory as its processes see it.
func inRoot(parts ...string) string { return filepath.Join(append([]string{"/lab"}, parts...)...) }

// running is the folder of the Redis that runs, in that of this run.
const running = "running"

// lab is one Redis of mode Sentinel.
type lab struct {
	*testing.T
	root, dir string
	pods      []*pod
	stop      chan struct{}
	probing   sync.WaitGroup

	// These change while Pods run, as the manager changes them; render writes them.
	replicas    int
	record      map[string]string
	settings    map[string]string
	replication bool

	mu      sync.Mutex
	secret  string
	writers int
}

// awkward is a password with everything that some syntax could take for its own.
const awkward = "p\"a\\ss w0rd-$(x)'é"

// newLab prepares a Redis without Pods.
func newLab(t *testing.T, settings ...string) *lab {
	t.Helper()
	root := os.Getenv("HA_ROOT")
	l := &lab{T: t, root: root, dir: filepath.Join(files, running), stop: make(chan struct{}), replicas: voters, secret: awkward}
	l.settings = map[string]string{
		"AUTH": "Password", "PERSISTENCE": "AOF", "GUARD": "true", "INSTANCE": `"shop/cache"`, "VOTER_IDS": voterIDs(),
		"MIN_REPLICAS": "1", "MAX_LAG": "5", "DOWN_AFTER": "5000", "FAILOVER_TIMEOUT": "10000", "INFO_PERIOD": "1000", "FENCE_AFTER": "3",
		"ALIGN": "true", "ALIGN_FROM": "420", "ALIGN_TO": "620", "PROXY_INTER": "300ms", "PROXY_FALL": "1", "PROXY_MAXCONN": "2000",
		"PROXY_PORT": strconv.Itoa(proxyPort), "PROXY_HEALTH_PORT": strconv.Itoa(healthPort), "REDIS_PORT": strconv.Itoa(redisPort),
		"PRIMARY_HOST": subnet + "10",
	}
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		l.settings[key] = value
	}
	l.record = map[string]string{"PEERS": `"` + subnet + "11 " + subnet + `12"`, "FORCE_EMPTY_PRIMARY": "false", "INITIALIZED": "false", "MIGRATING": "false", "FORCE_PRIMARY": ""}
	if err := os.RemoveAll(l.dir); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"", "config", "config-replication", "record", "auth"} {
		mustMkdir(l, filepath.Join(l.dir, folder))
	}
	t.Cleanup(l.close)
	for ordinal := range pods {
		p := newPod(l, ordinal)
		mustMkdir(l, p.path())
		p.connect()
		l.pods = append(l.pods, p)
	}
	l.install()
	l.write("auth/password", l.secret+"\n")
	l.render()
	l.probing.Go(l.probe)
	return l
}

// startLab returns a Redis that has settled.
func startLab(t *testing.T, settings ...string) *lab {
	t.Helper()
	l := newLab(t, settings...)
	for _, p := range l.pods[:l.replicas] {
		p.create()
	}
	l.settle()
	l.record["INITIALIZED"] = "true"
	l.render()
	return l
}

func (l *lab) close() {
	close(l.stop)
	l.probing.Wait()
	for _, p := range l.pods {
		p.crash()
		p.disconnect()
	}
	if l.Failed() {
		kept := filepath.Join(files, l.Name())
		_ = os.Rename(l.dir, kept)
		l.Logf("logs and volumes are in %s", kept)
	}
}

func voterIDs() string {
	var ids []string
	for ordinal := range voters {
		ids = append(ids, fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "uid/%d", ordinal))))
	}
	return `"` + strings.Join(ids, " ") + `"`
}

// write replaces a file at once, as a kubelet does.
func (l *lab) write(name, content string) {
	path := filepath.Join(l.dir, name)
	if err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o644), os.Rename(path+".new", path)); err != nil {
		l.Fatal(err)
	}
}

// install copies the scripts of both modes as ConfigMaps have them: flat, those of mode Sentinel over the others.
func (l *lab) install() {
	for folder, sources := range map[string][]string{"config": {scriptsPath, scriptsPath + "/sentinel"}, "config-replication": {scriptsPath}} {
		for _, source := range sources {
			files, err := filepath.Glob(source + "/*.sh")
			if err != nil || len(files) == 0 {
				l.Fatalf("no scripts in %s: %v", source, err)
			}
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil {
					l.Fatal(err)
				}
				l.write(filepath.Join(folder, filepath.Base(file)), string(content))
			}
		}
	}
}

func shell(values map[string]string) string {
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&out, "%s=%s\n", key, values[key])
	}
	return out.String()
}

// render writes what the manager would render.
func (l *lab) render() {
	var addresses []string
	for _, p := range l.pods[:max(voters, l.replicas)] {
		addresses = append(addresses, p.address)
	}
	l.record["ADDRESSES"] = `"` + strings.Join(addresses, " ") + `"`
	l.write("record/topology.env", shell(l.record))
	conf := strings.Join([]string{
		"repl-diskless-sync-delay 0", "repl-timeout 15", "repl-backlog-size 64mb", "bind * -::*", "daemonize no", `logfile ""`,
		"appendonly yes", "appendfsync everysec", `save ""`, "maxmemory 0", "repl-diskless-load disabled", "replica-read-only yes",
		"replica-serve-stale-data yes", "replica-ignore-disk-write-errors yes", "repl-ping-replica-period 5", "shutdown-timeout 10", "",
	}, "\n")
	for _, folder := range []string{"config", "config-replication"} {
		l.write(folder+"/settings.env", shell(l.settings))
		l.write(folder+"/redis.conf", conf)
	}
}

// password is that of clients.
func (l *lab) password() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.secret
}

// probe runs readiness probes until the laboratory ends.
func (l *lab) probe() {
	for {
		var all sync.WaitGroup
		for _, p := range l.pods {
			all.Go(p.probe)
		}
		all.Wait()
		select {
		case <-l.stop:
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// primary is the Pod that two voters name, or nil.
func (l *lab) primary() *pod {
	said := map[string]int{}
	for _, p := range l.pods[:voters] {
		said[p.vote()]++
	}
	for _, p := range l.pods {
		if said[p.address] >= 2 {
			return p
		}
	}
	return nil
}

// mustPrimary waits for a primary.
func (l *lab) mustPrimary() *pod {
	l.Helper()
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if p := l.primary(); p != nil {
			return p
		}
	}
	l.Fatal("two voters do not agree on a primary")
	return nil
}

// others are the voting Pods that are not p.
func (l *lab) others(p *pod) []*pod {
	return slices.DeleteFunc(slices.Clone(l.pods[:voters]), func(o *pod) bool { return o == p })
}

// settle waits until everything is as it should be.
func (l *lab) settle() {
	l.Helper()
	why := ""
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if why = l.unsettled(); why == "" {
			return
		}
	}
	l.Fatalf("not settled after %s: %s", settleTime, why)
}

// unsettled returns what is not as it should be.
func (l *lab) unsettled() string {
	primary := l.primary()
	if primary == nil {
		return "two voters do not agree on a primary"
	}
	for _, p := range l.pods[:l.replicas] {
		if why := l.unsettledServer(p, primary); why != "" {
			return p.name + " " + why
		}
	}
	for _, p := range l.pods[:voters] {
		if why := l.unsettledVoter(p); why != "" {
			return "the voter of " + p.name + " " + why
		}
	}
	return ""
}

func (l *lab) unsettledServer(p, primary *pod) string {
	if !p.exists() {
		return "is not there"
	}
	info, err := p.info("replication")
	switch {
	case err != nil:
		return err.Error()
	case p == primary && info["role"] != "master":
		return "is a " + info["role"]
	case p == primary && (info["connected_slaves"] != strconv.Itoa(l.replicas-1) || info["min_slaves_good_slaves"] == "0"):
		return fmt.Sprintf("has %s replicas, %s good ones", info["connected_slaves"], cmp.Or(info["min_slaves_good_slaves"], "?"))
	case p == primary:
	case info["role"] != "slave" || info["master_link_status"] != "up" || info["master_host"] != primary.address:
		return "does not follow the primary"
	case p.ordinal < voters && info["slave_priority"] == "0":
		return "is not promotable"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		return "is not ready: " + p.unready
	}
	return ""
}

func (l *lab) unsettledVoter(p *pod) string {
	var master map[string]string
	err := p.with(voterPort, func(c *conn) (err error) {
		master, err = c.pairs("SENTINEL", "MASTER", "mymaster")
		return err
	})
	replicas, _ := strconv.Atoi(master["num-slaves"])
	switch {
	case err != nil:
		return err.Error()
	case master["flags"] != "master", master["num-other-sentinels"] != "2", replicas < voters-1:
		return fmt.Sprintf("says %s, with %s other sentinels and %d replicas", master["flags"], master["num-other-sentinels"], replicas)
	}
	return ""
}

// epoch is the configuration epoch: how many failovers there were.
func (l *lab) epoch() int {
	highest := 0
	for _, p := range l.pods[:voters] {
		_ = p.with(voterPort, func(c *conn) error {
			master, err := c.pairs("SENTINEL", "MASTER", "mymaster")
			epoch, _ := strconv.Atoi(master["config-epoch"])
			highest = max(highest, epoch)
			return err
		})
	}
	return highest
}
