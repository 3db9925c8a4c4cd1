// The memory at the cursor: the lines that hold it and the flame graph of their stacks. Must show exactly what lived at the moment it names.
"use strict";

class Moment {
  constructor(page) {
    this.page = page;
    this.state = page.state;
    this.tip = new Tip($("tip"));
    this.listen();
  }

  /** Another memory or process; `null` where none was recorded. */
  use(graph) {
    this.graph = graph;
    this.data = graph?.flame;
    Object.assign(this.state, { zoom: 0, focus: -1, matching: null, thread: -1, unfolded: false });
    if (!graph) return;
    this.flames = new Graph($("graph"), this.data, this.state);
    this.held = new Held(this.data, this.state, (frame) => this.lookFor(frame));
    this.fillLegend();
  }

  /** The place of the cursor among the moments of the graph; -1 where it does not know when memory came. */
  step(ms) {
    const time = this.data?.strip?.time;
    return this.data?.spans && time?.length ? nearest(time, ms) : -1;
  }

  /** The moment at which most was held. */
  peak() {
    const strip = this.data?.strip;
    return strip && this.data.spans ? strip.time[highest(strip.heap, 0, strip.heap.length - 1)] : null;
  }

  show(ms) {
    const { state, graph, data, page } = this;
    const has = !!graph;
    for (const id of ["graph", "detail", "line", "peak", "invert", "libraries"]) $(id).hidden = !has;
    $("held").hidden = !has;
    $("empty").hidden = has;
    const name = page.processName();
    if (!has) {
      $("cursor-text").textContent = `At ${sayTime(ms)}`;
      $("empty").textContent = "No allocations of this process were recorded: the lines that held the memory are unknown. Record it with `stormlog run`.";
      $("left-out").textContent = "";
      return;
    }
    const at = this.step(ms);
    state.span = at < 0 ? null : [at, at];
    const rows = select(data, state);
    state.tree = grow(data, rows, state);
    state.zoom = 0;
    state.focus = -1;
    const whole = sayBytes(rows.value.reduce((sum, value) => sum + value, 0));
    const memory = graph.memory === "host" ? "on the heap" : `of ${plain(graph.memory)}`;
    $("cursor-text").textContent = graph.is_difference
      ? `${name}: ${memory} at the peak, against ${plain(page.data.baseline)}`
      : at < 0
        ? `${name}: ${whole} ${memory} at the peak (the recording keeps no times)`
        : `${name}: ${whole} ${memory} at ${sayTime(data.strip.time[at])}`;
    const left = [...graph.left_out, ...data.notes.map(plain)];
    $("left-out").textContent = left.map((text) => (text.endsWith(".") ? text : text + ".")).join(" ");
    this.held.fill(rows);
    this.find(state.search);
    this.draw();
  }

  draw() {
    if (!this.graph) return;
    this.flames.draw();
    this.showPath();
    const { focus, zoom } = this.state;
    $("detail").replaceChildren(...describe(this.data, this.state, focus >= 0 ? focus : zoom));
  }

  showPath() {
    const { state } = this;
    const line = $("path");
    line.replaceChildren();
    if (state.zoom === 0) return (line.textContent = "Click a box to zoom in.");
    const chain = [];
    for (let n = state.zoom; n >= 0; n = state.tree.parent[n]) chain.unshift(n);
    chain.forEach((node, i) => {
      if (i > 0) line.append(" › ");
      const button = element("button", short(this.flames.title(node), 80));
      button.addEventListener("click", () => this.zoom(node));
      line.append(button);
    });
    line.scrollLeft = line.scrollWidth;
  }

  fillLegend() {
    const { data, state } = this;
    if (!data) return;
    const has = (bits) => data.frames.flags.some((flags) => flags & bits);
    const kinds = [["your code", 0], ["libraries", LIBRARY], ...(has(NATIVE) ? [["native", NATIVE]] : [])];
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

  zoom(node) {
    if (this.flames.isFold(node)) this.state.unfolded = true;
    this.state.zoom = node;
    this.state.focus = node;
    this.tip.hide();
    this.draw();
  }

  /** Marks the frames that a text is in; how many, and how much they hold, nested ones once. */
  find(text) {
    const { state, data } = this;
    state.matching = null;
    if (!text || !this.graph) return "";
    const found = boxesWith(data, state.tree, text);
    state.matching = found.matching;
    return `${found.words}, ${sayBytes(found.sum)}`;
  }

  lookFor(frame) {
    const { data } = this;
    const file = data.strings[data.frames.file[frame]];
    this.page.search(file ? `${file}:${data.frames.line[frame]}` : nameOf(data, frame));
  }

  toggle(name, id) {
    this.state[name] = !this.state[name];
    $(id).setAttribute("aria-pressed", this.state[name]);
    this.page.redrawMoment();
  }

  move(key) {
    const { state } = this;
    const { tree } = state;
    const at = state.focus < 0 ? state.zoom : state.focus;
    let next = at;
    if (key === "ArrowDown") next = tree.children(at)[0] ?? at;
    else if (key === "ArrowUp") next = tree.parent[at] >= 0 ? tree.parent[at] : at;
    else if (at > 0) {
      const list = tree.children(tree.parent[at]);
      next = list[list.indexOf(at) + (key === "ArrowRight" ? 1 : -1)] ?? at;
    }
    state.focus = next;
    if (this.flames.isFold(next)) state.unfolded = true;
    this.draw();
  }

  listen() {
    const canvas = $("graph");
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return this.graph ? this.flames.at(event.clientX - box.left, event.clientY - box.top) : -1;
    };
    canvas.addEventListener("pointermove", (event) => {
      const node = point(event);
      if (node < 0) return this.tip.hide();
      const parts = () => describe(this.data, this.state, node);
      $("detail").replaceChildren(...parts());
      this.tip.show(parts(), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => this.tip.hide());
    canvas.addEventListener("click", (event) => {
      const node = point(event);
      if (node >= 0) this.zoom(node);
    });
    $("invert").addEventListener("click", () => this.toggle("invert", "invert"));
    $("libraries").addEventListener("click", () => this.toggle("hideLibraries", "libraries"));
  }
}
