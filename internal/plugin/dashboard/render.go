// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"embed"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

//go:embed assets templates
var files embed.FS

// asset answers with a file that pages load.
func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	content, err := files.ReadFile(path.Join("assets", path.Base(name)))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(content)
}

// tones are the classes of the colours of the console.
var tones = map[console.Colour]string{console.Green: "good", console.Yellow: "warn", console.Red: "bad", console.Faint: "faint"}

// parsed are the templates. Command is set by each renderer.
var parsed = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"command":  func(text string) string { return text },
		"known":    func(when *metav1.Time) bool { return when != nil && !when.IsZero() },
		"machine":  func(when *metav1.Time) string { return when.UTC().Format(time.RFC3339) },
		"person":   func(when *metav1.Time) string { return when.UTC().Format("2006-01-02 15:04:05 UTC") },
		"clock":    func(when time.Time) string { return when.UTC().Format("15:04:05 UTC") },
		"tone":     func(cell console.Cell) string { return tones[cell.Colour] },
		"toneOf":   func(status metav1.ConditionStatus) string { return tones[console.ForStatus(status)] },
		"orDash":   console.OrDash,
		"list":     func(names []string) string { return strings.Join(names, ", ") },
		"runnable": runnable,
	}).ParseFS(files, "templates/*.html"))
})

// runnable returns the command at the beginning of what to do; empty if there is none.
func runnable(next string) string {
	if !strings.HasPrefix(next, "kubectl ") {
		return ""
	}
	for _, end := range []string{", or ", " shows "} {
		next, _, _ = strings.Cut(next, end)
	}
	return next
}

// renderer makes pages of models.
type renderer struct {
	sayings   Sayings
	templates *template.Template
}

// newRenderer returns a renderer that adds flags to the commands that the pages offer.
func newRenderer(sayings Sayings, flags string) *renderer {
	templates := template.Must(parsed().Clone()).Funcs(template.FuncMap{
		"command": func(text string) string { return strings.TrimSpace(text + " " + flags) },
	})
	return &renderer{sayings: sayings, templates: templates}
}

// builder makes the pieces of one page.
type builder struct {
	*renderer
	m     *model
	query url.Values
	// err is the first error of a template.
	err error
}

// piece renders a piece.
func (b *builder) piece(id, name string, data any, items ...*piece) *piece {
	var out bytes.Buffer
	if err := b.templates.ExecuteTemplate(&out, name, data); err != nil && b.err == nil {
		b.err = err
	}
	return newPiece(id, out.Bytes(), items...)
}

// view is a screen.
type view struct {
	title string
	// where is the screen in the navigation.
	where string
	// class is of the element around the pieces.
	class string
	build func(b *builder) []*piece
	// missing is true if what the address names is not there.
	missing bool
}

// viewAt returns the screen at an address.
func (r *renderer) viewAt(m *model, address *url.URL) view {
	parts := strings.Split(strings.Trim(address.Path, "/"), "/")
	switch {
	case address.Path == "/":
		return view{title: "Fleet", where: "fleet", class: "fleet", build: (*builder).fleet}
	case len(parts) == 1 && parts[0] == "events":
		return view{title: "Events", where: "events", class: "one", build: (*builder).eventsScreen}
	case len(parts) == 2 && parts[0] == "members" && m.memberNamed[parts[1]] != nil:
		member := m.memberNamed[parts[1]]
		return view{title: member.Name, class: "two", build: func(b *builder) []*piece { return b.memberScreen(member) }}
	case len(parts) > 2 && parts[0] == "objects":
		if object := m.objectNamed[strings.Join(parts[1:], "/")]; object != nil {
			return view{title: object.name, class: "two", build: func(b *builder) []*piece { return b.objectScreen(object) }}
		}
	case len(parts) > 3 && parts[0] == "why":
		if object := m.objectNamed[strings.Join(parts[2:], "/")]; object != nil {
			return view{title: object.name + " in " + parts[1], class: "one", build: func(b *builder) []*piece { return b.whyScreen(object, parts[1]) }}
		}
	}
	return view{title: "Not there", class: "one", missing: true, build: func(b *builder) []*piece {
		return []*piece{b.piece("missing", "missing", address.Path)}
	}}
}

// pieces returns the pieces of the page at an address: the head, and those of the screen.
func (r *renderer) pieces(m *model, address *url.URL) []*piece {
	pieces, _, _ := r.build(m, address)
	return pieces
}

func (r *renderer) build(m *model, address *url.URL) ([]*piece, view, error) {
	b := &builder{renderer: r, m: m, query: address.Query()}
	v := r.viewAt(m, address)
	head := b.piece("head", "head", map[string]any{"Link": m.link, "Live": m.link.live, "AsOf": m.link.asOf, "Trouble": m.link.trouble, "Hub": m.hub, "Where": v.where})
	pieces := append([]*piece{head}, v.build(b)...)
	return pieces, v, b.err
}

// document returns the whole page at an address.
func (r *renderer) document(m *model, address *url.URL) ([]byte, int, error) {
	pieces, v, err := r.build(m, address)
	if err != nil {
		return nil, 0, err
	}
	here := url.URL{Path: address.Path, RawQuery: address.RawQuery}
	query := url.Values{"at": {here.String()}}
	b := &builder{renderer: r, m: m}
	page := b.piece("", "document", map[string]any{
		"Title": v.title, "Class": v.class, "Stream": "/stream?" + query.Encode(), "Since": m.number,
	}, pieces[1:]...)
	// The head stands before what the stream is for.
	whole := bytes.Replace(page.appendTo(nil), []byte("<hr data-head>"), pieces[0].appendTo(nil), 1)
	status := http.StatusOK
	if v.missing {
		status = http.StatusNotFound
	}
	return whole, status, b.err
}
