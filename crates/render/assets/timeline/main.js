// The page: holds the state, answers keys and clicks, and redraws.
"use strict";

class Page {
  constructor(data) {
    this.data = data;
    this.traces = [];
    this.state = { over: "events", by: "category", home: -1, hover: -1, pinned: -1, matching: null, tall: null, drag: null };
    this.chart = new Chart($("chart"), this.state);
    this.segments = new Segments($("segments"), this.state);
    fillHead(data);
    this.fillTools();
    this.theme(wantsDark());
    this.choose(data.devices.reduce((best, device, i, all) => (device.events > all[best].events ? i : best), 0));
    this.listen();
  }

  fillTools() {
    const { data } = this;
    data.devices.forEach((device, i) => $("device").append(new Option(String(device.device), String(i))));
    $("device-label").hidden = data.devices.length < 2;
  }

  theme(dark) {
    this.state.dark = dark;
    setTheme(dark);
  }

  /** Another device. */
  choose(index) {
    const { state, data } = this;
    $("device").value = String(index);
    state.trace = this.traces[index] ??= new Trace(data.devices[index]);
    state.home = state.hover = state.pinned = -1;
    $("axis-label").hidden = !state.trace.time;
    $("home").replaceChildren(new Option("all", "-1"), ...data.devices[index].homes.map((_, i) => new Option(state.trace.homeName(i), String(i))));
    state.cursor = state.trace.peak;
    this.recolour();
    this.find($("search").value);
    this.whole();
  }

  recolour() {
    const { state } = this;
    state.colours = new Colours(state.trace, state.by, state.dark);
    const legend = $("legend");
    legend.replaceChildren();
    const add = (colour, text) => {
      const item = element("span");
      const box = element("i");
      box.style.background = colour;
      item.append(box, text);
      legend.append(item);
    };
    for (const entry of [...state.colours.legend.values()].sort((a, b) => b.bytes - a.bytes)) {
      add(state.colours.css(entry.colour), `${entry.name} ${entry.bytes ? sayBytes(entry.bytes) + " at the peak" : ""}`);
    }
    const { folded_blocks: folded, folded_below_bytes: below, events_per_moment: per, unseen_blocks: unseen } = state.trace.device;
    if (folded) add(state.colours.css(state.colours.other), `${sayCount(folded)} blocks below ${sayBytes(below)}, as one band`);
    add("var(--accent)", "held from the driver");
    if (per > 1) legend.append(element("span", `one point per ${sayCount(per)} events, at their largest total; ${sayCount(unseen)} blocks allocated and freed between two points are not drawn`));
  }

  /** The whole trace on the axis of now. */
  whole() {
    const { state } = this;
    const axis = state.trace.axis(state.over);
    state.view = [axis[0], Math.max(axis[axis.length - 1], axis[0] + 1)];
    state.tall = null;
    this.redraw();
  }

  zoom(factor, around) {
    const { state } = this;
    const axis = state.trace.axis(state.over);
    const [from, to] = state.view;
    const last = Math.max(axis[axis.length - 1], axis[0] + 1);
    const span = Math.min(last - axis[0], Math.max(4, (to - from) * factor));
    let start = around - ((around - from) / (to - from)) * span;
    start = Math.max(axis[0], Math.min(start, last - span));
    state.view = [start, start + span];
    this.redraw();
  }

  redraw() {
    this.chart.draw();
    this.redrawState();
  }

  redrawState() {
    this.segments.draw();
    this.sayMoment();
    this.fillList();
    this.describe();
  }

  move(moment) {
    const { state } = this;
    state.cursor = Math.max(0, Math.min(state.trace.length - 1, moment));
    const at = state.trace.axis(state.over)[state.cursor];
    const [from, to] = state.view;
    if (at < from || at > to) state.view = [at - (to - from) / 2, at + (to - from) / 2];
    this.redraw();
  }

  sayWhen(moment) {
    const { trace } = this.state;
    return `event ${sayCount(trace.after[moment])}` + (trace.time ? `, ${sayTime(trace.time[moment] / 1000)}` : "");
  }

  sayMoment() {
    const { trace, cursor } = this.state;
    const held = trace.reserved[cursor], used = trace.active[cursor];
    $("moment").textContent = `After ${this.sayWhen(cursor)}: ${sayBytes(used)} in use, ${sayBytes(held)} held, ${sayBytes(held - used)} free`;
  }

  fillList() {
    const { trace, cursor, home } = this.state;
    const { stack, size, category, home: homes } = trace.blocks;
    const groups = new Map();
    let whole = trace.crowd(home)[cursor];
    for (const block of trace.live(cursor)) {
      if (home >= 0 && homes[block] !== home) continue;
      const key = stack[block] * 16 + category[block];
      const group = groups.get(key) ?? { bytes: 0, count: 0, block };
      group.bytes += size[block];
      group.count++;
      whole += size[block];
      groups.set(key, group);
    }
    const rows = [...groups.values()].sort((a, b) => b.bytes - a.bytes).slice(0, 50);
    $("rows").replaceChildren(
      ...rows.map((row) => {
        const line = element("tr");
        const site = trace.site(stack[row.block]);
        const button = element("button", site ?? (trace.blocks.bornEvent[row.block] < 0 ? "(before recording started)" : "(no Python frames: another thread, such as autograd's)"));
        button.addEventListener("click", () => this.pin(row.block));
        const cell = element("td");
        cell.append(button);
        line.append(element("td", sayBytes(row.bytes)), element("td", sayShare(row.bytes, whole)), element("td", sayCount(row.count)), element("td", trace.device.categories[category[row.block]]), cell);
        return line;
      }),
    );
  }

  pin(block) {
    this.state.pinned = block;
    this.chart.paint();
    this.segments.draw();
    this.describe();
  }

  /** The block at hand, or what could be done. */
  describe(extra) {
    const { trace, hover, pinned } = this.state;
    const box = $("detail");
    const block = hover >= 0 ? hover : pinned;
    if (block < 0) {
      box.replaceChildren(element("span", extra ?? "Point at a block to see its stack; click to choose the moment shown below.", "soft"));
      return;
    }
    const b = trace.blocks;
    const when = (event, moment) => (event >= 0 ? "event " + sayCount(event) + (trace.time && moment < trace.length ? `, ${sayTime(trace.time[moment] / 1000)}` : "") : null);
    const line = element("div");
    line.append(element("strong", sayBytes(b.size[block])), element("span", `  at 0x${b.addr[block].toString(16)}  ${trace.device.categories[b.category[block]]}, ${trace.homeName(b.home[block])}`, "soft"));
    const asked = b.extra[block] ? `requested ${sayBytes(b.size[block] - b.extra[block])} · ` : "";
    const freed = when(b.freedEvent[block], b.gone[block]);
    const life = element("div", `${asked}taken ${when(b.bornEvent[block], b.born[block]) ?? "before recording started"} · ${freed ? "freed " + freed : "never freed"}`);
    const frames = trace.frames(b.stack[block]);
    const list = element("ol");
    for (const frame of frames) list.append(element("li", frame));
    box.replaceChildren(line, life, frames.length ? list : element("div", "No stack was recorded.", "soft"));
  }

  find(text) {
    const { state } = this;
    const { trace } = state;
    const wanted = text.trim().toLowerCase();
    if (!wanted) {
      state.matching = null;
      $("matches").value = "";
      return;
    }
    const { addr, size, stack, born, gone, count } = trace.blocks;
    const matching = (state.matching = new Uint8Array(count));
    const address = /^0x[0-9a-f]+$/.test(wanted) ? Number(wanted) : NaN;
    let hit = null;
    if (Number.isNaN(address)) {
      const { stacks, function: names } = trace.device.stacks;
      const frames = names.map((_, frame) => trace.frameText(frame).toLowerCase().includes(wanted));
      hit = stacks.map((ids) => ids.some((frame) => frames[frame]));
    }
    const changes = new Float64Array(trace.length + 1);
    let found = 0;
    for (let i = 0; i < count; i++) {
      if (!(hit ? hit[stack[i]] : addr[i] <= address && address < addr[i] + size[i])) continue;
      matching[i] = 1;
      found++;
      changes[born[i]] += size[i];
      changes[gone[i]] -= size[i];
    }
    let now = 0, most = 0;
    for (const change of changes) most = Math.max(most, (now += change));
    $("matches").value = `${sayCount(found)} blocks, at most ${sayBytes(most)} at once`;
  }

  listen() {
    const { state, chart, segments } = this;
    const canvas = chart.canvas;
    const point = (event, on) => {
      const box = on.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let pressed = null, waiting = false;
    const hover = (block, extra) => {
      this.describeExtra = extra;
      if (state.hover === block && !extra) return;
      state.hover = block;
      this.describe(extra);
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => ((waiting = false), chart.paint()));
    };
    canvas.addEventListener("pointerdown", (event) => {
      pressed = point(event, canvas)[0];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = point(event, canvas);
      if (pressed !== null && Math.abs(x - pressed) > 3) {
        state.drag = [Math.max(pressed, chart.box.left), Math.max(x, chart.box.left)];
        chart.paint();
        return;
      }
      const { id, span } = chart.at(x, y);
      const { device } = state.trace;
      const extra = span ? `${span.name}: ${sayTime((span.to - span.from) / 1000)}` : id === OTHER ? `Blocks below ${sayBytes(device.folded_below_bytes)}, together.` : undefined;
      hover(id >= 0 ? id : -1, extra);
    });
    canvas.addEventListener("pointerup", (event) => {
      const [x, y] = point(event, canvas);
      const { drag } = state;
      pressed = null;
      state.drag = null;
      if (drag && Math.abs(drag[1] - drag[0]) > 3) {
        const ends = [chart.valueAt(drag[0]), chart.valueAt(drag[1])].sort((a, b) => a - b);
        state.view = [ends[0], Math.max(ends[1], ends[0] + 4)];
        this.redraw();
        return;
      }
      const { id, moment } = chart.at(x, y);
      state.pinned = id >= 0 ? id : -1;
      if (moment >= 0) this.move(moment);
    });
    canvas.addEventListener("pointerleave", () => hover(-1));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = point(event, canvas);
      const factor = (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8;
      if (event.shiftKey) this.stretch(factor, y);
      else this.zoom(factor, chart.valueAt(x));
    }, { passive: false });
    segments.canvas.addEventListener("pointermove", (event) => {
      const { block, segment } = segments.at(...point(event, segments.canvas));
      const full = segment && state.trace.crowd(segment.home)[state.cursor] > 0 ? "Free, or blocks too small to draw" : "Free";
      hover(block ?? -1, block === undefined && segment ? `${full}, in a segment of ${sayBytes(segment.size)} at 0x${segment.addr.toString(16)}: ${state.trace.homeName(segment.home)}` : undefined);
    });
    segments.canvas.addEventListener("pointerleave", () => hover(-1));
    segments.canvas.addEventListener("click", (event) => this.pin(segments.at(...point(event, segments.canvas)).block ?? -1));
    $("search").addEventListener("input", (event) => (this.find(event.target.value), this.redraw()));
    $("device").addEventListener("change", (event) => this.choose(Number(event.target.value)));
    $("axis").addEventListener("change", (event) => ((state.over = event.target.value), this.whole()));
    $("colour").addEventListener("change", (event) => ((state.by = event.target.value), this.recolour(), this.redraw()));
    $("home").addEventListener("change", (event) => ((state.home = Number(event.target.value)), this.redraw()));
    $("peak").addEventListener("click", () => this.move(state.trace.peak));
    $("reset").addEventListener("click", () => this.whole());
    $("theme").addEventListener("click", () => (this.theme(!state.dark), this.recolour(), this.redraw()));
    $("help").addEventListener("click", () => $("help-dialog").showModal());
    addEventListener("resize", () => this.redraw());
    printInLight(() => state.dark, (dark) => (this.theme(dark), this.recolour(), this.redraw()));
    addEventListener("keydown", (event) => this.key(event));
  }

  /** Zooms into the height around a point. */
  stretch(factor, y) {
    const { state, chart } = this;
    const [low, high] = state.tall ?? [0, 1.02];
    const part = Math.max(0, Math.min(1, (chart.box.floor - y) / (chart.box.floor - chart.box.top)));
    const span = Math.min(1.02, Math.max(0.001, (high - low) * factor));
    const start = Math.max(0, Math.min(low + part * (high - low) - part * span, 1.02 - span));
    state.tall = span >= 1.02 ? null : [start, start + span];
    this.redraw();
  }

  key(event) {
    if ($("help-dialog").open || event.ctrlKey || event.metaKey || event.altKey) return;
    const { state } = this;
    const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      $("search").value = "";
      this.find("");
      state.pinned = -1;
      this.whole();
      return;
    }
    if (typing) return;
    const step = Math.max(1, Math.round((state.trace.length * (event.shiftKey ? 10 : 1)) / 1000));
    const middle = state.trace.axis(state.over)[state.cursor];
    const pressed = {
      "/": () => $("search").focus(),
      "?": () => $("help-dialog").showModal(),
      p: () => this.move(state.trace.peak),
      "+": () => this.zoom(0.6, middle),
      "-": () => this.zoom(1.6, middle),
      ArrowLeft: () => this.move(state.cursor - step),
      ArrowRight: () => this.move(state.cursor + step),
    };
    if (pressed[event.key]) {
      event.preventDefault();
      pressed[event.key]();
    }
  }
}

begin(read(), (data) => {
  if (!data.devices.length) throw new Error("the recording holds no memory");
  return new Page(data);
});
