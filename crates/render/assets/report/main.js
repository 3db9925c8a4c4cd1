// The report: holds the state, keeps it in the address, answers keys and clicks, and redraws.
"use strict";

class Page {
  constructor(data) {
    this.data = data;
    this.axis = new Axis(data.end_ms);
    this.state = {
      process: 0, memory: "", cursor: 0, search: "", dark: wantsDark(),
      metric: "bytes", thread: -1, invert: false, upside: false, hideImports: true, hideLibraries: false, unfolded: false,
      span: null, spanMode: "high", zoom: 0, focus: -1, matching: null,
      say: sayBytes, sayOther: sayAllocations,
    };
    for (const graph of data.graphs) {
      prepare(graph.flame);
      // All on the axis of the page.
      if (graph.flame.strip) graph.flame.strip.time = graph.flame.strip.time.map((at) => at + graph.offset_ms);
      graph.flame.shown = shownMoment(graph.flame);
    }
    fillHead({ ...data, notes: data.notes });
    document.title = short(plain(data.title), 200);
    fillAnswer(data);
    fillFindings(this);
    fillProcesses(this);
    fillEnvironment(data);
    this.fillTools();
    this.moment = new Moment(this);
    this.theme(this.state.dark);
    this.readAddress();
    this.listen();
  }

  fillTools() {
    $("process-label").hidden = this.data.processes.length < 2;
    $("process").replaceChildren(...this.data.processes.map((process, index) => new Option(processWords(process), String(index))));
  }

  // What belongs to the process that is shown.
  processName() {
    const process = this.data.processes[this.state.process];
    return process ? plain(process.name) : "the program";
  }

  graphs() {
    return this.data.graphs.filter((graph) => graph.process === this.state.process);
  }

  marks() {
    return this.data.marks.filter((mark) => mark.process === this.state.process);
  }

  stretches() {
    return this.data.stretches.filter((one) => one.process === this.state.process);
  }

  /** Shows a process: its lanes, and the memory that matters. */
  choose(index, memory, cursor) {
    const { state, data } = this;
    state.process = Math.max(0, Math.min(index, data.processes.length - 1));
    $("process").value = String(state.process);
    this.rows = [];
    if (this.stretches().length || this.marks().length) this.rows.push(new EventRow(this));
    for (const lane of data.lanes) if (lane.process === state.process) this.rows.push(new LineRow(this, lane));
    for (const graph of this.graphs()) {
      if (graph.is_difference) continue;
      const home = new Held(graph.flame, state, () => {}).home;
      const holders = holdersOf(graph, home);
      if (holders) this.rows.push(new HolderRow(this, graph, holders));
    }
    if (this.rows.length) this.rows.push(new AxisRow(this));
    $("rows").replaceChildren(...this.rows.map((row) => row.box));
    for (const row of this.rows) this.listenTo(row);
    $("lanes").hidden = this.rows.length === 0;
    fillEvents(this);
    const first = this.graphs()[0];
    this.use(memory ?? (first ? nameOfGraph(first) : ""), cursor);
  }

  /** Shows a memory of the process, at the cursor or where most was held. */
  use(memory, cursor) {
    const { state } = this;
    const graphs = this.graphs();
    const graph = graphs.find((graph) => nameOfGraph(graph) === memory) ?? graphs.find((graph) => graph.memory === memory) ?? graphs[0] ?? null;
    state.memory = graph ? nameOfGraph(graph) : "";
    $("memories").replaceChildren(
      ...(graphs.length < 2 ? [] : graphs).map((one) => {
        const button = element("button", plain(nameOfGraph(one)));
        button.setAttribute("aria-pressed", one === graph);
        button.addEventListener("click", () => this.use(nameOfGraph(one), state.cursor));
        return button;
      }),
    );
    this.moment.use(graph);
    this.setCursor(cursor ?? this.moment.peak() ?? this.highest());
    this.redraw();
  }

  /** Where the first line of the process is highest. */
  highest() {
    const line = this.data.lanes.find((lane) => lane.process === this.state.process)?.lines[0];
    return line?.bytes.length ? line.time[highest(line.bytes, 0, line.bytes.length - 1)] : 0;
  }

  setCursor(ms) {
    // Whole microseconds, upwards: the address holds the moment exactly, and a step that begins at it stays shown.
    this.state.cursor = Math.max(0, Math.min(this.data.end_ms, Math.ceil(ms * 1000) / 1000));
    this.figures(this.state.cursor);
    this.placeLine("cursor-line", this.state.cursor);
    this.redrawMoment();
  }

  redrawMoment() {
    this.moment.show(this.state.cursor);
    this.countMatches();
    this.writeAddress();
  }

  figures(ms) {
    for (const row of this.rows) row.figures(ms);
  }

  placeLine(id, ms) {
    const canvas = this.rows.at(-1)?.canvas;
    const [from, to] = this.axis.view;
    const isSeen = canvas && ms !== null && ms >= from && ms <= to;
    $(id).hidden = !isSeen;
    if (!isSeen) return;
    const box = canvas.getBoundingClientRect();
    $(id).style.left = box.left - $("lanes").getBoundingClientRect().left + this.axis.x(ms, box.width) + "px";
  }

  redraw() {
    for (const row of this.rows) row.draw();
    this.placeLine("cursor-line", this.state.cursor);
    this.moment.draw();
  }

  showSpan(from, to) {
    const room = Math.max(1, to - from) * 0.05;
    this.axis.show(from - room, to + room);
    this.setCursor(to);
    this.redraw();
    $("lanes").scrollIntoView({ block: "start" });
  }

  whole() {
    this.axis.show(0, this.axis.end);
    this.redraw();
    this.writeAddress();
  }

  theme(dark) {
    this.state.dark = dark;
    setTheme(dark);
    this.state.focusColour = dark ? "#7fb0ff" : "#1d5fd1";
    this.moment.fillLegend();
    if (this.rows) this.redraw();
  }

  search(text) {
    $("search").value = text;
    this.state.search = text;
    this.countMatches();
    this.moment.draw();
    this.writeAddress();
  }

  /** Frames, findings and processes with the text; the others fade. */
  countMatches() {
    const wanted = this.state.search.toLowerCase();
    const frames = this.moment.find(this.state.search);
    let count = 0;
    for (const box of document.querySelectorAll(".finding, #process-list tbody tr, #environment-list tbody tr")) {
      const isHit = !wanted || box.textContent.toLowerCase().includes(wanted);
      box.classList.toggle("dim", !isHit);
      if (wanted && isHit) count++;
    }
    $("matches").value = wanted ? [frames, count ? `${count} in text` : ""].filter(Boolean).join(", ") || "no match" : "";
  }

  // The address: what is shown can be sent as a link.
  writeAddress() {
    const { state, axis } = this;
    const parts = { p: String(state.process), m: state.memory, t: String(state.cursor), q: state.search };
    if (!axis.isWhole) parts.v = axis.view.map((ms) => ms.toFixed(0)).join("-");
    const kept = Object.entries(parts).filter(([, value]) => value !== "");
    history.replaceState(null, "", "#" + new URLSearchParams(kept));
  }

  readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const number = (text) => (text !== null && /^\d+(\.\d+)?$/.test(text) ? Number(text) : undefined);
    const view = parts.get("v")?.match(/^(\d+)-(\d+)$/);
    this.axis.show(...(view ? [Number(view[1]), Number(view[2])] : [0, this.axis.end]));
    this.state.search = (parts.get("q") ?? "").slice(0, 400);
    $("search").value = this.state.search;
    this.choose(number(parts.get("p")) ?? this.data.start, parts.get("m") ?? undefined, number(parts.get("t")));
  }

  listenTo(row) {
    const { canvas } = row;
    let pressed = null;
    const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
    const at = (event) => this.axis.ms(place(event), canvas.clientWidth);
    canvas.addEventListener("pointerdown", (event) => {
      pressed = place(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      this.placeLine("hover-line", at(event));
      this.figures(at(event));
      const text = row.at?.(place(event), event.clientY - canvas.getBoundingClientRect().top);
      text ? this.moment.tip.show(text.split("\n").map((line) => element("div", line)), event.clientX, event.clientY) : this.moment.tip.hide();
    });
    canvas.addEventListener("pointerleave", () => {
      this.placeLine("hover-line", null);
      this.moment.tip.hide();
      this.figures(this.state.cursor);
    });
    canvas.addEventListener("pointerup", (event) => {
      const from = pressed;
      pressed = null;
      if (from === null) return;
      if (Math.abs(place(event) - from) < 5) return this.setCursor(at(event));
      const ends = [this.axis.ms(from, canvas.clientWidth), at(event)].sort((a, b) => a - b);
      this.axis.show(...ends);
      this.redraw();
      this.writeAddress();
    });
  }

  listen() {
    $("search").addEventListener("input", (event) => this.search(event.target.value));
    $("process").addEventListener("change", (event) => this.choose(Number(event.target.value)));
    $("peak").addEventListener("click", () => this.setCursor(this.moment.peak() ?? this.highest()));
    $("theme").addEventListener("click", () => this.theme(!this.state.dark));
    $("help").addEventListener("click", () => $("help-dialog").showModal());
    // The fragment holds the state: a section is scrolled to instead.
    for (const link of document.querySelectorAll("#tools a")) {
      link.addEventListener("click", (event) => (event.preventDefault(), $(link.dataset.to).scrollIntoView({ block: "start" })));
    }
    addEventListener("hashchange", () => this.readAddress());
    addEventListener("resize", () => this.redraw());
    addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((box) => (box.open = true)));
    printInLight(() => this.state.dark, (dark) => this.theme(dark));
    addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if ($("help-dialog").open || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      if (this.state.search) return this.search("");
      if (this.state.zoom > 0) return this.moment.zoom(0);
      return this.whole();
    }
    if (typing) return;
    if (event.target === $("graph") && this.moment.graph) {
      if (event.key.startsWith("Arrow")) return event.preventDefault(), this.moment.move(event.key);
      if (event.key === "Enter" && this.state.focus >= 0) return this.moment.zoom(this.state.focus);
    }
    const { axis, state } = this;
    const step = ((axis.view[1] - axis.view[0]) / 200) * (event.shiftKey ? 10 : 1);
    const next = (list, now) => list[(list.indexOf(now) + 1) % list.length];
    const zoom = (factor) => (axis.zoom(factor, state.cursor), this.redraw(), this.writeAddress());
    const pressed = {
      "/": () => $("search").focus(),
      "?": () => $("help-dialog").showModal(),
      p: () => this.setCursor(this.moment.peak() ?? this.highest()),
      g: () => this.use(next(this.graphs().map(nameOfGraph), state.memory) ?? "", state.cursor),
      n: () => this.choose((state.process + 1) % Math.max(1, this.data.processes.length)),
      f: () => $("findings").scrollIntoView({ block: "start" }),
      i: () => this.moment.toggle("invert", "invert"),
      l: () => this.moment.toggle("hideLibraries", "libraries"),
      d: () => this.theme(!state.dark),
      "+": () => zoom(0.6),
      "-": () => zoom(1.7),
      0: () => this.whole(),
      Home: () => this.setCursor(0),
      End: () => this.setCursor(this.data.end_ms),
      ArrowLeft: () => this.setCursor(this.stepTo(-1, step)),
      ArrowRight: () => this.setCursor(this.stepTo(1, step)),
      Backspace: () => this.moment.graph && this.moment.zoom(Math.max(0, state.tree.parent[state.zoom])),
    };
    if (pressed[event.key] && !(event.key.startsWith("Arrow") && event.target.tagName === "BUTTON")) {
      event.preventDefault();
      pressed[event.key]();
    }
  }

  /** At least to the next moment that the graph knows: an arrow that changes nothing looks broken. */
  stepTo(direction, step) {
    const { cursor } = this.state;
    const wanted = cursor + direction * step;
    const time = this.moment.data?.spans ? this.moment.data.strip.time : [];
    const now = this.moment.step(cursor);
    const next = now >= 0 ? time[now + direction] : undefined;
    if (next === undefined) return wanted;
    return direction > 0 ? Math.max(wanted, next) : Math.min(wanted, next);
  }
}

/** `host`, `cuda:0`, or the difference of one of them. */
function nameOfGraph(graph) {
  return graph.is_difference ? `${graph.memory}, difference` : graph.memory;
}

begin(read(), (data) => new Page(data));
