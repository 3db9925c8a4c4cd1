// The plot of memory over time, and the span brushed on it. Must never change the data, only say which span was chosen.
"use strict";

class Strip {
  constructor(canvas, data, state, chosen) {
    Object.assign(this, { canvas, data, state, chosen });
    this.context = canvas.getContext("2d");
    this.hover = -1;
    this.pointed();
    this.listen();
    this.show(data);
  }

  /** Another memory, on the same axis of time. */
  show(data) {
    this.data = data;
    this.hover = -1;
    this.canvas.style.cursor = data.spans ? "" : "default";
  }

  bin(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const time = this.data.strip.time;
    const wanted = share * this.state.end;
    let after = time.findIndex((t) => t >= wanted);
    if (after < 0) after = time.length - 1;
    return after > 0 && wanted - time[after - 1] < time[after] - wanted ? after - 1 : after;
  }

  /** The figures under the pointer. */
  pointed() {
    const point = (at) => {
      if (at !== this.hover) (this.hover = at), this.draw();
    };
    this.canvas.addEventListener("pointermove", (event) => point(this.bin(event)));
    this.canvas.addEventListener("pointerleave", () => point(-1));
  }

  listen() {
    let start = -1;
    this.canvas.addEventListener("pointerdown", (event) => {
      if (!this.data.spans) return;
      start = this.bin(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (start < 0) return;
      const now = this.bin(event);
      this.state.span = [Math.min(start, now), Math.max(start, now)];
      this.draw();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (start < 0) return;
      const end = this.bin(event);
      const span = [Math.min(start, end), Math.max(start, end)];
      start = -1;
      this.chosen(span[0] === span[1] ? null : span);
    });
    this.canvas.addEventListener("keydown", (event) => {
      if (!this.data.spans) return;
      const last = this.data.strip.time.length - 1;
      let [from, to] = this.state.span ?? [0, last];
      const step = Math.max(1, Math.round(last / 50));
      if (event.key === "ArrowLeft") event.shiftKey ? (to -= step) : (from -= step);
      else if (event.key === "ArrowRight") event.shiftKey ? (to += step) : (from += step);
      else if (event.key === "Escape") return this.chosen(null);
      else return;
      event.preventDefault();
      from = Math.max(0, Math.min(from, last - 1));
      to = Math.min(last, Math.max(to, from + 1));
      this.chosen([from, to]);
    });
  }

  draw() {
    const { canvas, context: c, data, state } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.font = "11px system-ui, sans-serif";
    const { time, heap, rss } = data.strip;
    const style = getComputedStyle(document.documentElement);
    const paint = (name) => style.getPropertyValue(name);
    const top = [...heap, ...(rss ?? [])].reduce((most, value) => Math.max(most, value ?? 0), 1);
    const [roof, floor] = [18, height - 15];
    const last = time.length - 1;
    const x = (i) => (time[i] / Math.max(1, state.end)) * width;
    const y = (v) => floor - (v / top) * (floor - roof);
    Object.assign(this, { x, y, floor, width, paint });
    if (state.span) {
      c.fillStyle = paint("--focus");
      c.globalAlpha = 0.16;
      c.fillRect(x(state.span[0]), 0, Math.max(2, x(state.span[1]) - x(state.span[0])), floor);
      c.globalAlpha = 1;
    }
    c.beginPath();
    c.moveTo(x(0), floor);
    heap.forEach((v, i) => c.lineTo(x(i), y(v)));
    c.lineTo(x(last), floor);
    c.closePath();
    c.fillStyle = paint("--heap");
    c.globalAlpha = 0.24;
    c.fill();
    c.globalAlpha = 1;
    if (rss) this.line(rss, "--rss", [4, 3]);
    this.line(heap, "--heap", []);
    c.fillStyle = paint("--line");
    c.fillRect(0, floor, width, 1);
    this.words(state.end);
    this.mark(this.hover >= 0 ? this.hover : moment(data, state));
  }

  line(curve, name, dash) {
    const { context: c } = this;
    c.beginPath();
    c.setLineDash(dash);
    let pen = false;
    curve.forEach((v, i) => {
      if (v === null) return (pen = false);
      pen ? c.lineTo(this.x(i), this.y(v)) : c.moveTo(this.x(i), this.y(v));
      pen = true;
    });
    c.strokeStyle = this.paint(name);
    c.lineWidth = 1.4;
    c.stroke();
    c.setLineDash([]);
  }

  /** Times below, and what the curves are above. */
  words(end) {
    const { context: c, width } = this;
    const height = this.canvas.clientHeight;
    c.fillStyle = this.paint("--soft");
    for (let i = 0; i <= 4; i++) {
      const text = i === 0 ? "0" : sayTime((end * i) / 4);
      const at = (width * i) / 4 - (i === 4 ? c.measureText(text).width : i === 0 ? 0 : c.measureText(text).width / 2);
      c.fillText(text, at, height - 2);
    }
    let at = 0;
    const [heap, rss] = this.data.strip.names;
    const legend = [["--heap", heap, []], ...(this.data.strip.rss ? [["--rss", rss, [4, 3]]] : [])];
    for (const [name, text, dash] of legend) {
      c.strokeStyle = this.paint(name);
      c.setLineDash(dash);
      c.lineWidth = 2;
      c.beginPath();
      c.moveTo(at, 6);
      c.lineTo(at + 18, 6);
      c.stroke();
      c.setLineDash([]);
      c.fillText(text, at + 23, 10);
      at += 36 + c.measureText(text).width;
    }
    this.legendEnd = at;
  }

  /** One moment: the one that the graph shows, or the one under the pointer. */
  mark(at) {
    const { context: c, data, width } = this;
    if (at < 0) return;
    const { time, heap, rss } = data.strip;
    const x = this.x(at);
    c.strokeStyle = this.paint("--ink");
    c.globalAlpha = 0.5;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, 14);
    c.lineTo(x, this.floor);
    c.stroke();
    c.globalAlpha = 1;
    c.fillStyle = this.paint("--heap");
    c.beginPath();
    c.arc(x, this.y(heap[at]), 3, 0, 7);
    c.fill();
    const what = this.hover >= 0 ? "" : "shown: ";
    const resident = rss && rss[at] !== null ? `, ${data.strip.names[1]} ${sayBytes(rss[at])}` : "";
    const figure = `${sayBytes(heap[at])} at ${sayTime(time[at])}`;
    const room = width - this.legendEnd - 8;
    const text = [what + figure + resident, what + figure, figure].find((text) => c.measureText(text).width <= room) ?? sayBytes(heap[at]);
    const wide = c.measureText(text).width;
    c.fillStyle = this.paint("--ink");
    c.fillText(text, Math.min(Math.max(x - wide / 2, this.legendEnd + 8), width - wide), 10);
  }
}
