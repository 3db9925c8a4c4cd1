// The plot of memory over time, and the span brushed on it. Must never change the data, only say which span was chosen.
"use strict";

class Strip {
  constructor(canvas, data, state, chosen) {
    Object.assign(this, { canvas, data, state, chosen });
    this.context = canvas.getContext("2d");
    if (!data.spans) canvas.style.cursor = "default";
    else this.listen();
  }

  bin(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const time = this.data.strip.time;
    const wanted = time[0] + share * (time[time.length - 1] - time[0]);
    let after = time.findIndex((t) => t >= wanted);
    if (after < 0) after = time.length - 1;
    return after > 0 && wanted - time[after - 1] < time[after] - wanted ? after - 1 : after;
  }

  listen() {
    let start = -1;
    this.canvas.addEventListener("pointerdown", (event) => {
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
      const end = this.bin(event);
      const span = [Math.min(start, end), Math.max(start, end)];
      start = -1;
      this.chosen(span[0] === span[1] ? null : span);
    });
    this.canvas.addEventListener("keydown", (event) => {
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
    c.clearRect(0, 0, width, height);
    const { time, heap, rss } = data.strip;
    const style = getComputedStyle(document.documentElement);
    const top = Math.max(1, ...heap, ...(rss ?? []).filter((v) => v !== null));
    const floor = height - 14;
    const x = (i) => ((time[i] - time[0]) / Math.max(1, time[time.length - 1] - time[0])) * width;
    const y = (v) => floor - (v / top) * (floor - 14);
    c.beginPath();
    c.moveTo(0, floor);
    heap.forEach((v, i) => c.lineTo(x(i), y(v)));
    c.lineTo(width, floor);
    c.closePath();
    c.fillStyle = style.getPropertyValue("--heap");
    c.globalAlpha = 0.28;
    c.fill();
    c.globalAlpha = 1;
    const line = (curve, name, dash) => {
      c.beginPath();
      c.setLineDash(dash);
      let pen = false;
      curve.forEach((v, i) => {
        if (v === null) return (pen = false);
        pen ? c.lineTo(x(i), y(v)) : c.moveTo(x(i), y(v));
        pen = true;
      });
      c.strokeStyle = style.getPropertyValue(name);
      c.lineWidth = 1.4;
      c.stroke();
      c.setLineDash([]);
    };
    if (rss) line(rss, "--rss", [4, 3]);
    line(heap, "--heap", []);
    c.fillStyle = style.getPropertyValue("--soft");
    c.font = "11px system-ui, sans-serif";
    c.fillText(sayBytes(top) + (rss ? "   heap —   resident - -" : "   heap —"), 2, 10);
    c.fillText("0", 2, height - 2);
    const end = sayTime(time[time.length - 1] ?? 0);
    c.fillText(end, width - c.measureText(end).width - 2, height - 2);
    if (state.span) {
      c.fillStyle = style.getPropertyValue("--focus");
      c.globalAlpha = 0.18;
      c.fillRect(x(state.span[0]), 0, Math.max(2, x(state.span[1]) - x(state.span[0])), floor);
      c.globalAlpha = 1;
    }
  }
}
