// Reads values under the pointer and looks closer at a stretch of time. Must never make HTML of a name: names are set as text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
let shown = null;
let picture = null;
let drag = null;
// How far below a panel its numbers stand; as `layout.rs` puts them.
const TICKS_BELOW = 17.5;

function say(value, measure) {
  if (measure === "bytes") return sayBytes(value);
  if (measure === "seconds") return value.toFixed(value < 10 ? 3 : 1) + " s";
  return String(Math.round(value * 1e6) / 1e6);
}

function place(event) {
  const box = picture.getBoundingClientRect();
  const scale = picture.viewBox.baseVal.width / box.width;
  return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
}

function panelAt(at) {
  return shown.panels.find(({ frame: f }) =>
    at.x >= f.left && at.x <= f.left + f.width && at.y >= f.top && at.y <= f.top + f.height);
}

const timeAt = (panel, x) => panel.window[0] + (x - panel.frame.left) / panel.frame.width * (panel.window[1] - panel.window[0]);
const placeOf = (panel, time) => panel.frame.left + (time - panel.window[0]) / (panel.window[1] - panel.window[0]) * panel.frame.width;

// The point of a series next to a time; its points are in time order.
function nearest(points, time) {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < time) low = middle + 1;
    else high = middle;
  }
  if (low > 0 && Math.abs(points[low - 1][0] - time) < Math.abs(points[low][0] - time)) low--;
  return low;
}

function read_(event) {
  const reading = document.getElementById("reading");
  const at = place(event);
  const panel = panelAt(at);
  const lines = panel ? panel.series.filter((s) => s.points.length && !s.hidden) : [];
  if (!lines.length) {
    reading.hidden = true;
    cursor(null);
    return;
  }
  const time = timeAt(panel, at.x);
  const first = lines[0].points[nearest(lines[0].points, time)];
  const said = [say(lines[0].is_line ? first[0] : time, panel.x)];
  for (const series of lines.slice(0, 12)) {
    const index = nearest(series.points, time);
    const label = series.labels[index];
    said.push(`${series.name || "value"}  ${say(series.points[index][1], panel.y)}${label ? "  " + label : ""}`);
  }
  if (lines.length > 12) said.push(`… and ${lines.length - 12} more`);
  reading.textContent = said.join("\n");
  reading.hidden = false;
  reading.style.left = Math.min(event.pageX + 14, document.documentElement.clientWidth - reading.offsetWidth - 8) + "px";
  reading.style.top = event.pageY + 14 + "px";
  cursor(panel, placeOf(panel, lines[0].is_line ? first[0] : time));
}

function element(name, id, attributes) {
  let found = document.getElementById(id);
  if (!found) {
    found = document.createElementNS(SVG, name);
    found.id = id;
    picture.append(found);
  }
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  return found;
}

function cursor(panel, x) {
  const old = document.getElementById("cursor");
  if (!panel || x < panel.frame.left || x > panel.frame.left + panel.frame.width) return old && old.remove();
  element("line", "cursor", { x1: x, x2: x, y1: panel.frame.top, y2: panel.frame.top + panel.frame.height });
}

// The numbers below a panel: their places stay, what they say is the time that is there now.
function relabel(panel, isWhole) {
  const f = panel.frame;
  if (!panel.ticks) {
    const below = (text) => Math.abs(text.y.baseVal[0].value - f.top - f.height - TICKS_BELOW) < 1;
    const within = (text) => text.x.baseVal[0].value >= f.left - 1 && text.x.baseVal[0].value <= f.left + f.width + 9;
    const all = [...picture.querySelectorAll("text")].filter((text) => below(text) && within(text));
    panel.ticks = all.map((text) => ({ text, whole: text.textContent }));
  }
  for (const { text, whole } of panel.ticks) {
    text.textContent = isWhole ? whole : say(timeAt(panel, text.x.baseVal[0].value), panel.x);
  }
}

// Draws the lines of all panels again for a stretch of time.
function look(from, to) {
  shown.panels.forEach((panel, number) => {
    if (!panel.can_look_closer && from !== null) return;
    const whole = panel.frame.x;
    panel.window = from === null ? whole : [Math.max(from, whole[0]), Math.min(to, whole[1])];
    const f = panel.frame;
    const y = (value) => f.top + f.height - (value - f.y[0]) / (f.y[1] - f.y[0]) * f.height;
    panel.series.forEach((series, index) => {
      if (!series.is_line) return;
      const inside = series.points.filter(([x], i) =>
        x >= panel.window[0] && x <= panel.window[1] && Number.isFinite(series.points[i][1]));
      const d = inside.map(([x, v], i) => (i ? "L" : "M") + placeOf(panel, x).toFixed(2) + " " + y(v).toFixed(2)).join("");
      const ground = inside.length ? `M${placeOf(panel, inside[0][0])} ${f.top + f.height}L${d.slice(1)}L${placeOf(panel, inside.at(-1)[0])} ${f.top + f.height}Z` : "";
      for (const [kind, path] of [["line", d], ["area", ground]]) {
        const drawn = document.getElementById(`${kind}-${number}-${index}`);
        if (drawn) {
          drawn.setAttribute("d", path);
          drawn.style.display = series.hidden ? "none" : "";
        }
      }
    });
    relabel(panel, from === null);
    const closer = from !== null && panel.series.some((s) => s.is_line);
    const note = document.getElementById(`closer-${number}`);
    if (note) note.remove();
    if (closer) {
      const text = element("text", `closer-${number}`, { x: f.left + 6, y: f.top + f.height - 8, "font-size": 12, fill: "#b42318", class: "tick" });
      text.textContent = `showing ${say(panel.window[0], panel.x)} to ${say(panel.window[1], panel.x)}`;
    }
  });
}

function start(event) {
  const at = place(event);
  const panel = panelAt(at);
  if (panel && panel.can_look_closer) drag = { panel, x: at.x };
}

function move(event) {
  read_(event);
  if (!drag) return;
  const { frame: f } = drag.panel;
  const x = Math.min(Math.max(place(event).x, f.left), f.left + f.width);
  element("rect", "chosen", { x: Math.min(x, drag.x), width: Math.abs(x - drag.x), y: f.top, height: f.height });
}

function end(event) {
  if (!drag) return;
  const { panel, x } = drag;
  drag = null;
  const chosen = document.getElementById("chosen");
  if (chosen) chosen.remove();
  const to = place(event).x;
  if (Math.abs(to - x) < 5) return;
  const times = [timeAt(panel, x), timeAt(panel, to)].sort((a, b) => a - b);
  look(times[0], times[1]);
}

// A click on a name in a legend hides its line.
function toggle(event) {
  const name = event.target.tagName === "text" ? event.target.textContent : null;
  const found = name ? shown.panels.flatMap((panel) => panel.series).filter((series) => series.name === name) : [];
  if (!found.length) return;
  for (const series of found) series.hidden = !series.hidden;
  event.target.style.opacity = found[0].hidden ? 0.4 : 1;
  const zoomed = shown.panels[0] && shown.panels[0].window;
  const whole = zoomed && zoomed[0] === shown.panels[0].frame.x[0] && zoomed[1] === shown.panels[0].frame.x[1];
  look(whole ? null : zoomed[0], whole ? null : zoomed[1]);
}

async function main() {
  shown = await read();
  const parsed = new DOMParser().parseFromString(shown.svg, "image/svg+xml");
  picture = document.importNode(parsed.documentElement, true);
  document.getElementById("picture").append(picture);
  for (const panel of shown.panels) panel.window = panel.frame.x;
  picture.addEventListener("pointerdown", start);
  picture.addEventListener("pointermove", move);
  picture.addEventListener("pointerup", end);
  picture.addEventListener("click", toggle);
  picture.addEventListener("pointerleave", () => { document.getElementById("reading").hidden = true; cursor(null); });
  picture.addEventListener("dblclick", () => look(null, null));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") look(null, null); });
  document.documentElement.dataset.ready = "yes";
}

main();
