// Draws memory over time: one canvas a lane, all on one axis; names and the figures at the cursor beside them. Must never hold data of its own.
"use strict";

const FAR_LIMIT = 3; // a limit this far above everything would press the lines flat: it is given in words
const MARK_ROOM = 9; // pixels between two marks that can be distinguished
const STALE = 0.03; // of the axis: for this long after its last point a line is still drawn as current
const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"];
const BAD = { critical: "--bad", warning: "--warn", info: "--note" };

const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function lineColour(line, index) {
  return line.kind === "before" ? "--before" : line.kind === "hidden" ? "--c4" : COLOURS[index % 5];
}

/** One row: a name with figures on the left, a canvas on the right. */
class Row {
  constructor(title, className) {
    this.box = element("div", undefined, "lane " + (className ?? ""));
    this.side = element("div");
    this.side.append(element("h3", title));
    this.list = element("ul");
    this.side.append(this.list);
    this.canvas = element("canvas");
    this.box.append(this.side, this.canvas);
  }

  /** A clean canvas of the right size. */
  begin() {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const c = canvas.getContext("2d");
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(this.height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.font = "11px system-ui, sans-serif";
    return c;
  }

  /** Names with a colour and, where known, a figure; the sign is a line, or `block` or `dashes`. */
  fill(rows) {
    this.list.replaceChildren(
      ...rows.map(([colour, name, value, shape]) => {
        const item = element("li");
        const sign = element("i", undefined, shape ?? "");
        if (colour) sign.style.setProperty("--sign", `var(${colour})`);
        const label = element("span", short(name, 120));
        label.title = short(name, 300);
        item.append(sign, label, element("b", value ?? ""));
        return item;
      }),
    );
  }
}

/** Lines of one memory with their limit. */
class LineRow extends Row {
  constructor(page, lane) {
    super(plain(lane.title), lane.memory === "limit" ? "low" : "");
    Object.assign(this, { page, lane });
  }

  draw() {
    const { lane, page } = this;
    const { axis } = page;
    const c = this.begin();
    const most = lane.lines.reduce((most, line) => line.bytes.reduce((most, value) => Math.max(most, value), most), 1);
    const limit = lane.limit && lane.limit.bytes <= most * FAR_LIMIT ? lane.limit.bytes : null;
    this.top = Math.max(most, limit ?? 0) * 1.06;
    const y = (value) => this.height - 1 - (value / this.top) * (this.height - 12);
    const labels = grid(c, this, y);
    for (const mark of page.marks()) {
      if (mark.severity !== "critical") continue;
      c.globalAlpha = 0.35;
      c.fillStyle = paint("--bad");
      c.fillRect(axis.x(mark.at, this.width), 0, 1, this.height);
      c.globalAlpha = 1;
    }
    lane.lines.forEach((line, index) => {
      const x = line.time.map((at) => axis.x(at, this.width));
      path(c, x, line.bytes.map(y));
      c.strokeStyle = paint(lineColour(line, index));
      c.lineWidth = 1.5;
      c.setLineDash(line.kind === "before" ? [5, 3] : []);
      c.stroke();
      c.setLineDash([]);
      if (index > 0 || !x.length) return;
      c.lineTo(x.at(-1), this.height);
      c.lineTo(x[0], this.height);
      c.closePath();
      c.globalAlpha = 0.14;
      c.fillStyle = paint(lineColour(line, index));
      c.fill();
      c.globalAlpha = 1;
    });
    if (limit !== null) this.level(c, y(limit), "--bad");
    if (lane.memory === "host") this.forecasts(c, y, limit);
    labels();
  }

  level(c, y, colour) {
    c.strokeStyle = paint(colour);
    c.setLineDash([6, 4]);
    c.beginPath();
    c.moveTo(0, y);
    c.lineTo(this.width, y);
    c.stroke();
    c.setLineDash([]);
  }

  /** From where a forecast was made to where it says the limit is reached. */
  forecasts(c, y, limit) {
    const line = this.lane.lines[0];
    if (limit === null || !line) return;
    for (const mark of this.page.marks()) {
      if (mark.limit_at === null) continue;
      const at = nearest(line.time, mark.at);
      c.strokeStyle = paint(BAD[mark.severity] ?? "--warn");
      c.setLineDash([2, 3]);
      c.beginPath();
      c.moveTo(this.page.axis.x(mark.at, this.width), y(line.bytes[at] ?? 0));
      c.lineTo(this.page.axis.x(mark.limit_at, this.width), y(limit));
      c.stroke();
      c.setLineDash([]);
    }
  }

  /** The figures at a moment. A line says nothing of moments before its first or after its last point. */
  figures(ms) {
    const { lane } = this;
    const rows = lane.lines.map((line, index) => {
      const at = indexAt(line.time, ms + 1);
      const isThere = at >= 0 && ms <= line.time.at(-1) + this.page.axis.end * STALE;
      return [lineColour(line, index), plain(line.name), isThere ? sayBytes(line.bytes[at]) : "", line.kind === "before" ? "dashes" : ""];
    });
    if (lane.limit) rows.push(["--bad", plain(lane.limit.name), sayBytes(lane.limit.bytes), "dashes"]);
    if (lane.thinned) rows.push(["", `${sayCount(lane.thinned)} samples between minimum and maximum are not drawn`, ""]);
    this.fill(rows);
  }
}

/** What the largest lines of code held, one above the other. */
class HolderRow extends Row {
  constructor(page, graph, holders) {
    super(graph.memory === "host" ? "heap by line" : `${plain(graph.memory)} by line`);
    Object.assign(this, { page, graph, holders });
  }

  draw() {
    const c = this.begin();
    const { holders, page } = this;
    const most = holders.total.reduce((most, value) => Math.max(most, value), 1);
    this.top = most * 1.06;
    const y = (value) => this.height - 1 - (value / this.top) * (this.height - 12);
    const labels = grid(c, this, y);
    const x = Array.from(holders.time, (at) => page.axis.x(at, this.width));
    let floor = new Float64Array(x.length);
    holders.bands.forEach((band, index) => {
      const roof = floor.map((value, i) => value + band.bytes[i]);
      c.beginPath();
      x.forEach((at, i) => (i ? c.lineTo(at, y(roof[i])) : c.moveTo(at, y(roof[i]))));
      for (let i = x.length - 1; i >= 0; i--) c.lineTo(x[i], y(floor[i]));
      c.closePath();
      c.globalAlpha = 0.75;
      c.fillStyle = paint(COLOURS[Math.min(index, 5)]);
      c.fill();
      c.globalAlpha = 1;
      floor = roof;
    });
    labels();
  }

  figures(ms) {
    const { holders } = this;
    const at = nearest(holders.time, ms);
    this.fill(holders.bands.map((band, index) => [COLOURS[Math.min(index, 5)], band.name, sayBytes(band.bytes[at] ?? 0), "block"]));
  }
}

/** Phases, steps, alerts and deaths. */
class EventRow extends Row {
  constructor(page) {
    super("phases and events", "events");
    this.page = page;
  }

  draw() {
    const c = this.begin();
    const { page, width } = this;
    const { axis } = page;
    this.spots = [];
    const stretches = page.stretches();
    const names = [...new Set(stretches.filter((one) => !one.is_step).map((one) => one.name))];
    for (const one of stretches) {
      const from = Math.max(0, axis.x(one.from, width)), to = Math.min(width, axis.x(one.to, width));
      if (to < 0 || from > width) continue;
      const [top, high] = one.is_step ? [18, 9] : [2, 14];
      c.globalAlpha = one.is_step ? 0.5 : 0.3;
      c.fillStyle = paint(one.is_step ? "--note" : COLOURS[names.indexOf(one.name) % 5]);
      c.fillRect(from, top, Math.max(0.7, to - from - 0.7), high);
      c.globalAlpha = 1;
      this.spots.push({ from, to: Math.max(to, from + 2), top, high, text: `${plain(one.name)}: ${sayTime(one.to - one.from)}` });
      if (!one.is_step && to - from > 30) {
        c.save();
        c.beginPath();
        c.rect(from, top, to - from - 4, high);
        c.clip();
        c.fillStyle = paint("--ink");
        c.fillText(short(plain(one.name), 80), from + 4, top + 11);
        c.restore();
      }
    }
    let last = null;
    for (const mark of page.marks()) {
      let at = axis.x(mark.at, width);
      if (at < -5 || at > width + 5) continue;
      // Whole also at the edge.
      at = Math.max(5, Math.min(at, width - 5));
      const text = `${sayTime(mark.at)}  ${plain(mark.name)}: ${short(plain(mark.text), 400)}`;
      if (last && at - last.at < MARK_ROOM && last.severity === mark.severity) {
        last.count++;
        last.spot.text += last.count < 6 ? "\n" + text : "";
        continue;
      }
      c.fillStyle = paint(BAD[mark.severity] ?? "--note");
      c.beginPath();
      if (mark.name === "died") c.rect(at - 4, 34, 8, 14);
      else (c.moveTo(at, 34), c.lineTo(at + 5, 45), c.lineTo(at - 5, 45));
      c.fill();
      const spot = { from: at - 6, to: at + 6, top: 30, high: 22, text };
      this.spots.push(spot);
      last = { at, severity: mark.severity, count: 1, spot };
    }
  }

  /** What is at a point, in words. */
  at(x, y) {
    return this.spots?.findLast((spot) => x >= spot.from && x <= spot.to && y >= spot.top && y <= spot.top + spot.high)?.text;
  }

  figures(ms) {
    const now = this.page.stretches().filter((one) => one.from <= ms && one.to >= ms);
    this.fill(now.slice(0, 3).map((one) => ["", plain(one.name), ""]));
  }
}

/** The times below all lanes. */
class AxisRow extends Row {
  constructor(page) {
    super("", "axis");
    this.page = page;
  }

  draw() {
    const c = this.begin();
    c.fillStyle = paint("--soft");
    const { axis } = this.page;
    for (const at of axis.ticks(this.width, 110)) {
      const text = at === 0 ? "0" : sayTime(at);
      const wide = c.measureText(text).width;
      c.fillText(text, Math.max(0, Math.min(axis.x(at, this.width) - wide / 2, this.width - wide)), 13);
    }
  }

  figures() {}
}

/** Levels and moments behind the lines; what is returned writes their names above the lines. */
function grid(c, row, y) {
  c.strokeStyle = paint("--line");
  c.lineWidth = 1;
  c.fillStyle = paint("--soft");
  const step = levelStep(row.top / 2.5);
  for (let level = step; level < row.top; level += step) {
    const at = Math.round(y(level)) + 0.5;
    c.beginPath();
    c.moveTo(0, at);
    c.lineTo(row.width, at);
    c.stroke();
  }
  c.globalAlpha = 0.5;
  for (const at of row.page.axis.ticks(row.width, 110)) {
    const x = Math.round(row.page.axis.x(at, row.width)) + 0.5;
    c.beginPath();
    c.moveTo(x, 0);
    c.lineTo(x, row.height);
    c.stroke();
  }
  c.globalAlpha = 1;
  return () => {
    c.lineWidth = 3;
    c.lineJoin = "round";
    c.strokeStyle = paint("--paper");
    c.fillStyle = paint("--soft");
    for (let level = step; level < row.top; level += step) {
      c.strokeText(sayBytes(level), 2, y(level) - 2);
      c.fillText(sayBytes(level), 2, y(level) - 2);
    }
  };
}

/** A round number of bytes: 1, 2, 5, 10, 20, 50, 100, 200 or 500 of a unit. */
function levelStep(wanted) {
  const unit = Math.pow(1024, Math.max(0, Math.floor(Math.log(Math.max(1, wanted)) / Math.log(1024))));
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * unit >= wanted);
  return step ? step * unit : unit * 1024;
}

function path(c, x, y) {
  c.beginPath();
  x.forEach((at, i) => (i ? c.lineTo(at, y[i]) : c.moveTo(at, y[i])));
}
