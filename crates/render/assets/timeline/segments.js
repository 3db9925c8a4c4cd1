// Draws the memory that was held at one moment: segments as bars that flow like text, blocks in them, pool by pool.
"use strict";

const ROW = 15, GAP = 3, HEAD = 19;

class Segments {
  constructor(canvas, state) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.state = state;
  }

  draw() {
    const { canvas, state } = this;
    const { trace, cursor, home } = state;
    const { addr, size, home: homes } = trace.blocks;
    const fullness = (this.fullness = new Map());
    const width = Math.max(200, canvas.clientWidth);
    const segments = trace.segments(cursor).filter((segment) => home < 0 || segment.home === home);
    const blocks = trace.live(cursor).sort((a, b) => addr[a] - addr[b]);
    const whole = segments.reduce((sum, segment) => sum + segment.size, 0);
    // As many lines as fit a screen; the whole takes that many.
    const perPixel = Math.max(1, whole / (width * 22));
    const bars = [];
    let x = 0, y = -ROW, group = null;
    const heads = [];
    for (const segment of segments) {
      if (segment.home !== group) {
        group = segment.home;
        const same = segments.filter((other) => other.home === group);
        const sum = same.reduce((all, other) => all + other.size, 0), count = same.length;
        const crowd = trace.crowd(group)[cursor];
        const blurred = crowd > 0 ? `; ${sayBytes(crowd)} of it are blocks below ${sayBytes(trace.device.folded_below_bytes)}, spread over what looks free` : "";
        heads.push({ y: y + ROW + 4, text: `${trace.homeName(group)} — ${sayBytes(sum)} in ${sayCount(count)} ${count === 1 ? "segment" : "segments"}${blurred}` });
        // Where in the segments they lie is not in the page: what is not drawn is as dark as it is full.
        const drawn = blocks.reduce((all, block) => (homes[block] === group ? all + size[block] : all), 0);
        fullness.set(group, crowd > 0 ? Math.min(1, crowd / Math.max(1, sum - drawn)) : 0);
        y += ROW + HEAD;
        x = 0;
      }
      let place = segment.addr;
      const end = segment.addr + segment.size;
      const first = Math.max(2, segment.size / perPixel);
      if (x > 0 && x + Math.min(first, 60) > width) (x = 0), (y += ROW + GAP);
      while (place < end) {
        const room = Math.max(1, (width - x) * perPixel);
        const bytes = Math.min(end - place, room);
        const long = Math.max(2, bytes / perPixel);
        bars.push({ segment, x, y, width: Math.min(long, width - x), from: place, to: place + bytes });
        place += bytes;
        x += long + 2;
        if (x >= width - 1) (x = 0), (y += ROW + GAP);
      }
    }
    this.heads = heads;
    this.bars = bars;
    this.paint(width, y + ROW + 4, perPixel, blocks);
  }

  paint(width, height, perPixel, live) {
    const { canvas, context: c, state } = this;
    const { colours, trace, matching, hover, pinned } = state;
    const { addr, size, released } = trace.blocks;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    canvas.style.height = Math.max(ROW, height) + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(Math.max(ROW, height) * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    c.font = "11.5px system-ui, sans-serif";
    c.fillStyle = style.getPropertyValue("--soft");
    for (const head of this.heads) c.fillText(head.text, 0, head.y + 12);
    this.shapes = [];
    for (const bar of this.bars) {
      c.fillStyle = style.getPropertyValue("--panel");
      c.fillRect(bar.x, bar.y, bar.width, ROW);
      c.fillStyle = colours.css(colours.other);
      c.globalAlpha = this.fullness.get(bar.segment.home);
      c.fillRect(bar.x, bar.y, bar.width, ROW);
      c.globalAlpha = 1;
      c.strokeStyle = style.getPropertyValue("--line");
      c.strokeRect(bar.x + 0.5, bar.y + 0.5, Math.max(1, bar.width - 1), ROW - 1);
      let low = 0, high = live.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        addr[live[middle]] + size[live[middle]] <= bar.from ? (low = middle + 1) : (high = middle);
      }
      for (; low < live.length && addr[live[low]] < bar.to; low++) {
        const block = live[low];
        const from = Math.max(addr[block], bar.from), to = Math.min(addr[block] + size[block], bar.to);
        const x = bar.x + (from - bar.from) / perPixel, wide = Math.max(0.6, (to - from) / perPixel - (to - from > 3 * perPixel ? 0.7 : 0));
        c.globalAlpha = (matching && !matching[block] ? 0.18 : 1) * (released[block] <= state.cursor ? 0.5 : 1);
        c.fillStyle = colours.css(colours.table[block]);
        c.fillRect(x, bar.y + 1, wide, ROW - 2);
        c.globalAlpha = 1;
        if (block === (pinned >= 0 ? pinned : hover)) {
          c.strokeStyle = style.getPropertyValue("--focus");
          c.strokeRect(x - 0.5, bar.y - 0.5, wide + 1, ROW + 1);
        }
        this.shapes.push({ block, x, wide, y: bar.y });
      }
    }
  }

  /** The block or segment at a point. */
  at(x, y) {
    const bar = this.bars.find((bar) => y >= bar.y && y <= bar.y + ROW && x >= bar.x && x <= bar.x + bar.width);
    if (!bar) return {};
    const shape = this.shapes.find((shape) => shape.y === bar.y && x >= shape.x && x <= shape.x + shape.wide);
    return { block: shape?.block, segment: bar.segment };
  }
}
