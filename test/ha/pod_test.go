// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// pod is an ordinal of the StatefulSet: its address and volume, which stay, and its current life, if any.
type pod struct {
	lab       *lab
	ordinal   int
	name      string
	address   string
	namespace string
	// config is the folder that its current life was started with, in the root.
	config string

	mu         sync.Mutex
	containers map[string]*container
	end        context.CancelFunc
	// deleting and lost say why there is no life that counts: the Pod is being deleted, or its node is gone.
	deleting, lost bool
	ready          bool
	failures       int
	unready        string
	// proxied is false for a life of mode Replication.
	proxied bool
	// noHeir is set while a deleted Pod must not be created again.
	noHeir bool
}

func newPod(l *lab, ordinal int) *pod {
	return &pod{
		lab: l, ordinal: ordinal, name: fmt.Sprintf("cache-%d", ordinal),
		address: fmt.Sprintf("%s%d", subnet, 10+ordinal), namespace: fmt.Sprintf("pod%d", ordinal),
	}
}

// path is a path of the Pod on this machine.
func (p *pod) path(parts ...string) string {
	return filepath.Join(append([]string{p.lab.dir, p.name}, parts...)...)
}

func (p *pod) link() string { return fmt.Sprintf("to%d", p.ordinal) }

// connect makes the network of the Pod.
func (p *pod) connect() {
	ips(p.lab.T,
		"netns add "+p.namespace,
		"-n "+p.namespace+" link set lo up",
		"link add "+p.link()+" type veth peer name eth0 netns "+p.namespace,
		"link set "+p.link()+" master "+mainland+" up",
		"-n "+p.namespace+" addr add "+p.address+"/24 dev eth0",
		"-n "+p.namespace+" link set eth0 up",
	)
}

// disconnect removes the network of the Pod. The link goes first, because a namespace takes its devices away later.
func (p *pod) disconnect() {
	_ = ip("link del " + p.link())
	_ = ip("netns del " + p.namespace)
}

// move puts the Pod on a bridge: the mainland, or the island with others that were moved there.
func (p *pod) move(bridge string) { ips(p.lab.T, "link set "+p.link()+" master "+bridge) }

// cut takes the Pod off the network, and rejoin puts it back.
func (p *pod) cut()    { ips(p.lab.T, "link set "+p.link()+" down") }
func (p *pod) rejoin() { ips(p.lab.T, "link set "+p.link()+" up") }

func mustMkdir(l *lab, path string) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		l.Fatal(err)
	}
	// The umask does not apply to this.
	if err := os.Chmod(path, 0o777); err != nil {
		l.Fatal(err)
	}
}

// create begins a life of the Pod on its volume.
func (p *pod) create() {
	if err := os.RemoveAll(p.path("run")); err != nil {
		p.lab.Fatal(err)
	}
	for _, folder := range []string{"data", "run"} {
		mustMkdir(p.lab, p.path(folder))
	}
	life, end := context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end, p.deleting, p.lost, p.ready, p.failures = end, false, false, false, 0
	p.proxied = !p.lab.replication
	p.config = inRoot(running, "config")
	p.containers = map[string]*container{}
	scripts := map[string][]string{
		"redis": {"start.sh", "prestop-redis.sh"}, "sentinel": {"sentinel.sh", "prestop-wait.sh", "0.5"},
		"keeper": {"keeper.sh", "prestop-wait.sh", "0"}, "proxy": {"proxy.sh", "prestop-wait.sh", "1"},
	}
	if p.lab.replication {
		p.config = inRoot(running, "config-replication")
		scripts = map[string][]string{"redis": {"start.sh"}}
	}
	for name, words := range scripts {
		c := &container{pod: p, name: name, script: words[0], hook: words[1:], idle: make(chan struct{}), delay: restartDelay}
		if len(words) == 1 {
			c.hook = nil
		}
		p.containers[name] = c
		go c.run(life)
	}
}

// life returns the containers of the current life.
func (p *pod) life() map[string]*container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.containers
}

func (p *pod) container(name string) *container { return p.life()[name] }

// exists reports whether the Pod has a life that is not ending.
func (p *pod) exists() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.containers != nil && !p.deleting && !p.lost
}

// delete deletes the Pod as an API server, a kubelet and a StatefulSet do it together. It returns when the Pod is created
// again.
func (p *pod) delete() {
	p.mu.Lock()
	p.deleting = true
	containers, end := p.containers, p.end
	p.mu.Unlock()
	time.Sleep(150 * time.Millisecond)
	p.setReady(false)
	// Containers of a Pod that is being deleted are not started again.
	end()
	var all sync.WaitGroup
	for _, c := range containers {
		all.Go(func() {
			if took := c.stop(); took > 15*time.Second {
				p.lab.Errorf("container %s of %s took %s to end after its hook", c.name, p.name, took)
			}
		})
	}
	all.Wait()
	p.mu.Lock()
	p.containers = nil
	heir := !p.noHeir
	p.mu.Unlock()
	time.Sleep(time.Second)
	if heir {
		p.create()
	}
}

func (p *pod) setReady(ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = ready
}

// crash ends every process of the Pod at once.
func (p *pod) crash() {
	p.mu.Lock()
	containers, end := p.containers, p.end
	p.lost = true
	p.mu.Unlock()
	if containers == nil {
		return
	}
	end()
	for _, c := range containers {
		c.signal(syscall.SIGKILL)
	}
	for _, c := range containers {
		<-c.idle
	}
}

// lose makes the node of the Pod disappear for some time: nothing refuses connections, and readiness stays as it was.
func (p *pod) lose(back time.Duration) {
	p.cut()
	p.crash()
	time.Sleep(back)
	p.rejoin()
	p.create()
}

// wipe removes the volume.
func (p *pod) wipe() {
	if err := os.RemoveAll(p.path("data")); err != nil {
		p.lab.Fatal(err)
	}
}

// probe is one readiness probe.
func (p *pod) probe() {
	p.mu.Lock()
	containers, skip := p.containers, p.containers == nil || p.deleting || p.lost
	p.mu.Unlock()
	if skip {
		return
	}
	out := &strings.Builder{}
	cmd := p.command("redis", "ready.sh")
	cmd.Stdout = out
	err := inside(p.namespace, cmd.Start)
	if err == nil {
		timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		timer.Stop()
	}
	running := true
	for _, c := range containers {
		running = running && c.running()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleting || p.lost {
		return
	}
	p.unready = strings.TrimSpace(out.String())
	p.failures++
	if err == nil {
		p.failures = 0
	}
	p.ready = running && (err == nil || p.ready && p.failures < 3)
}

// endpoint reports whether clients may be sent to the proxy of the Pod.
func (p *pod) endpoint() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.containers != nil && p.ready && p.proxied
}

func (p *pod) dial(port int) (*conn, error) {
	return dial(p.address, port, p.lab.password(), 2*time.Second)
}

// with calls f with a connection to a port of the Pod.
func (p *pod) with(port int, f func(*conn) error) error {
	c, err := p.dial(port)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return f(c)
}

// info asks the server of the Pod.
func (p *pod) info(section string) (found map[string]string, err error) {
	err = p.with(redisPort, func(c *conn) error {
		found, err = c.info(section)
		return err
	})
	return found, err
}

// vote is whom the voter of the Pod takes for the primary.
func (p *pod) vote() string {
	said := ""
	_ = p.with(voterPort, func(c *conn) error {
		address, err := c.strings("SENTINEL", "get-master-addr-by-name", "mymaster")
		if err == nil && len(address) == 2 {
			said = address[0]
		}
		return err
	})
	return said
}

// logged returns the lines in the log of a container that contain a text.
func (p *pod) logged(container, text string) []string {
	content, _ := os.ReadFile(p.path("log-" + container))
	var found []string
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
