// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard tests the page of kubectl flotilla dashboard in a browser: the program as it is released, on real API
// servers, seen by Chromium. Without Chromium it is skipped.
package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// patience is how long anything may take that has no bound of its own.
const patience = 60 * time.Second

// hub has the fleet that most tests look at, large a thousand members, and member is one of the former.
var hub, large, member *testenv.Cluster

// plugin is the program.
var plugin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if _, err := browser(); err != nil {
		fmt.Println("SKIPPED: the dashboard is not tested in a browser:", err)
		return 0
	}
	folder, err := os.MkdirTemp("", "dashboard-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	plugin = filepath.Join(folder, "kubectl-flotilla")
	build := exec.Command("go", "build", "-C", filepath.Join("..", ".."), "-buildvcs=false", "-o", plugin, "./cmd/kubectl-flotilla")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the plugin: %v\n%s", err, out)
		return 1
	}
	return testenv.Main(m, &hub, &large, &member)
}

// browser returns the path of Chromium.
func browser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no Chromium on the PATH")
}

// served is a running dashboard.
type served struct {
	t *testing.T
	// open is the address with the token, and base that of the server.
	open, base string
	process    *os.Process
}

// kubeconfig writes a kubeconfig with contexts; the first one is that of the hub.
func kubeconfig(t *testing.T, contexts ...any) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	for i := 0; i < len(contexts); i += 2 {
		name, to := contexts[i].(string), contexts[i+1].(*rest.Config)
		config.Clusters[name] = &clientcmdapi.Cluster{Server: to.Host, CertificateAuthorityData: to.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: to.CertData, ClientKeyData: to.KeyData}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	config.CurrentContext = contexts[0].(string)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

var printed = regexp.MustCompile(`http://127\.0\.0\.1:\d+/open\?token=\S+`)

// start starts a dashboard until the test ends.
func start(t *testing.T, kubeconfig string) *served {
	t.Helper()
	command := exec.Command(plugin, "dashboard", "--no-open")
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil && !t.Failed() {
			t.Errorf("the dashboard ended with %v: %s", err, complaints.String())
		}
	})
	lines := make(chan string, 1)
	go func() {
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			if address := printed.FindString(scanner.Text()); address != "" {
				lines <- address
			}
		}
		close(lines)
	}()
	select {
	case address := <-lines:
		if address == "" {
			t.Fatalf("the dashboard has ended: %s", complaints.String())
		}
		base, _, _ := strings.Cut(address, "/open")
		return &served{t: t, open: address, base: base, process: command.Process}
	case <-time.After(patience):
		t.Fatal("the dashboard has printed no address")
		return nil
	}
}

// tab is a tab of a browser with the page open.
type tab struct {
	context.Context
	*served
	*complaints
}

// browse opens the page in a new browser.
func (p *served) browse(width, height int64, dark bool) *tab {
	p.t.Helper()
	path, err := browser()
	if err != nil {
		p.t.Fatal(err)
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(p.t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(patience),
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	p.t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	p.t.Cleanup(cancel)
	// This starts the browser, which lives as long as its context.
	must(p.t, chromedp.Do(ctx))
	on := &tab{Context: ctx, served: p, complaints: &complaints{}}
	console := chromedp.Console(ctx)
	go func() {
		for said, err := range console {
			if err != nil {
				return
			}
			if said.Type == chromedp.ConsoleError || said.Type == chromedp.ConsoleWarning || said.Type == chromedp.ConsoleException {
				on.add(said.Text + " " + said.URL)
			}
		}
	}()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	on.do(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}), chromedp.Navigate(p.open))
	on.until("the first screen is there", `document.readyState === "complete" && document.getElementById("head")`, patience)
	return on
}

// complaints are what the console of a browser says that is wrong.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (c *complaints) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, text)
}

// do does something in the tab.
func (t *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	t.t.Helper()
	ctx, cancel := context.WithTimeout(t.Context, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.t.Fatalf("in the browser: %v", err)
	}
}

// visit goes to a screen.
func (t *tab) visit(path string) {
	t.t.Helper()
	t.do(chromedp.Navigate(t.base + path))
}

// eval returns the value of an expression in the page, or what it promises.
func eval[T any](t *tab, expression string) T {
	t.t.Helper()
	ctx, cancel := context.WithTimeout(t.Context, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.t.Fatalf("in the browser: %v", err)
	}
	return value
}

// until waits until an expression is true, and returns how long that took.
func (t *tab) until(what, expression string, within time.Duration) time.Duration {
	t.t.Helper()
	began := time.Now()
	for {
		if eval[bool](t, "Boolean("+expression+")") {
			return time.Since(began)
		}
		if time.Since(began) > within {
			t.t.Fatalf("%s: not within %s; %s; the page is\n%s", what, within, eval[string](t, requests), eval[string](t, "document.body.innerText.slice(0, 2000)"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// requests tells what a page has asked for.
const requests = `JSON.stringify(performance.getEntriesByType("resource").map(e => [e.name, Math.round(e.startTime), Math.round(e.responseStart), Math.round(e.responseEnd)]))`

// live waits until the stream of the page is open.
func (t *tab) live() {
	t.t.Helper()
	t.until("the stream is open", "window.beats > 0", patience)
}

// quiet expects that the browser has complained of nothing.
func (t *tab) quiet() {
	t.t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, complaint := range t.said {
		t.t.Errorf("the browser complains: %s", complaint)
	}
}
