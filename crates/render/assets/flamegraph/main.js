// The page: holds the state, answers keys and clicks, and redraws.
"use strict";

const MOST_ROWS = 100;

class Page {
  constructor(data) {
    this.data = data;
    this.memories = [...(data.others ?? [])];
    this.memories.splice(data.place ?? 0, 0, data);
    for (const memory of this.memories) memory.shown = shownMoment(memory);
    this.state = {
      // One axis of time for all memories.
      end: Math.max(0, ...this.memories.map((memory) => memory.strip?.time.at(-1) ?? 0)),
      metric: "bytes", thread: -1, invert: !!data.inverted, upside: false, hideImports: true, hideLibraries: false, unfolded: false,
      span: null, spanMode: "high", zoom: 0, focus: -1, matching: null, search: "",
      say: (value) => (this.state.metric === "bytes" ? sayBytes(value) : sayAllocations(value)),
      sayOther: (value) => (this.state.metric === "bytes" ? sayAllocations(value) : sayBytes(value)),
    };
    this.graph = new Graph($("graph"), data, this.state);
    this.held = new Held(data, this.state, (frame) => this.lookFor(frame));
    this.tip = new Tip($("tip"));
    this.theme(wantsDark());
    fillHead(data);
    this.fillTools();
    this.fillMemories();
    if (this.state.end > 0) {
      $("strip-section").hidden = false;
      this.strip = new Strip($("strip"), data, this.state, (span) => this.setSpan(span));
    }
    this.listen();
    this.setSpan(null);
  }

  /** One button a memory, where there are several. */
  fillMemories() {
    $("memories").hidden = this.memories.length < 2;
    $("memories").replaceChildren(
      ...this.memories.map((memory) => {
        const button = element("button", short(plain(memory.name), 40));
        button.setAttribute("aria-pressed", memory === this.data);
        button.addEventListener("click", () => this.show(memory));
        return button;
      }),
    );
  }

  /** Shows another memory. A span of the plot stays, as far as the other has moments in it. */
  show(memory) {
    const { data, state } = this;
    const times = state.span?.map((at) => data.strip.time[at]);
    this.data = memory;
    Object.assign(state, { thread: -1, span: null, zoom: 0, focus: -1, matching: null });
    this.graph = new Graph($("graph"), memory, state);
    this.held = new Held(memory, state, (frame) => this.lookFor(frame));
    this.strip?.show(memory);
    fillHead(memory);
    this.fillTools();
    this.fillMemories();
    this.fillLegend();
    const time = memory.strip?.time ?? [];
    const from = times ? time.findIndex((at) => at >= times[0]) : -1;
    const to = times ? time.findLastIndex((at) => at <= times[1]) : -1;
    this.setSpan(memory.spans && from >= 0 && from < to ? [from, to] : null);
  }

  fillTools() {
    const { data, state } = this;
    const select = $("thread");
    select.replaceChildren(new Option("all", "-1"));
    data.threads.forEach((name, i) => select.append(new Option(short(name, 60), String(i))));
    $("thread-label").hidden = data.threads.length < 2;
    $("invert").setAttribute("aria-pressed", state.invert);
  }

  fillLegend() {
    const { data, state } = this;
    const has = (bits) => data.frames.flags.some((flags) => flags & bits);
    const kinds = [["your code", 0], ["libraries, imports", LIBRARY], ...(has(NATIVE) ? [["native", NATIVE]] : [])];
    const difference = state.dark ? [["more", "hsl(8 60% 36%)"], ["less", "hsl(215 60% 36%)"]] : [["more", "hsl(8 70% 65%)"], ["less", "hsl(215 70% 65%)"]];
    const colours = data.entries.before_bytes ? difference : kinds.map(([name, flags]) => [name, frameColours(flags, 7, state.dark)[0]]);
    $("legend").replaceChildren(
      ...colours.map(([name, colour]) => {
        const item = element("span");
        const box = element("i");
        box.style.background = colour;
        item.append(box, name);
        return item;
      }),
    );
  }

  theme(dark) {
    this.state.dark = dark;
    setTheme(dark);
    this.state.focusColour = dark ? "#7fb0ff" : "#1d5fd1";
    this.fillLegend();
  }

  /** A new tree: after anything that changes which memory is shown. */
  rebuild() {
    const { state, data } = this;
    const selected = select(data, state);
    state.tree = grow(data, selected, state);
    state.zoom = 0;
    state.focus = -1;
    const nothing = state.tree.width[0] === 0;
    $("empty").hidden = !nothing;
    $("graph").hidden = nothing;
    // A page that has nothing to show says so, and no more.
    document.body.classList.toggle("nothing", nothing && !state.span && state.thread < 0);
    $("empty").textContent = state.span ? "Nothing was held in this span." : plain(data.empty);
    this.held.fill(selected);
    this.find(state.search);
    this.fillList();
    this.redraw();
  }

  redraw() {
    this.graph.draw();
    this.strip?.draw();
    this.showPath();
    this.describe(this.state.focus >= 0 ? this.state.focus : this.state.zoom);
  }

  describe(node) {
    $("detail").replaceChildren(...describe(this.data, this.state, node));
  }

  showPath() {
    const { state } = this;
    const path = $("path");
    path.replaceChildren();
    if (state.zoom === 0) {
      path.textContent = "Click a box to zoom in.";
      return;
    }
    const chain = [];
    for (let n = state.zoom; n >= 0; n = state.tree.parent[n]) chain.unshift(n);
    chain.forEach((node, i) => {
      if (i > 0) path.append(" › ");
      const button = element("button", short(this.graph.title(node), 80));
      button.addEventListener("click", () => this.zoom(node));
      path.append(button);
    });
    // Of a long way its end matters.
    path.scrollLeft = path.scrollWidth;
  }

  /** Only while the list is open: filling it takes longer than drawing the graph. */
  fillList() {
    if (!$("list").open) return;
    const { state, data } = this;
    const rows = byFrame(state.tree).slice(0, MOST_ROWS);
    $("other-head").textContent = state.metric === "bytes" ? "allocations" : "size";
    $("rows").replaceChildren(
      ...rows.map((row) => {
        const line = element("tr");
        const other = state.metric === "bytes" ? sayCount(row.other) : sayBytes(row.other);
        const name = element("td", short(nameOf(data, row.frame), LONGEST_NAME));
        name.append(element("span", "  " + short(placeOf(data, row.frame), LONGEST_NAME), "soft"));
        line.append(element("td", state.say(row.own)), element("td", state.say(row.total)), element("td", other), name);
        return line;
      }),
    );
  }

  zoom(node) {
    if (this.graph.isFold(node)) this.state.unfolded = true;
    this.state.zoom = node;
    this.state.focus = node;
    this.tip.hide();
    this.redraw();
  }

  find(text) {
    const { state, data } = this;
    state.search = text;
    if (!text) {
      state.matching = null;
      $("matches").value = "";
      return;
    }
    const { tree } = state;
    const found = boxesWith(data, tree, text);
    state.matching = found.matching;
    $("matches").value = `${found.words}, ${state.say(found.sum)} (${sayShare(found.sum, tree.total[0])})`;
  }

  /** Shows where a line is in the graph. */
  lookFor(frame) {
    const { data } = this;
    const file = data.strings[data.frames.file[frame]];
    $("search").value = file ? `${file}:${data.frames.line[frame]}` : nameOf(data, frame);
    this.find($("search").value);
    this.redraw();
  }

  setSpan(span) {
    const { state, data } = this;
    state.span = span;
    $("span-label").hidden = !span;
    const time = data.strip?.time ?? [];
    const hint = data.spans ? "Drag over the plot to select a span." : "";
    const what = state.spanMode === "high" ? "when most was held in it" : "what it allocated and kept";
    $("span-text").textContent = span ? `${sayTime(time[span[0]])} to ${sayTime(time[span[1]])}: ${what}. Escape shows everything again.` : hint;
    this.rebuild();
  }

  toggle(name, id) {
    this.state[name] = !this.state[name];
    $(id).setAttribute("aria-pressed", this.state[name]);
    name === "upside" ? this.redraw() : this.rebuild();
  }

  move(key) {
    const { state } = this;
    const { tree } = state;
    const at = state.focus < 0 ? state.zoom : state.focus;
    const deeper = state.upside ? "ArrowUp" : "ArrowDown";
    const higher = state.upside ? "ArrowDown" : "ArrowUp";
    let next = at;
    if (key === deeper) next = tree.children(at)[0] ?? at;
    else if (key === higher) next = tree.parent[at] >= 0 ? tree.parent[at] : at;
    else if (at > 0) {
      const list = tree.children(tree.parent[at]);
      next = list[list.indexOf(at) + (key === "ArrowRight" ? 1 : -1)] ?? at;
    }
    state.focus = next;
    if (this.graph.isFold(next)) state.unfolded = true;
    this.redraw();
  }

  listen() {
    const { state } = this;
    const { canvas } = this.graph;
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return this.graph.at(event.clientX - box.left, event.clientY - box.top);
    };
    canvas.addEventListener("pointermove", (event) => {
      const node = point(event);
      if (node < 0) return this.tip.hide();
      this.describe(node);
      this.tip.show(describe(this.data, state, node), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => this.tip.hide());
    canvas.addEventListener("click", (event) => {
      const node = point(event);
      if (node >= 0) this.zoom(node);
    });
    $("search").addEventListener("input", (event) => {
      this.find(event.target.value);
      this.redraw();
    });
    $("metric").addEventListener("change", (event) => ((state.metric = event.target.value), this.rebuild()));
    $("thread").addEventListener("change", (event) => ((state.thread = Number(event.target.value)), this.rebuild()));
    $("span-mode").addEventListener("change", (event) => ((state.spanMode = event.target.value), this.setSpan(state.span)));
    $("invert").addEventListener("click", () => this.toggle("invert", "invert"));
    $("upside").addEventListener("click", () => this.toggle("upside", "upside"));
    $("imports").addEventListener("click", () => this.toggle("hideImports", "imports"));
    $("libraries").addEventListener("click", () => this.toggle("hideLibraries", "libraries"));
    $("theme").addEventListener("click", () => (this.theme(!state.dark), this.redraw()));
    $("help").addEventListener("click", () => $("help-dialog").showModal());
    $("list").addEventListener("toggle", () => this.fillList());
    addEventListener("resize", () => this.redraw());
    addEventListener("beforeprint", () => (($("list").open = true), this.fillList()));
    printInLight(() => state.dark, (dark) => (this.theme(dark), this.redraw()));
    addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if ($("help-dialog").open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === $("strip") && (event.key.startsWith("Arrow") || event.key === "Escape")) return;
    const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      $("search").value = "";
      this.find("");
      this.state.span ? this.setSpan(null) : this.zoom(0);
      return;
    }
    if (typing) return;
    const pressed = {
      "/": () => $("search").focus(),
      "?": () => $("help-dialog").showModal(),
      g: () => this.show(this.memories[(this.memories.indexOf(this.data) + 1) % this.memories.length]),
      i: () => this.toggle("invert", "invert"),
      u: () => this.toggle("upside", "upside"),
      m: () => this.toggle("hideImports", "imports"),
      l: () => this.toggle("hideLibraries", "libraries"),
      s: () => {
        this.state.metric = this.state.metric === "bytes" ? "count" : "bytes";
        $("metric").value = this.state.metric;
        this.rebuild();
      },
      Backspace: () => this.zoom(Math.max(0, this.state.tree.parent[this.state.zoom])),
      Enter: () => this.state.focus >= 0 && this.zoom(this.state.focus),
    };
    if (event.key.startsWith("Arrow") && event.target === this.graph.canvas) {
      event.preventDefault();
      this.move(event.key);
    } else if (pressed[event.key] && !(event.key === "Enter" && event.target.tagName === "BUTTON")) {
      event.preventDefault();
      pressed[event.key]();
    }
  }
}

begin(unpack(), (data) => new Page(data));
