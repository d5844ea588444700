// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
)

// policy is what a page may do: load and run the files in assets, and ask the server that it comes from.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// guard admits only the browser that was given the token, and only pages of the server itself. Other pages in that browser,
// which may be anybody's, can neither read nor embed what it protects: a name that leads to the loopback interface does not
// help them, because it is another host.
type guard struct {
	token string
	// hosts are the names by which the server is asked, with its port.
	hosts []string
	next  http.Handler
}

// newToken returns 256 random bits.
func newToken() string {
	token := make([]byte, 32)
	// It never fails.
	_, _ = rand.Read(token)
	return base64.RawURLEncoding.EncodeToString(token)
}

// cookie is the name of the cookie with the token. Cookies are the same for all ports of a host.
func (g *guard) cookie() string {
	_, port, _ := splitHost(g.hosts[0])
	return "flotilla-" + port
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	opening := r.URL.Path == "/open"
	switch {
	case !slices.Contains(g.hosts, r.Host):
		refuse(w, http.StatusMisdirectedRequest, "This host is not served here.")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "This page only reads.")
	case !g.fromHere(r, opening):
		refuse(w, http.StatusForbidden, "Another site has asked for this page.")
	case opening:
		g.open(w, r)
	case !g.knows(r):
		refuse(w, http.StatusForbidden, "Open the address that kubectl flotilla dashboard has printed.")
	default:
		g.next.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, status int, text string) { http.Error(w, text, status) }

// fromHere reports whether a page of the server, or the user, has asked. The address with the token may also be followed
// from elsewhere: the token is what it is protected by.
func (g *guard) fromHere(r *http.Request, opening bool) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		from, err := url.Parse(origin)
		if err != nil || from.Scheme != "http" || from.Host != r.Host {
			return false
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return opening && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// knows reports whether the browser has the token.
func (g *guard) knows(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookie())
	return err == nil && g.isToken(cookie.Value)
}

func (g *guard) isToken(value string) bool {
	return subtle.ConstantTimeCompare([]byte(value), []byte(g.token)) == 1
}

// open gives the browser a cookie for the token, and leads it on. It is a page, and not a redirect, so that the next request
// comes from here wherever this one came from: only then the cookie is sent.
func (g *guard) open(w http.ResponseWriter, r *http.Request) {
	if !g.isToken(r.URL.Query().Get("token")) {
		refuse(w, http.StatusForbidden, "The token is not that of this server; open the address that it has printed.")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie(), Value: g.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(`<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><link rel="icon" href="data:,"><title>Flotilla</title><p><a href="/">Open the fleet</a></p></html>`))
}
