// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// plot is a small picture of a figure over the number of members.
type plot struct {
	title, figure string
}

var plots = []plot{
	{"start-up, s", "start-up s"},
	{"resident memory, MiB", "RSS MiB"},
	{"CPU of a transition, ms", "transition CPU ms"},
}

const plotWidth, plotHeight, plotMargin = 240, 150, 46

// svg draws the growth: members to the right, the figure upwards, both from 0.
func svg(samples []sample, sizes []int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		len(plots)*(plotWidth+2*plotMargin), plotHeight+2*plotMargin)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	for i, p := range plots {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i*(plotWidth+2*plotMargin)+plotMargin, plotMargin)
		p.draw(&b, samples, sizes)
		fmt.Fprintln(&b, "</g>")
	}
	fmt.Fprintln(&b, "</svg>")
	return b.String()
}

func (p plot) draw(b *strings.Builder, samples []sample, sizes []int) {
	var highest float64
	at := map[int]float64{}
	for _, members := range sizes {
		if measured := spreadOf(byRound(samples, flotilla, growthPhase(members), p.figure).all()); measured.Rounds > 0 {
			at[members] = measured.Median
			highest = max(highest, measured.Median)
		}
	}
	fmt.Fprintf(b, `<text x="0" y="-16" font-weight="bold">%s</text>`+"\n", p.title)
	fmt.Fprintf(b, `<path d="M0 0 V%d H%d" fill="none" stroke="black"/>`+"\n", plotHeight, plotWidth)
	if highest == 0 {
		return
	}
	fmt.Fprintf(b, `<text x="-4" y="8" text-anchor="end">%s</text>`+"\n", figure(highest))
	var points []string
	widest := float64(sizes[len(sizes)-1])
	for _, members := range sizes {
		x := float64(members) / widest * plotWidth
		fmt.Fprintf(b, `<text x="%.0f" y="%d" text-anchor="middle">%d</text>`+"\n", x, plotHeight+16+12*(len(points)%2), members)
		value, measured := at[members]
		if !measured {
			continue
		}
		y := plotHeight * (1 - value/highest)
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3"><title>%d members: %s</title></circle>`+"\n", x, y, members, figure(value))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="steelblue" stroke-width="2"/>`+"\n", strings.Join(points, " "))
}
