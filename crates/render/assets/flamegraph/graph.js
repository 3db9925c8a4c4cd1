// Draws the tree on a canvas: only what is wide enough to be seen. Must never hold data of its own besides where things are.
"use strict";

const ROW = 19;
const LEAST = 0.6; // pixels below which a frame is not drawn

class Graph {
  constructor(canvas, data, state) {
    this.canvas = canvas;
    this.data = data;
    this.state = state;
    this.context = canvas.getContext("2d");
  }

  /** The part of the whole width that the zoomed frame fills. */
  window() {
    const { tree, zoom } = this.state;
    return [tree.left[zoom], Math.max(tree.width[zoom], 1e-9)];
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const levels = Math.min(this.state.tree.levels, 1500);
    const height = Math.min(levels * ROW + 2, 30000);
    this.canvas.style.height = height + "px";
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = width;
    this.height = height;
  }

  y(depth) {
    return this.state.upside ? this.height - (depth + 1) * ROW - 1 : depth * ROW + 1;
  }

  draw() {
    this.resize();
    const { context: c, state } = this;
    const { tree } = state;
    const [from, span] = this.window();
    const scale = this.width / span;
    c.clearRect(0, 0, this.width, this.height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.shown = [];
    const visit = [0];
    while (visit.length) {
      const node = visit.pop();
      const left = (tree.left[node] - from) * scale;
      const wide = tree.width[node] * scale;
      if (wide < LEAST || left > this.width || left + wide < 0) continue;
      this.box(node, Math.max(left, 0), Math.min(left + wide, this.width));
      const list = tree.children[node];
      if (list) for (let i = list.length - 1; i >= 0; i--) visit.push(list[i]);
    }
  }

  box(node, left, right) {
    const { context: c, state } = this;
    const y = this.y(state.tree.depth[node]);
    const wide = right - left;
    this.shown.push([node, left, right, y]);
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
    if (wide > 34) {
      c.fillStyle = ink;
      c.fillText(this.fit(this.label(node), wide - 8), left + 4, y + ROW / 2);
    }
    c.globalAlpha = 1;
  }

  fit(text, room) {
    // Measuring is slow: only text that may be too long is measured, and cut by its mean width until it fits.
    let most = Math.floor(room / 5);
    let cut = text.length <= most ? text : text.slice(0, most - 1) + "…";
    for (let wide = this.context.measureText(cut).width; wide > room; wide = this.context.measureText(cut).width) {
      most = Math.min(cut.length - 1, Math.floor((cut.length * room) / wide));
      if (most < 3) return "";
      cut = text.slice(0, most - 1) + "…";
    }
    return cut;
  }

  label(node) {
    const frame = this.state.tree.frame[node];
    if (frame < 0) return "all";
    return this.state.names[frame];
  }

  colours(node) {
    const { tree, dark } = this.state;
    const frame = tree.frame[node];
    if (tree.before && this.data.entries.before_bytes) return this.difference(node);
    if (frame < 0) return dark ? ["#3a3c42", "#e9e6df"] : ["#dcd8ce", "#1c1b19"];
    const flags = this.data.frames.flags[frame];
    const hash = (Math.imul(this.data.frames.file[frame] + 1, 0x9e3779b1) >>> 16) & 255;
    let hue = 14 + (hash / 255) * 34, chroma = 62;
    if (flags & NATIVE) (hue = 205 + (hash / 255) * 25), (chroma = 22);
    else if (flags & (LIBRARY | IMPORT | INTERPRETER)) chroma = 22;
    return dark ? [`hsl(${hue} ${chroma}% ${30 + (hash & 7)}%)`, "#f4f1ea"] : [`hsl(${hue} ${chroma}% ${72 + (hash & 7)}%)`, "#1c1b19"];
  }

  difference(node) {
    const { tree, dark } = this.state;
    const delta = tree.total[node] - tree.before[node];
    const share = Math.max(-1, Math.min(1, delta / Math.max(tree.width[node], 1)));
    const strength = Math.round(Math.abs(share) * 60);
    const hue = delta > 0 ? 8 : 215;
    return dark ? [`hsl(${hue} ${strength}% ${26 + strength / 6}%)`, "#f4f1ea"] : [`hsl(${hue} ${strength + 10}% ${90 - strength / 2.4}%)`, "#1c1b19"];
  }

  at(x, y) {
    for (const [node, left, right, top] of this.shown ?? []) if (x >= left && x <= right && y >= top && y < top + ROW) return node;
    return -1;
  }
}
