// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// What the page does by itself: ages, copying commands, arrow keys among tiles, and the word that it is not up to date.
"use strict";

// age says how long ago a time was, as kubectl does.
function age(then) {
  const ahead = then > Date.now();
  const s = Math.floor(Math.abs(Date.now() - then) / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const two = (a, x, b, y) => b ? a + x + b + y : a + x;
  let text;
  if (s < 120) text = s + "s";
  else if (m < 10) text = two(m, "m", s % 60, "s");
  else if (m < 180) text = m + "m";
  else if (h < 8) text = two(h, "h", m % 60, "m");
  else if (h < 48) text = h + "h";
  else if (d < 8) text = two(d, "d", h % 24, "h");
  else if (d < 730) text = d + "d";
  else text = two(Math.floor(d / 365), "y", d % 365, "d");
  return ahead ? "in " + text : text;
}

function tellAges() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const text = age(Date.parse(element.dateTime));
    if (element.textContent === text) continue;
    if (!element.title) element.title = new Date(element.dateTime).toLocaleString();
    element.textContent = text;
  }
}

const clockOf = when => new Date(when).toISOString().slice(11, 19) + " UTC";

// heard is when the page was last up to date, and silent whether the server itself does not answer.
let heard = Date.now(), silent = false, lastBeat = Date.now();

// tellLost says that the server does not answer, or takes it back.
function tellLost(lost) {
  if (lost === silent) return;
  silent = lost;
  document.documentElement.classList.toggle("lost", lost);
  const word = document.querySelector("#head .asof");
  if (lost && word) word.textContent = "as of " + clockOf(heard) + ": kubectl flotilla dashboard does not answer";
}

document.addEventListener("beat", event => {
  window.beats = (window.beats ?? 0) + 1;
  lastBeat = Date.now();
  heard = Date.parse(event.detail.data);
  if (silent) location.reload();
});
document.addEventListener("htmx:sse:error", () => tellLost(true));

// A page that is left keeps no stream: a browser has few connections to a server. One that is come back to is loaded again.
addEventListener("pagehide", () => {
  const stream = document.getElementById("stream"), connection = stream?._htmx?.sse;
  stream?.remove();
  connection?.abortController?.abort();
  connection?.reader?.cancel();
});
addEventListener("pageshow", event => { if (event.persisted) location.reload(); });
document.addEventListener("htmx:after:swap", tellAges);
document.addEventListener("visibilitychange", () => { if (!document.hidden) lastBeat = Date.now(); });

// A page that was asleep or busy has not listened, which says nothing about the server.
let looked = Date.now();

setInterval(() => {
  tellAges();
  const now = Date.now();
  if (now - looked > 10000) lastBeat = now;
  looked = now;
  if (!document.hidden && now - lastBeat > 15000) tellLost(true);
}, 5000);

document.addEventListener("click", async event => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  event.preventDefault();
  const told = document.getElementById("told");
  try {
    await navigator.clipboard.writeText(button.title);
    told.textContent = "Copied: " + button.title;
  } catch {
    told.textContent = button.title;
  }
  told.classList.add("shown");
  setTimeout(() => told.classList.remove("shown"), 2500);
});

// inOrder returns the tiles of a group as they are seen: those in a worse state come first.
function inOrder(tiles) {
  return [...tiles.querySelectorAll("a.t")].map((tile, i) => [Number(getComputedStyle(tile).order), i, tile])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(entry => entry[2]);
}

document.addEventListener("keydown", event => {
  const tile = event.target.closest?.("a.t");
  if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
  const tiles = inOrder(tile.parentElement), at = tiles.indexOf(tile), top = tiles[0].offsetTop;
  const columns = Math.max(1, tiles.filter(other => other.offsetTop === top).length);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns, Home: 0, End: tiles.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  tiles[Math.min(tiles.length - 1, Math.max(0, to))].focus();
});

// The tip says what a tile is, when it is pointed at or has the focus.
function tell(tile) {
  const tip = document.getElementById("tip");
  tip.hidden = !tile;
  if (!tile) return;
  tip.textContent = tile.getAttribute("aria-label") + (tile.dataset.since ? ", " + age(Date.parse(tile.dataset.since)) : "");
  const box = tile.getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.setAttribute("data-x", left);
  const sheet = tell.sheet ??= (() => { const made = new CSSStyleSheet(); document.adoptedStyleSheets.push(made); return made; })();
  sheet.replaceSync(`#tip{left:${Math.max(8, left) + scrollX}px;top:${box.bottom + scrollY + 6}px}`);
}
for (const [name, on] of [["mouseover", true], ["focusin", true], ["mouseout", false], ["focusout", false]]) {
  document.addEventListener(name, event => {
    const tile = event.target.closest?.("a.t");
    if (tile || !on) tell(on ? tile : null);
  });
}
document.addEventListener("keydown", event => { if (event.key === "Escape") tell(null); });

tellAges();
