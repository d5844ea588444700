// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard is the page of kubectl flotilla dashboard: a web server on the loopback interface that shows the fleet
// with the rights of the user, and writes nothing.
//
// A Server watches what it shows. Whenever something changes, at most twice a second, it makes a model of the fleet. A page
// is a function of a model: it consists of pieces, which are elements with an id. A browser has one stream, by which the
// server sends the pieces of its page that have changed since.
//
// What is said about the fleet comes from the commands of the plugin, through Sayings: the page and the commands use the same
// words. All texts may come from members, which may be hostile. They reach the page through html/template only, and the page
// may load and run nothing but the files in assets.
//
// The files htmx.min.js and hx-sse.min.js are dist/htmx.min.js and dist/ext/hx-sse.min.js of htmx.org 4.0.1, unchanged.
package dashboard
