// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// axeSum is the hash of testdata/axe.min.js.gz: axe.min.js of axe-core 4.14.1, compressed.
const axeSum = "cda5e4385d9437c1fd009f2ff76f7e4049af354d2d6522da2a905c2a69ede4ec"

// screens are the addresses of all screens of the story.
var screens = []struct{ name, path string }{
	{"fleet", "/?by=region"},
	{"member", "/members/eu-4"},
	{"object", "/objects/redis/shop/cache"},
	{"why", "/why/eu-1/redis/shop/cache"},
	{"events", "/events"},
}

// onStory starts a dashboard for the story.
func onStory(t *testing.T) *served {
	t.Helper()
	story(t)
	return start(t, kubeconfig(t, "hub", hub.Config, "eu-1", member.Config))
}

// What the hub says about a member is on the page within two seconds: the tile, the number and the cause.
func TestDashboard_shows_a_member_that_stops_answering(t *testing.T) {
	on := onStory(t).browse(1440, 900, false)
	on.live()
	const tile = `document.getElementById("m-eu-2")`
	const numberOf = `document.querySelector("#numbers .number:nth-child(2) b").firstChild.data`
	before := eval[string](on, numberOf)
	setReady(t, hub, "eu-2", false)
	took := on.until("the tile changes", tile+`.classList.contains("s1")`, 2*time.Second)
	if after := eval[string](on, numberOf); after == before {
		t.Errorf("the number of unreachable members is still %s", after)
	}
	t.Logf("a member that stops answering is shown after %s", took.Round(time.Millisecond))
	setReady(t, hub, "eu-2", true)
	took = on.until("the tile changes back", tile+`.classList.contains("s6")`, 2*time.Second)
	t.Logf("and one that answers again after %s", took.Round(time.Millisecond))
	on.quiet()
}

// The screen why asks the member: it follows the copy down to the node, and compares its spec with that of the hub.
func TestDashboard_explains_a_copy(t *testing.T) {
	on := onStory(t).browse(1440, 900, false)
	on.visit("/why/eu-1/redis/shop/cache")
	on.settled()
	said := eval[string](on, `document.getElementById("answer").innerText`)
	for _, want := range []string{"StatefulSet cache", "2/3 Pods ready", "Pod cache-2", "ImagePullBackOff", "Node node-2", "KubeletReady", "replicas 3 → 2"} {
		if !strings.Contains(said, want) {
			t.Errorf("the screen does not say %q:\n%s", want, said)
		}
	}
	on.quiet()
}

// The page is of use for a thousand members: what it costs is bounded.
func TestDashboard_is_small_and_fast_with_a_thousand_members(t *testing.T) {
	thousand(t)
	shown := start(t, kubeconfig(t, "hub", large.Config))
	on := shown.browse(1440, 900, false)
	if tiles := eval[int](on, `document.querySelectorAll("a.t").length`); tiles != manyMembers {
		t.Errorf("the page has %d tiles", tiles)
	}
	// Once more, as somebody who comes back does: the browser itself has started then.
	on.visit("/?by=region")
	on.live()
	const paint = `Math.ceil(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0)`
	on.until("something is painted", paint+" > 0", patience)
	took := eval[int](on, paint)
	t.Logf("the first paint is after %d ms", took)
	if took >= 1000 {
		t.Errorf("the first paint is after %d ms", took)
	}
	rate := flapping(t, shown)
	t.Logf("the stream is %.1f KB/s while 100 members flap", rate/1000)
	if rate >= 50_000 {
		t.Errorf("the stream is %.1f KB/s", rate/1000)
	}
	size := memory(t, shown.process.Pid)
	t.Logf("the process has %d MiB", size>>20)
	if size >= 300<<20 {
		t.Errorf("the process has %d MiB", size>>20)
	}
	on.quiet()
}

// flapping has 100 members flap for some seconds, and returns how many bytes a second a stream of the first screen is.
func flapping(t *testing.T, on *served) float64 {
	t.Helper()
	cookie := on.cookie()
	request := on.request(http.MethodGet, "/stream?at=%2F%3Fby%3Dregion", cookie)
	// As a browser asks; what is counted stays as it was sent.
	request.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	counted := &counter{from: answer.Body}
	go func() { _, _ = io.Copy(io.Discard, counted) }()
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				for i := worker; i < 100 && ctx.Err() == nil; i += 4 {
					if err := changeReady(large, fmt.Sprintf("member-%04d", i*10), round%2 == 1); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	// The first message is the whole page: the stream was asked for without saying what is shown.
	time.Sleep(2 * time.Second)
	const watched = 8 * time.Second
	before := counted.count()
	time.Sleep(watched)
	rate := float64(counted.count()-before) / watched.Seconds()
	stop()
	group.Wait()
	if rate == 0 {
		t.Error("nothing was sent")
	}
	return rate
}

// counter counts what is read.
type counter struct {
	from io.Reader
	mu   sync.Mutex
	n    int
}

// Read implements io.Reader.
func (c *counter) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	return n, err
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// memory returns the resident memory of a process.
func memory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("the memory of a process cannot be read here: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var size int
	if _, err := fmt.Sscanf(rest, "%d", &size); err != nil {
		t.Fatal(err)
	}
	return size << 10
}

// A member is not trusted: what it says is text, also in an update.
func TestDashboard_shows_hostile_texts_as_texts(t *testing.T) {
	on := onStory(t)
	const name = "hostile-1"
	evil := []string{
		`<img src=x onerror="window.hurt=1">`, `"><script>window.hurt=1</script>`, "a\rdata: <hx-partial hx-target=\"#head\"><b id=hurt></b></hx-partial>\r\revent: beat",
		`</template><b id="hurt" hx-get="/" hx-trigger="load">`, `<svg onload="window.hurt=1">`, `javascript:window.hurt=1`, `{{.}} ${window.hurt=1}`,
	}
	is := status("uid-hostile", not(joined(time.Hour), flotillav1.ConditionReachable, flotillav1.ReasonTimeout, strings.Join(evil, " "), time.Minute))
	is.KubernetesVersion, is.Endpoint = evil[0], evil[1]
	for i, text := range evil {
		is.Attention = append(is.Attention, flotillav1.Attention{Kind: "Redis", Namespace: evil[0], Name: text, Reason: fmt.Sprint("Evil", i, evil[4])})
	}
	must(t, addMember(t.Context(), hub, name, nil, is))
	t.Cleanup(func() {
		must(t, hub.Client.Delete(context.Background(), &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	})
	at := on.browse(1440, 900, false)
	for _, path := range []string{"/", "/members/" + name, "/?show=unreachable"} {
		at.visit(path)
		at.live()
		// The same texts come by the stream.
		object := &flotillav1.MemberCluster{}
		must(t, hub.Client.Get(t.Context(), client.ObjectKey{Name: name}, object))
		object.Status.Conditions[0].Message += " again" + path
		object.Status.Conditions[2].Message += " again" + path
		must(t, hub.Client.Status().Update(t.Context(), object))
		at.until("the text is on the page", fmt.Sprintf(`document.documentElement.outerHTML.includes("again" + %q)`, path), patience)
		if eval[bool](at, `Boolean(window.hurt || document.getElementById("hurt") || document.querySelector("main img, main script, [onerror], [onload]"))`) {
			t.Errorf("%s: a text of a member is more than text", path)
		}
		if !eval[bool](at, `document.body.textContent.includes("<img src=x onerror=")`) {
			t.Errorf("%s: the text of the member is not shown", path)
		}
	}
	at.quiet()
}

// request returns a request to the page.
func (p *served) request(method, path string, cookies ...*http.Cookie) *http.Request {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, nil)
	must(p.t, err)
	for _, cookie := range cookies {
		request.AddCookie(cookie)
	}
	return request
}

// cookie returns what the address with the token gives a browser.
func (p *served) cookie() *http.Cookie {
	p.t.Helper()
	answer, err := http.Get(p.open)
	must(p.t, err)
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK || len(answer.Cookies()) != 1 {
		p.t.Fatalf("the address with the token answers %s", answer.Status)
	}
	return answer.Cookies()[0]
}

// Only the user's browser, and only pages of the server itself, are answered.
func TestDashboard_refuses_others(t *testing.T) {
	on := onStory(t)
	cookie := on.cookie()
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || len(cookie.Value) < 43 {
		t.Errorf("the cookie is %s", cookie)
	}
	port := on.base[strings.LastIndex(on.base, ":")+1:]
	for name, try := range map[string]struct {
		method, path string
		change       func(*http.Request)
		want         int
	}{
		"the page":                      {"GET", "/", nil, 200},
		"the page by its other name":    {"GET", "/", func(r *http.Request) { r.Host = "localhost:" + port }, 200},
		"its head":                      {"HEAD", "/", nil, 200},
		"no token":                      {"GET", "/", func(r *http.Request) { r.Header.Del("Cookie") }, 403},
		"another token":                 {"GET", "/", func(r *http.Request) { r.Header.Set("Cookie", cookie.Name+"=guess") }, 403},
		"no token for a file":           {"GET", "/assets/page.js", func(r *http.Request) { r.Header.Del("Cookie") }, 403},
		"no token for the stream":       {"GET", "/stream?at=/", func(r *http.Request) { r.Header.Del("Cookie") }, 403},
		"a foreign host":                {"GET", "/", func(r *http.Request) { r.Host = "evil.example:" + port }, 421},
		"another port":                  {"GET", "/", func(r *http.Request) { r.Host = "127.0.0.1:1" }, 421},
		"a foreign host with the token": {"GET", strings.TrimPrefix(on.open, on.base), func(r *http.Request) { r.Host = "evil.example" }, 421},
		"a foreign origin":              {"GET", "/", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		"no origin":                     {"GET", "/stream?at=/", func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"another site":                  {"GET", "/", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another port of the host":      {"GET", "/", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"POST":                          {"POST", "/", nil, 405},
		"DELETE":                        {"DELETE", "/members/eu-1", nil, 405},
		"a wrong token":                 {"GET", "/open?token=guess", nil, 403},
		"what is not there":             {"GET", "/members/nobody", nil, 404},
		"a file outside":                {"GET", "/assets/..%2f..%2fgo.mod", nil, 404},
		"a stream of elsewhere":         {"GET", "/stream?at=http://evil.example/", nil, 400},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			request := on.request(try.method, try.path, cookie)
			if try.change != nil {
				try.change(request)
			}
			answer, err := http.DefaultTransport.RoundTrip(request)
			must(t, err)
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode != try.want {
				t.Errorf("the answer is %s", answer.Status)
			}
			policy := answer.Header.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
				if !strings.Contains(policy, want) {
					t.Errorf("the policy %q lacks %s", policy, want)
				}
			}
			if strings.Contains(policy, "unsafe") {
				t.Errorf("the policy is %q", policy)
			}
		})
	}
}

// Nobody is left out: axe finds nothing serious on any screen, in both schemes.
func TestDashboard_is_accessible(t *testing.T) {
	compressed, err := os.ReadFile(filepath.Join("testdata", "axe.min.js.gz"))
	must(t, err)
	if sum := sha256.Sum256(compressed); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("axe.min.js.gz has the hash %x", sum)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(compressed))
	must(t, err)
	axe, err := io.ReadAll(unpacked)
	must(t, err)
	on := onStory(t)
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1440, 390} {
			at := on.browse(width, 900, dark)
			for _, screen := range screens {
				at.visit(screen.path)
				at.settled()
				eval[chromedp.Void](at, string(axe))
				found := eval[[]string](at, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations
					.filter(v => v.impact === "serious" || v.impact === "critical")
					.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html + " " + (n.any[0]?.message ?? "")).join(" | ")))`)
				for _, one := range found {
					t.Errorf("%s at %d, dark %t: %s", screen.name, width, dark, one)
				}
				if over := eval[int](at, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
					t.Errorf("%s at %d is %d pixels too wide", screen.name, width, over)
				}
			}
			at.quiet()
		}
	}
}

// The keyboard reaches every tile: Tab comes to the first one of a group, and arrows go on from there.
func TestDashboard_works_with_the_keyboard(t *testing.T) {
	at := onStory(t).browse(1440, 900, false)
	at.visit("/")
	at.live()
	eval[chromedp.Void](at, `document.querySelector("#tiles a.t").focus()`)
	at.do(chromedp.KeyEvent(kb.ArrowRight))
	second := eval[string](at, `document.activeElement.id`)
	if !strings.HasPrefix(second, "m-") {
		t.Fatalf("the focus is at %q", second)
	}
	if tip := eval[string](at, `document.getElementById("tip").hidden ? "" : document.getElementById("tip").textContent`); !strings.Contains(tip, strings.TrimPrefix(second, "m-")) {
		t.Errorf("the tip says %q", tip)
	}
	// An update leaves the focus where it is.
	name := strings.TrimPrefix(second, "m-")
	before := eval[string](at, `document.activeElement.className`)
	object := &flotillav1.MemberCluster{}
	must(t, hub.Client.Get(t.Context(), client.ObjectKey{Name: name}, object))
	saved := object.Status.DeepCopy()
	object.Status.Conditions = not(joined(time.Hour), flotillav1.ConditionClaimed, flotillav1.ReasonClaimedByAnotherHub, "Hub other holds the claim", 0)
	must(t, hub.Client.Status().Update(t.Context(), object))
	at.until("the tile changes", fmt.Sprintf(`document.getElementById(%q).className !== %q`, second, before), patience)
	if now := eval[string](at, `document.activeElement.id`); now != second {
		t.Errorf("the focus is at %q after an update", now)
	}
	object.Status = *saved
	must(t, hub.Client.Status().Update(t.Context(), object))
	at.do(chromedp.KeyEvent(kb.Enter))
	at.until("the member is shown", fmt.Sprintf(`location.pathname === "/members/%s"`, name), patience)
}

// A page that is not up to date says so.
func TestDashboard_says_when_it_is_not_up_to_date(t *testing.T) {
	story(t)
	line := testenv.NewLine(t, strings.Trim(strings.TrimPrefix(hub.Config.Host, "https:"), "/"))
	through := *hub.Config
	through.Host = "https://" + line.Addr()
	at := start(t, kubeconfig(t, "hub", &through)).browse(1440, 900, false)
	at.live()
	if eval[bool](at, `document.getElementById("head").classList.contains("stale")`) {
		t.Fatal("the page is stale already")
	}
	line.Refuse()
	took := at.until("the page says as of", `/as of \d\d:\d\d:\d\d/.test(document.querySelector("#head.stale .asof")?.textContent)`, 12*time.Second)
	t.Logf("a hub that refuses is told after %s", took.Round(time.Millisecond))
	if grey := eval[string](at, `getComputedStyle(document.getElementById("main")).filter`); grey != "grayscale(1)" {
		t.Errorf("the page has the filter %q", grey)
	}
	line.Restore(t)
	at.until("the page is live again", `!document.getElementById("head").classList.contains("stale")`, patience)
}

// The page only reads, as the user.
func TestDashboard_only_reads(t *testing.T) {
	story(t)
	reader := hub.User(t, "reader", "system:masters")
	mark, there := hub.AuditMark(t), member.AuditMark(t)
	at := start(t, kubeconfig(t, "hub", reader, "eu-1", member.User(t, "reader", "system:masters"))).browse(1440, 900, false)
	for _, screen := range screens {
		at.visit(screen.path)
		at.settled()
	}
	mine := func(request testenv.Audited) bool { return request.User.Username == "reader" }
	verbs := map[string]int{}
	for _, request := range append(hub.AuditedSince(t, mark, mine), member.AuditedSince(t, there, mine)...) {
		verbs[request.Verb]++
		switch {
		case request.Verb != "get" && request.Verb != "list" && request.Verb != "watch":
			t.Errorf("the page asks to %s %s", request.Verb, request.RequestURI)
		case request.ObjectRef.Resource == "secrets":
			t.Errorf("the page reads a Secret: %s", request.RequestURI)
		}
	}
	t.Logf("the requests are %v", verbs)
	if verbs["watch"] < 4 {
		t.Errorf("the requests are %v", verbs)
	}
	at.quiet()
}

// settled waits until the page has all that it asks for, and is live.
func (t *tab) settled() {
	t.t.Helper()
	t.live()
	t.until("there is an answer", `!document.querySelector("[aria-busy]")`, patience)
}

// managerLease is the Lease of a manager that is alive.
func managerLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.SystemNamespace, Name: flotillav1.ManagerLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("prod/manager-0"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro()), AcquireTime: new(metav1.NowMicro()),
		},
	}
}

var pictures = flag.String("screenshots", "", "folder to write pictures of all screens to")

// TestScreenshots makes the pictures of make screenshots.
func TestScreenshots(t *testing.T) {
	if *pictures == "" {
		t.Skip("no folder is given")
	}
	on := onStory(t)
	thousand(t)
	many := start(t, kubeconfig(t, "hub", large.Config))
	must(t, client.IgnoreAlreadyExists(hub.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flotillav1.SystemNamespace}})))
	must(t, hub.Client.Create(t.Context(), managerLease()))
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1440, 390} {
			at, all := on.browse(width, 900, dark), many.browse(width, 900, dark)
			for _, screen := range append(screens, struct{ name, path string }{"filtered", "/?by=region&show=unreachable"}) {
				at.visit(screen.path)
				at.settled()
				at.take(screen.name, width, dark)
			}
			all.visit("/?by=region")
			all.settled()
			all.take("thousand", width, dark)
		}
	}
}

// take writes a picture of the whole page.
func (t *tab) take(name string, width int64, dark bool) {
	t.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	eval[chromedp.Void](t, `tellAges(); document.querySelectorAll("#causes details").forEach((d, i) => d.open = i === 0)`)
	height := int64(900)
	if width < 500 {
		height = 1400
	}
	t.do(chromedp.EmulateViewport(width, height))
	picture, err := chromedp.Run(t.Context, chromedp.CaptureScreenshot())
	must(t.t, err)
	path := filepath.Join(*pictures, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
	must(t.t, os.WriteFile(path, picture, 0o600))
}
