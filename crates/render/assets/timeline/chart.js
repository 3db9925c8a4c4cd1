// Draws every block over the trace. Each column of pixels is one moment, the one of its events at which the most was in use, so
// the work depends on the width of the picture and on what is alive, not on the length of the trace.
"use strict";

const NOTHING = -1, OTHER = -2;
const LEFT = 74, BOTTOM = 18, NOTE_HEIGHT = 15, MOST_NOTE_ROWS = 4;

class Chart {
  constructor(canvas, state) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.state = state;
  }

  /** Bytes at the top and bottom of the picture, and where things are. */
  layout() {
    const { canvas, state } = this;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.max(200, canvas.clientWidth), height = canvas.clientHeight;
    const top = this.noteRows().length * NOTE_HEIGHT + 8;
    this.box = { ratio, width, height, left: LEFT, top, right: width - 4, floor: height - BOTTOM };
    this.columns = Math.round((this.box.right - LEFT) * ratio);
    this.rows = Math.round((this.box.floor - top) * ratio);
    state.axis = state.trace.axis(state.over);
  }

  x(value) {
    const [from, to] = this.state.view;
    return this.box.left + ((value - from) / (to - from)) * (this.box.right - this.box.left);
  }

  valueAt(x) {
    const [from, to] = this.state.view;
    return from + ((x - this.box.left) / (this.box.right - this.box.left)) * (to - from);
  }

  y(bytes) {
    return this.box.floor - ((bytes - this.low) / (this.high - this.low)) * (this.box.floor - this.box.top);
  }

  /** The moment each column shows. */
  pick() {
    const { trace, axis, view } = this.state;
    const [from, to] = view;
    const moments = new Uint32Array(this.columns);
    let at = trace.momentAt(axis, from);
    for (let column = 0; column < this.columns; column++) {
      const edge = from + ((column + 1) / this.columns) * (to - from);
      let best = at;
      while (at + 1 < trace.length && axis[at + 1] < edge) {
        at++;
        if (trace.active[at] > trace.active[best]) best = at;
      }
      moments[column] = best;
    }
    return moments;
  }

  draw() {
    this.layout();
    const { trace, tall } = this.state;
    this.moments = this.pick();
    let most = 1;
    for (const moment of this.moments) most = Math.max(most, trace.reserved[moment], trace.active[moment]);
    this.low = tall ? tall[0] * most : 0;
    this.high = tall ? tall[1] * most : most * 1.02;
    this.fill();
    this.paint();
  }

  /** Which block is at each pixel: a sweep that adds and removes blocks column by column. */
  fill() {
    const { columns, rows, moments, low } = this;
    const { trace, home } = this.state;
    const { born, gone, size, count, home: homes } = trace.blocks;
    const next = new Int32Array(count + 1), prev = new Int32Array(count + 1);
    next[count] = prev[count] = count; // the ring's head
    const scale = rows / (this.high - low);
    const ids = (this.ids = new Int32Array(columns * rows).fill(NOTHING));
    const crowd = trace.crowd(home);
    let added = 0, removed = 0;
    for (let column = 0; column < columns; column++) {
      const moment = moments[column];
      for (; added < count && born[added] <= moment; added++) {
        const last = prev[count];
        next[last] = prev[count] = added;
        prev[added] = last;
        next[added] = count;
      }
      for (; removed < count && gone[trace.byGone[removed]] <= moment; removed++) {
        const block = trace.byGone[removed];
        next[prev[block]] = next[block];
        prev[next[block]] = prev[block];
      }
      let offset = -low * scale;
      let row = 0;
      const rise = (bytes, id) => {
        offset += bytes * scale;
        // A pixel belongs to what covers its middle.
        const until = Math.min(rows, Math.round(offset));
        for (; row < until; row++) ids[(rows - 1 - row) * columns + column] = id;
      };
      rise(crowd[moment], OTHER);
      for (let block = next[count]; block !== count && row < rows; block = next[block]) {
        if (home < 0 || homes[block] === home) rise(size[block], block);
      }
    }
  }

  paint() {
    const { columns, rows, ids, moments, box, context: c } = this;
    const { trace, colours, matching, hover, pinned, dark } = this.state;
    const style = getComputedStyle(document.documentElement);
    const paper = colours.pack(dark ? [22, 23, 26] : [251, 250, 247]);
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const { released } = trace.blocks;
    const shine = pinned >= 0 ? pinned : hover;
    for (let row = 0, place = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++, place++) {
        const id = ids[place];
        if (id === NOTHING) continue;
        let colour = id === OTHER ? colours.other : colours.table[id];
        const edge = row > 0 && row + 2 < rows && ids[place - columns] !== id && ids[place + columns] === id && ids[place + 2 * columns] === id;
        if (edge) colour = colours.fade(colour, 0, 0.72);
        else if (id >= 0 && released[id] <= moments[column] && (row + column) % 4 < 2) colour = colours.fade(colour, paper, 0.45);
        if (matching && (id < 0 || !matching[id])) colour = colours.fade(colour, paper, 0.16);
        if (id >= 0 && id === shine) colour = colours.fade(colour, dark ? 0xffffff : 0, 0.62);
        pixels[place] = colour;
      }
    }
    const { canvas } = this;
    canvas.width = Math.round(box.width * box.ratio);
    canvas.height = Math.round(box.height * box.ratio);
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, canvas.width, canvas.height);
    c.putImageData(image, Math.round(box.left * box.ratio), Math.round(box.top * box.ratio));
    c.setTransform(box.ratio, 0, 0, box.ratio, 0, 0);
    c.font = "11px system-ui, sans-serif";
    this.paintScale(style);
    this.paintHeld(style);
    this.paintNotes(style);
    this.paintMarks(style);
  }

  paintScale(style) {
    const { context: c, box, low, high } = this;
    const { over, view, trace } = this.state;
    const rough = (high - low) / 5;
    let step = 2 ** Math.round(Math.log2(rough));
    c.textAlign = "right";
    for (let bytes = Math.ceil(low / step) * step; bytes <= high; bytes += step) {
      const y = this.y(bytes);
      c.fillStyle = style.getPropertyValue("--soft");
      c.fillText(sayBytes(bytes), box.left - 6, y + 4);
      c.fillStyle = style.getPropertyValue("--ink");
      c.globalAlpha = 0.1;
      c.fillRect(box.left, y, box.right - box.left, 1);
      c.globalAlpha = 1;
    }
    c.textAlign = "left";
    c.fillStyle = style.getPropertyValue("--soft");
    const say = (value) => (over === "time" && trace.time ? sayTime(value / 1000) : "event " + sayCount(value));
    c.fillText(say(view[0]), box.left, box.height - 4);
    c.textAlign = "right";
    c.fillText(say(view[1]), box.right, box.height - 4);
    c.textAlign = "left";
  }

  /** What the allocator held from the driver, as a line. */
  paintHeld(style) {
    const { context: c, box, moments } = this;
    const { trace } = this.state;
    c.save();
    c.beginPath();
    c.rect(box.left, box.top - 2, box.right - box.left, box.floor - box.top + 2);
    c.clip();
    c.beginPath();
    moments.forEach((moment, column) => c.lineTo(box.left + (column + 0.5) / box.ratio, this.y(trace.reserved[moment])));
    c.strokeStyle = style.getPropertyValue("--accent");
    c.lineWidth = 1.4;
    c.stroke();
    c.restore();
  }

  /** The program's spans in rows, outer ones above; only with times, which is all they have. */
  noteRows() {
    const { trace, over } = this.state;
    if (this.rowsOf === trace) return this.noteLines;
    this.rowsOf = trace;
    this.noteLines = [];
    if (!trace.time) return this.noteLines;
    const start = trace.device.moments.start_us;
    for (const span of trace.device.spans) {
      const from = span.start_us - start, to = span.end_us - start;
      let line = this.noteLines.find((line) => line.end <= from);
      if (!line) {
        if (this.noteLines.length === MOST_NOTE_ROWS) continue;
        this.noteLines.push((line = { end: 0, spans: [] }));
      }
      line.end = to;
      line.spans.push({ name: span.name, from, to });
    }
    return this.noteLines;
  }

  /** Where a time lies on the axis of now. */
  ofTime(time) {
    const { trace, over } = this.state;
    return over === "time" ? time : trace.after[trace.momentAt(trace.time, time)];
  }

  paintNotes(style) {
    const { context: c, box } = this;
    this.noteRows().forEach((line, row) => {
      for (const span of line.spans) {
        const from = Math.max(box.left, this.x(this.ofTime(span.from))), to = Math.min(box.right, this.x(this.ofTime(span.to)));
        if (to < box.left || from > box.right) continue;
        const width = Math.max(1, to - from - 1);
        c.fillStyle = style.getPropertyValue("--line");
        c.fillRect(from, row * NOTE_HEIGHT, width, NOTE_HEIGHT - 2);
        if (width > 34) {
          c.fillStyle = style.getPropertyValue("--ink");
          c.save();
          c.beginPath();
          c.rect(from, row * NOTE_HEIGHT, width - 3, NOTE_HEIGHT);
          c.clip();
          c.fillText(span.name, from + 4, row * NOTE_HEIGHT + 10);
          c.restore();
        }
      }
    });
  }

  paintMarks(style) {
    const { context: c, box } = this;
    const { trace, axis, cursor, drag } = this.state;
    const line = (value, colour, text) => {
      const x = this.x(value);
      if (x < box.left - 1 || x > box.right + 1) return;
      c.fillStyle = style.getPropertyValue(colour);
      c.fillRect(x, box.top - 6, 1.5, box.floor - box.top + 6);
      if (!text) return;
      const room = c.measureText(text).width + 4;
      c.fillText(text, x + room > box.right ? x - room : x + 4, box.top + 4);
    };
    for (const moment of trace.device.failures) line(axis[Math.min(moment, trace.length - 1)], "--accent", "out of memory");
    line(axis[cursor], "--focus", "");
    if (drag) {
      c.fillStyle = style.getPropertyValue("--focus");
      c.globalAlpha = 0.18;
      c.fillRect(Math.min(drag[0], drag[1]), box.top, Math.abs(drag[1] - drag[0]), box.floor - box.top);
      c.globalAlpha = 1;
    }
  }

  /** What is at a point: a block, the band of small ones, a span or nothing; and the moment. */
  at(x, y) {
    const { box, columns, rows } = this;
    const column = Math.floor((x - box.left) * box.ratio), row = Math.floor((y - box.top) * box.ratio);
    if (y < box.top - 4) {
      const line = this.noteRows()[Math.floor(y / NOTE_HEIGHT)];
      const span = line?.spans.find((span) => this.x(this.ofTime(span.from)) <= x && x <= this.x(this.ofTime(span.to)));
      return { id: NOTHING, span, moment: -1 };
    }
    if (column < 0 || column >= columns || row < 0 || row >= rows) return { id: NOTHING, moment: -1 };
    return { id: this.ids[row * columns + column], moment: this.moments[column] };
  }
}
