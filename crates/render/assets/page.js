// Shared by the pages: making elements, the head of the page, light and dark. Text of a recording goes in as text only, and its letters
// cannot turn the text around them about.
"use strict";

const $ = (id) => document.getElementById(id);
const STEERING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A name made by a program: control characters and changes of direction are shown, not obeyed. */
function plain(text) {
  const visible = (letter) => (letter < " " ? String.fromCharCode(0x2400 + letter.charCodeAt(0)) : letter === "\u007f" ? "\u2421" : "\ufffd");
  return text.replace(STEERING, visible);
}

/** Text no longer than `most`. */
function short(text, most) {
  return text.length <= most ? text : text.slice(0, most - 1) + "…";
}

/** The part of a path that tells it apart: without where libraries are installed. */
function shortPath(path) {
  const installed = path.match(/^.*\/(?:site|dist)-packages\/(.+)$/) ?? path.match(/^.*\/lib\/python3\.\d+\/(.+)$/);
  return installed ? installed[1] : path;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fillHead({ title, subtitle, facts, notes }) {
  for (const id of ["facts", "notes"]) $(id)?.replaceChildren();
  $("title").textContent = short(plain(title), 300);
  $("subtitle").textContent = short(plain(subtitle), 600);
  for (const [name, value] of facts ?? []) {
    const pair = element("div");
    pair.append(element("dt", plain(name)), element("dd", plain(value)));
    $("facts").append(pair);
  }
  for (const note of notes) $("notes").append(element("p", short(plain(note), 2000)));
}

const wantsDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** Paper is light; `changed` draws again. */
function printInLight(isDark, changed) {
  let before = false;
  addEventListener("beforeprint", () => ((before = isDark()), changed(false)));
  addEventListener("afterprint", () => changed(before));
}

/** Shows the page that `make` makes of the data, or why it cannot. */
function begin(data, make) {
  data
    .then((data) => {
      window.stormlog = make(data);
      document.documentElement.dataset.ready = "yes";
    })
    .catch((error) => {
      $("empty").hidden = false;
      $("empty").textContent = "This page cannot show its data: " + error.message;
    });
}
