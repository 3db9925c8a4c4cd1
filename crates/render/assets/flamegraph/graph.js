// Draws the tree on a canvas: only what is wide enough to be seen. Must never hold data of its own besides where things are.
"use strict";

const ROW = 19;
const LEAST = 0.6; // pixels below which a frame is not drawn
const MOST_LEVELS = 1500;
const LEAST_FOLDED = 3; // outermost frames that are not worth folding
const FONT = "12px system-ui, sans-serif";

class Graph {
  constructor(canvas, data, state) {
    Object.assign(this, { canvas, data, state });
    this.context = canvas.getContext("2d");
    this.context.font = FONT;
    // Measuring text is slow, and the same few names come again and again.
    this.widths = new Map();
    this.names = data.frames.function.map((_, frame) => {
      // A module is known by its file.
      const name = shortName(data, frame);
      const place = placeOf(data, frame);
      return name === "<module>" && place ? [place + "  <module>", place] : [place ? name + "  " + place : name, name];
    });
  }

  /** The part of the whole width that the zoomed frame fills. */
  window() {
    const { tree, zoom } = this.state;
    return [tree.left[zoom], Math.max(tree.width[zoom], 1e-9)];
  }

  resize(levels) {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = levels * ROW + 2;
    this.canvas.style.height = this.height + "px";
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.font = FONT;
    this.context.textBaseline = "middle";
  }

  y(depth) {
    const row = this.row(depth);
    return this.state.upside ? this.height - (row + 1) * ROW - 1 : row * ROW + 1;
  }

  row(depth) {
    return depth <= 1 ? depth : Math.max(1, depth - Math.max(0, this.folded - 1));
  }

  /** The number of outermost frames through which every stack passes and that are not the user's code: a notebook's or a test runner's. */
  trunk(scale) {
    const { tree, unfolded, invert } = this.state;
    if (unfolded || invert) return 0;
    let levels = 0;
    for (let node = 0; ; levels++) {
      const next = tree.child[tree.first[node]];
      const isAlone = tree.first[node + 1] > tree.first[node] && (tree.width[node] - tree.width[next]) * scale < LEAST;
      if (!isAlone || this.data.frames.flags[tree.frame[next]] === 0) break;
      node = next;
    }
    return levels > LEAST_FOLDED ? levels : 0;
  }

  draw() {
    const { tree } = this.state;
    const [from, span] = this.window();
    const wide = this.canvas.clientWidth;
    const scale = wide / span;
    this.folded = this.trunk(wide / Math.max(tree.width[0], 1e-9));
    const seen = [];
    let levels = 1;
    const visit = [0];
    while (visit.length) {
      const node = visit.pop();
      const left = (tree.left[node] - from) * scale;
      const right = left + tree.width[node] * scale;
      if (right - left < LEAST || left > wide || right < 0 || tree.depth[node] >= MOST_LEVELS) continue;
      // Of the folded ones only the first has a row.
      if (tree.depth[node] <= 1 || tree.depth[node] > this.folded) seen.push([node, Math.max(left, 0), Math.min(right, wide)]);
      levels = Math.max(levels, this.row(tree.depth[node]) + 1);
      for (let k = tree.first[node + 1] - 1; k >= tree.first[node]; k--) visit.push(tree.child[k]);
    }
    this.resize(levels);
    this.shown = seen.map(([node, left, right]) => [node, left, right, this.y(tree.depth[node])]);
    for (const box of this.shown) this.box(...box);
  }

  box(node, left, right, y) {
    const { context: c, state } = this;
    const wide = right - left;
    const [fill, ink] = this.colours(node);
    c.globalAlpha = state.matching && !state.matching.has(node) ? 0.28 : 1;
    c.fillStyle = fill;
    c.fillRect(left, y, Math.max(wide - 0.6, LEAST), ROW - 1);
    if (node === state.focus) {
      c.globalAlpha = 1;
      c.strokeStyle = state.focusColour;
      c.lineWidth = 2;
      c.strokeRect(left + 1, y + 1, Math.max(wide - 2.6, 1), ROW - 3);
    }
    const text = wide > 22 ? this.label(node, wide - 8) : "";
    if (text) {
      c.fillStyle = ink;
      c.fillText(text, left + 4, y + ROW / 2);
    }
    c.globalAlpha = 1;
  }

  measure(text) {
    let wide = this.widths.get(text);
    if (wide === undefined) this.widths.set(text, (wide = this.context.measureText(text).width));
    return wide;
  }

  /** The label of a box of width `room`: name and place, the name alone, its beginning, or nothing rather than a letter or two. */
  label(node, room) {
    const frame = this.state.tree.frame[node];
    const [both, name] = frame < 0 ? [this.rootLabel(), "all"] : this.isFold(node) ? [`… ${this.folded} outer frames of libraries: click to show them`, "…"] : this.names[frame];
    // No letter is narrower than two pixels on average: of a name of ten thousand only the beginning is measured.
    const most = Math.ceil(room / 2);
    if (both.length <= most && this.measure(both) <= room) return both;
    if (name.length <= most && this.measure(name) <= room) return name;
    let cut = name.slice(0, most);
    while (cut.length > 3) {
      const wide = this.measure(cut + "…");
      if (wide <= room) return cut + "…";
      cut = cut.slice(0, Math.min(cut.length - 1, Math.floor((cut.length * room) / wide)));
    }
    return "";
  }

  rootLabel() {
    return "all  " + this.state.say(this.state.tree.total[0]);
  }

  isFold(node) {
    return this.folded > 0 && node > 0 && this.state.tree.depth[node] <= this.folded;
  }

  /** Name and place in full. */
  title(node) {
    const frame = this.state.tree.frame[node];
    return frame < 0 ? "all" : this.names[frame][0];
  }

  colours(node) {
    const { tree, dark } = this.state;
    const frame = tree.frame[node];
    if (this.data.entries.before_bytes) return this.difference(node);
    if (frame < 0) return dark ? ["#3a3c42", "#e9e6df"] : ["#dcd8ce", "#1c1b19"];
    return frameColours(this.data.frames.flags[frame], this.data.frames.file[frame], dark);
  }

  difference(node) {
    const { tree, dark } = this.state;
    const delta = tree.total[node] - tree.before[node];
    const share = Math.min(1, Math.abs(delta) / Math.max(tree.width[node], 1));
    const strength = Math.round(share * 60);
    if (strength === 0) return dark ? ["#34363c", "#e9e6df"] : ["#e4e1d9", "#1c1b19"];
    const hue = delta > 0 ? 8 : 215;
    return dark ? [`hsl(${hue} ${strength}% ${26 + strength / 6}%)`, "#f4f1ea"] : [`hsl(${hue} ${strength + 10}% ${90 - strength / 2.4}%)`, "#1c1b19"];
  }

  at(x, y) {
    for (const [node, left, right, top] of this.shown ?? []) if (x >= left && x <= right && y >= top && y < top + ROW) return node;
    return -1;
  }
}

/** Box and ink of a frame: one's own code is warm, a library's is pale, what is not Python is blue; a file keeps its shade. */
function frameColours(flags, file, dark) {
  const hash = (Math.imul(file + 1, 0x9e3779b1) >>> 16) & 255;
  let hue = (dark ? 12 : 16) + (hash / 255) * (dark ? 20 : 26), chroma = dark ? 48 : 74;
  if (flags & NATIVE) (hue = 205 + (hash / 255) * 25), (chroma = dark ? 20 : 26);
  else if (flags & (LIBRARY | IMPORT | INTERPRETER)) chroma = dark ? 12 : 20;
  const light = (dark ? 31 : 75) + (hash & 7);
  return [`hsl(${hue} ${chroma}% ${light}%)`, dark ? "#f4f1ea" : "#1c1b19"];
}
