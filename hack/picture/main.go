// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command picture draws what a terminal shows: it reads a transcript with colours from standard input and writes an SVG to
// standard output. Of the control sequences, it knows colours (ECMA-48 SGR) and ignores the others.
package main

import (
	"fmt"
	"html"
	"io"
	"log"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Sizes in pixels of a character, and of what surrounds the text.
const (
	charWidth  = 8.4
	lineHeight = 19
	margin     = 16
	titleBar   = 34
)

// colours are the fills of the SGR parameters that select a colour or weight.
var colours = map[string]string{
	"1": "#ffffff", "2": "#8b949e", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea",
}

// control matches a control sequence. Its groups are the parameters and the final byte.
var control = regexp.MustCompile("\x1b\\[([0-9;?]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>]")

func main() {
	if err := draw(os.Stdin, os.Stdout); err != nil {
		log.Fatal("drawing the transcript: ", err)
	}
}

// draw writes the picture of a transcript.
func draw(transcript io.Reader, picture io.Writer) error {
	raw, err := io.ReadAll(transcript)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(raw), "\r", ""), "\n"), "\n")
	columns := 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(control.ReplaceAllString(line, "")))
	}
	width, height := int(float64(columns)*charWidth)+2*margin, titleBar+len(lines)*lineHeight+margin
	out := &strings.Builder{}
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14">`+"\n", width, height, width, height)
	fmt.Fprintf(out, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	for i, fill := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(out, `<circle cx="%d" cy="17" r="6" fill="%s"/>`+"\n", margin+6+i*20, fill)
	}
	for i, line := range lines {
		if line := spans(line); line != "" {
			fmt.Fprintf(out, `<text x="%d" y="%d" fill="#e6edf3" xml:space="preserve">%s</text>`+"\n", margin, titleBar+(i+1)*lineHeight-5, line)
		}
	}
	out.WriteString("</svg>\n")
	_, err = io.WriteString(picture, out.String())
	return err
}

// spans returns a line as SVG text. Each coloured part has its length, because the viewer's font may be wider.
func spans(line string) string {
	var out strings.Builder
	column, fill := 0, ""
	write := func(text string) {
		if text == "" {
			return
		}
		length := utf8.RuneCountInString(text)
		fmt.Fprintf(&out, `<tspan x="%.1f" textLength="%.1f"`, margin+float64(column)*charWidth, float64(length)*charWidth)
		if fill != "" {
			fmt.Fprintf(&out, ` fill="%s"`, fill)
		}
		fmt.Fprintf(&out, `>%s</tspan>`, html.EscapeString(text))
		column += length
	}
	rest := 0
	for _, at := range control.FindAllStringSubmatchIndex(line, -1) {
		write(line[rest:at[0]])
		rest = at[1]
		if at[4] < 0 || line[at[4]:at[5]] != "m" {
			continue
		}
		for parameter := range strings.SplitSeq(line[at[2]:at[3]], ";") {
			fill = colours[parameter]
		}
	}
	write(line[rest:])
	return out.String()
}
