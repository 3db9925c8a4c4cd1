// The page: holds the state, answers keys and clicks, and redraws. Text from the recording goes in as text only.
"use strict";

const $ = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

class Page {
  constructor(data) {
    this.data = data;
    const { strings, frames } = data;
    this.state = {
      metric: "bytes", thread: -1, invert: !!data.inverted, upside: false, hideImports: false, hideLibraries: false,
      span: null, spanMode: "high", zoom: 0, focus: -1, matching: null, search: "",
      names: frames.function.map((f, i) => {
        const file = strings[frames.file[i]];
        const place = file ? "  " + file.split("/").pop() + (frames.line[i] ? ":" + frames.line[i] : "") : "";
        return strings[f] + place;
      }),
    };
    this.graph = new Graph($("graph"), data, this.state);
    this.theme(matchMedia("(prefers-color-scheme: dark)").matches);
    this.head();
    if (data.strip && data.strip.time.length > 1) {
      $("strip-section").hidden = false;
      $("span-label").hidden = !data.spans;
      this.strip = new Strip($("strip"), data, this.state, (span) => this.setSpan(span));
    }
    this.listen();
    this.rebuild();
  }

  head() {
    const { data } = this;
    $("title").textContent = data.title;
    $("subtitle").textContent = data.subtitle;
    for (const [name, value] of data.facts) {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", value));
      $("facts").append(pair);
    }
    for (const note of data.notes) $("notes").append(element("p", note));
    const select = $("thread");
    select.append(new Option("all", "-1"));
    data.threads.forEach((name, i) => select.append(new Option(name, String(i))));
    $("thread-label").hidden = data.threads.length < 2;
    $("invert").setAttribute("aria-pressed", this.state.invert);
  }

  theme(dark) {
    this.state.dark = dark;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    this.state.focusColour = dark ? "#7fb0ff" : "#1d5fd1";
  }

  /** A new tree: after anything that changes which memory is shown. */
  rebuild() {
    const { state, data } = this;
    state.tree = grow(data, select(data, state), state);
    state.zoom = 0;
    state.focus = -1;
    const nothing = state.tree.width[0] === 0;
    $("empty").hidden = !nothing;
    $("empty").textContent = state.span ? "Nothing was held in this span." : data.empty;
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

  value(v) {
    return this.state.metric === "bytes" ? sayBytes(v) : sayAllocations(v);
  }

  otherValue(v) {
    return this.state.metric === "bytes" ? sayAllocations(v) : sayBytes(v);
  }

  describe(node) {
    const { state, data } = this;
    const { tree } = state;
    const box = $("detail");
    box.replaceChildren();
    const frame = tree.frame[node];
    const whole = tree.total[0];
    const line = element("div");
    line.append(element("strong", frame < 0 ? "all" : data.strings[data.frames.function[frame]]));
    if (frame >= 0) {
      const file = data.strings[data.frames.file[frame]];
      const number = data.frames.line[frame];
      line.append(element("span", "  " + file + (number ? ":" + number : ""), "soft"));
    }
    box.append(line);
    let text = `${this.value(tree.total[node])} (${sayShare(tree.total[node], whole)}) · own ${this.value(tree.own[node])} · ${this.otherValue(tree.other[node])}`;
    if (data.entries.before_bytes) {
      const delta = tree.total[node] - tree.before[node];
      text += ` · before ${this.value(tree.before[node])} · ${delta >= 0 ? "+" : ""}${this.value(delta)}`;
    }
    box.append(element("div", text));
    const source = frame >= 0 ? data.source?.[frame] : undefined;
    if (source !== undefined) box.append(element("code", data.strings[source].trim()));
  }

  showPath() {
    const { state } = this;
    const path = $("path");
    path.replaceChildren();
    if (state.zoom === 0) return;
    const chain = [];
    for (let n = state.zoom; n >= 0; n = state.tree.parent[n]) chain.unshift(n);
    chain.forEach((node, i) => {
      if (i > 0) path.append(" › ");
      const button = element("button", this.graph.label(node));
      button.addEventListener("click", () => this.zoom(node));
      path.append(button);
    });
  }

  fillList() {
    const rows = byFrame(this.state.tree).slice(0, 100);
    $("rows").replaceChildren(
      ...rows.map((row) => {
        const line = element("tr");
        line.append(element("td", this.value(row.own)), element("td", this.value(row.total)), element("td", this.otherValue(row.other)), element("td", this.state.names[row.frame]));
        return line;
      }),
    );
  }

  zoom(node) {
    this.state.zoom = node;
    this.state.focus = node;
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
    const wanted = text.toLowerCase();
    const hit = data.frames.function.map((f, i) => (data.strings[f] + " " + data.strings[data.frames.file[i]] + ":" + data.frames.line[i]).toLowerCase().includes(wanted));
    const { tree } = state;
    state.matching = new Set();
    let sum = 0;
    const covered = new Uint8Array(tree.frame.length);
    for (let n = 1; n < tree.frame.length; n++) {
      covered[n] = covered[tree.parent[n]];
      if (!hit[tree.frame[n]]) continue;
      state.matching.add(n);
      if (!covered[n]) sum += tree.total[n];
      covered[n] = 1;
    }
    $("matches").value = `${sayCount(state.matching.size)} frames, ${this.value(sum)} (${sayShare(sum, tree.total[0])})`;
  }

  setSpan(span) {
    const { state, data } = this;
    state.span = span;
    const time = data.strip.time;
    $("span-text").textContent = span ? `${sayTime(time[span[0]])} to ${sayTime(time[span[1]])} — ${state.spanMode === "high" ? "at its highest" : "allocated in it and kept"}. Escape shows the whole again.` : "";
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
    if (key === deeper) next = tree.children[at]?.[0] ?? at;
    else if (key === higher) next = tree.parent[at] >= 0 ? tree.parent[at] : at;
    else {
      const list = tree.children[tree.parent[at]] ?? [at];
      const place = list.indexOf(at) + (key === "ArrowRight" ? 1 : -1);
      next = list[place] ?? at;
    }
    state.focus = next;
    this.redraw();
  }

  listen() {
    const { state, graph } = this;
    const point = (event) => {
      const box = graph.canvas.getBoundingClientRect();
      return graph.at(event.clientX - box.left, event.clientY - box.top);
    };
    graph.canvas.addEventListener("mousemove", (event) => {
      const node = point(event);
      graph.canvas.title = node > 0 ? graph.label(node) : "";
      if (node >= 0) this.describe(node);
    });
    graph.canvas.addEventListener("click", (event) => {
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
    $("reset").addEventListener("click", () => this.zoom(0));
    $("theme").addEventListener("click", () => (this.theme(!state.dark), this.redraw()));
    $("help").addEventListener("click", () => $("help-dialog").showModal());
    addEventListener("resize", () => this.redraw());
    addEventListener("beforeprint", () => ((this.wasDark = state.dark), this.theme(false), ($("list").open = true), this.redraw()));
    addEventListener("afterprint", () => (this.theme(this.wasDark), this.redraw()));
    addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if ($("help-dialog").open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === $("strip")) return;
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
      Enter: () => event.target.tagName !== "BUTTON" && this.state.focus >= 0 && this.zoom(this.state.focus),
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

unpack()
  .then((data) => {
    window.stormlog = new Page(data);
    document.documentElement.dataset.ready = "yes";
  })
  .catch((error) => {
    $("empty").hidden = false;
    $("empty").textContent = "This page cannot show its data: " + error.message;
  });
