// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// element returns a piece without items.
func element(id, text string) *piece {
	return newPiece(id, []byte(`<p id="`+id+`">`+text+`</p>`))
}

// around returns a piece with items.
func around(id string, items ...*piece) *piece {
	return newPiece(id, []byte(`<div id="`+id+`">`+string(slot)+`</div>`), items...)
}

func TestChanges_are_as_little_as_possible(t *testing.T) {
	before := []*piece{element("head", "live"), around("tiles", element("a", "1"), element("b", "1"))}
	for name, test := range map[string]struct {
		before, after []*piece
		want          string
	}{
		"nothing":               {before, before, ``},
		"an item":               {before, []*piece{before[0], around("tiles", element("a", "1"), element("b", "2"))}, `<p hx-swap-oob="outerMorph" id="b">2</p>`},
		"another item":          {before, []*piece{before[0], around("tiles", element("a", "1"), element("c", "1"))}, `<div hx-swap-oob="outerMorph" id="tiles"><p id="a">1</p><p id="c">1</p></div>`},
		"one more item":         {before, []*piece{before[0], around("tiles", element("a", "1"), element("b", "1"), element("c", "1"))}, `<div hx-swap-oob="outerMorph" id="tiles"><p id="a">1</p><p id="b">1</p><p id="c">1</p></div>`},
		"a piece without items": {before, []*piece{element("head", "stale"), before[1]}, `<p hx-swap-oob="outerMorph" id="head">stale</p>`},
		"a page that is not known": {nil, before, `<p hx-swap-oob="outerMorph" id="head">live</p>` +
			`<div hx-swap-oob="outerMorph" id="tiles"><p id="a">1</p><p id="b">1</p></div>`},
		"a piece that stays": {before, []*piece{{id: "head", head: []byte(`<p id="head">new</p>`), still: true}, before[1]}, ``},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if got := string(changes(nil, test.before, test.after)); got != test.want {
				t.Errorf("the changes are\n%s\nand not\n%s", got, test.want)
			}
		})
	}
}

// A text of a member cannot end a line of an event: what follows would be another field.
func TestSender_keeps_texts_in_events(t *testing.T) {
	recorded := httptest.NewRecorder()
	out := &sender{to: recorded, through: http.NewResponseController(withDeadlines{recorded}), now: time.Now}
	out.send("", 7, []byte("<p>a\rdata: b\nevent: c\r\n\r\nid: 9</p>"))
	want := "id: 7\ndata: <p>a data: b\ndata: event: c \ndata:  \ndata: id: 9</p>\n\n"
	if got := recorded.Body.String(); out.err != nil || got != want {
		t.Errorf("the event is %q (%v)", got, out.err)
	}
}

// withDeadlines is a response that can have a deadline.
type withDeadlines struct{ *httptest.ResponseRecorder }

// SetWriteDeadline implements the interface of http.ResponseController.
func (withDeadlines) SetWriteDeadline(time.Time) error { return nil }

func TestGuard_admits_only_the_browser_with_the_token(t *testing.T) {
	g := &guard{token: newToken(), hosts: []string{"127.0.0.1:8080", "localhost:8080"}, next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})}
	if other := newToken(); len(other) < 43 || other == g.token {
		t.Errorf("tokens are %q and %q", other, g.token)
	}
	mine := http.Header{"Cookie": {"flotilla-8080=" + g.token}}
	with := func(key, value string) http.Header {
		header := mine.Clone()
		header.Set(key, value)
		return header
	}
	for name, test := range map[string]struct {
		method, path, host string
		header             http.Header
		want               int
	}{
		"with the token":                      {"GET", "/", "127.0.0.1:8080", mine, 204},
		"by the other name":                   {"GET", "/", "localhost:8080", mine, 204},
		"from the page":                       {"GET", "/", "127.0.0.1:8080", with("Origin", "http://127.0.0.1:8080"), 204},
		"without the token":                   {"GET", "/", "127.0.0.1:8080", nil, 403},
		"with the cookie of another server":   {"GET", "/", "127.0.0.1:8080", http.Header{"Cookie": {"flotilla-9090=" + g.token}}, 403},
		"by a name that leads here":           {"GET", "/", "evil.example:8080", mine, 421},
		"from elsewhere":                      {"GET", "/", "127.0.0.1:8080", with("Origin", "http://evil.example"), 403},
		"from another name of the server":     {"GET", "/", "127.0.0.1:8080", with("Origin", "http://localhost:8080"), 403},
		"from nowhere":                        {"GET", "/", "127.0.0.1:8080", with("Origin", "null"), 403},
		"by another site":                     {"GET", "/", "127.0.0.1:8080", with("Sec-Fetch-Site", "cross-site"), 403},
		"by another server of the machine":    {"GET", "/", "127.0.0.1:8080", with("Sec-Fetch-Site", "same-site"), 403},
		"to write":                            {"PUT", "/", "127.0.0.1:8080", mine, 405},
		"opened by another page":              {"GET", "/open?token=" + g.token, "127.0.0.1:8080", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, 200},
		"embedded by another page":            {"GET", "/open?token=" + g.token, "127.0.0.1:8080", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}}, 403},
		"opened with another token":           {"GET", "/open?token=guess", "127.0.0.1:8080", nil, 403},
		"opened by a name that leads here":    {"GET", "/open?token=" + g.token, "evil.example", nil, 421},
		"asked for an answer by another site": {"GET", "/answer/eu-1/redis/shop/cache", "127.0.0.1:8080", with("Sec-Fetch-Site", "cross-site"), 403},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			request := httptest.NewRequest(test.method, test.path, nil)
			request.Host, request.Header = test.host, test.header.Clone()
			recorded := httptest.NewRecorder()
			g.ServeHTTP(recorded, request)
			if recorded.Code != test.want {
				t.Errorf("the answer is %d: %s", recorded.Code, recorded.Body)
			}
			if got := recorded.Header().Get("Content-Security-Policy"); got != policy {
				t.Errorf("the policy is %q", got)
			}
		})
	}
}
