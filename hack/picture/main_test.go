// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	var out strings.Builder
	transcript := "$ kubectl get <all>\r\n\x1b[32mTrue\x1b[0m  a & b \x1b[1;31mFalse\x1b[m\x1b[K\n\n"
	if err := draw(strings.NewReader(transcript), &out); err != nil {
		t.Fatal(err)
	}
	var texts []string
	decoder := xml.NewDecoder(strings.NewReader(out.String()))
	for fill := ""; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		switch token := token.(type) {
		case xml.StartElement:
			fill = ""
			for _, attribute := range token.Attr {
				if attribute.Name.Local == "fill" {
					fill = attribute.Value
				}
			}
		case xml.CharData:
			if text := string(token); strings.TrimSpace(text) != "" {
				texts = append(texts, text+"|"+fill)
			}
		}
	}
	want := "$ kubectl get <all>|\nTrue|#7ee787\n  a & b |\nFalse|#ff7b72"
	if got := strings.Join(texts, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
