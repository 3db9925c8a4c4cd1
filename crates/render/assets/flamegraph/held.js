// The first answer: which lines of the user's own code hold the memory, how much, and since when. Must add up to what the graph shows.
"use strict";

const MOST_HOLDERS = 5;
/** Claims up to this are of the program's own code, of the installed package that it runs, or of code without a file. */
const OWN = 2;

class Held {
  constructor(data, state, chosen) {
    Object.assign(this, { data, state, chosen });
    // A stack belongs to its responsible frame: the innermost of those with the strongest claim, which is the smallest number.
    // Frames count from 1 here: 0 is no stack at all.
    this.home = new Int32Array(data.frame.length);
    for (let n = 1; n < this.home.length; n++) {
      const frame = data.frame[n], above = this.home[data.parent[n]];
      const isInside = above > 0 && data.frames.claim[above - 1] < data.frames.claim[frame];
      this.home[n] = isInside ? above : frame + 1;
    }
  }

  isOwn(frame) {
    return this.data.frames.claim[frame] <= OWN;
  }

  /** Lines and what they hold, the largest first; in a comparison the largest changes. */
  rows(selected) {
    const sums = new Map();
    for (let i = 0; i < selected.node.length; i++) {
      const frame = this.home[selected.node[i]] - 1;
      const row = sums.get(frame) ?? { frame, value: 0, before: 0 };
      row.value += selected.value[i];
      if (selected.before) row.before += selected.before[i];
      sums.set(frame, row);
    }
    const size = selected.before ? (row) => Math.abs(row.value - row.before) : (row) => row.value;
    const rows = [...sums.values()].sort((a, b) => size(b) - size(a)).slice(0, MOST_HOLDERS);
    return rows.filter((row) => size(row) > size(rows[0]) / 1000);
  }

  fill(selected) {
    const { state, data } = this;
    const rows = this.rows(selected);
    const whole = selected.value.reduce((sum, value) => sum + value, 0);
    const isChange = !!selected.before;
    const curves = this.curves(rows);
    $("held").hidden = rows.length === 0;
    $("held-title").textContent = (isChange ? "What changed most" : moment(data, state) >= 0 ? "What holds it" : "Where it was allocated") + ", by line of your code";
    $("held-rows").replaceChildren(
      ...rows.map((row, i) => {
        const line = element("tr");
        const amount = isChange ? row.value - row.before : row.value;
        line.append(element("td", (isChange && amount > 0 ? "+" : "") + state.say(amount), "number"));
        line.append(element("td", isChange ? (row.before === 0 ? "new" : row.value === 0 ? "gone" : "") : sayShare(row.value, whole), "number soft"));
        line.append(row.frame < 0 ? element("td", "(no stack)", "soft") : this.place(row.frame));
        const curve = curves?.[i];
        line.append(element("td", curve?.since === undefined ? "" : "since " + sayTime(curve.since), "number soft"));
        const plot = element("td");
        if (curve) plot.append(this.spark(curve.points));
        line.append(plot);
        return line;
      }),
    );
  }

  /** A line of code that can be looked for. */
  place(frame) {
    const { data } = this;
    const cell = element("td");
    const place = placeOf(data, frame), name = shortName(data, frame);
    const button = element("button", short(place || name, 60), this.isOwn(frame) ? "plain" : "plain soft");
    button.title = (this.isOwn(frame) ? "" : "No line of your code called it. ") + "Find it in the graph";
    button.addEventListener("click", () => this.chosen(frame));
    cell.append(button, element("span", place ? "  " + short(name, 60) : "", "soft"));
    return cell;
  }

  /** What each of the lines held over time, and when the oldest of what it holds now came. */
  curves(rows) {
    const { data, state, home } = this;
    const { spans, strip } = data;
    if (!spans || !strip || rows.length === 0) return null;
    const at = moment(data, state);
    const place = new Map(rows.map((row, i) => [row.frame + 1, i]));
    const changes = rows.map(() => new Float64Array(strip.time.length + 1));
    const births = rows.map(() => new Float64Array(strip.time.length));
    const values = state.metric === "bytes" ? spans.bytes : spans.count;
    for (let i = 0; i < spans.node.length; i++) {
      const row = place.get(home[spans.node[i]]);
      if (row === undefined || (state.thread >= 0 && spans.thread[i] !== state.thread)) continue;
      changes[row][spans.birth[i]] += values[i];
      changes[row][spans.death[i]] -= values[i];
      const isOlder = state.span && state.spanMode === "kept" && spans.birth[i] <= state.span[0];
      if (spans.birth[i] <= at && spans.death[i] > at && !isOlder) births[row][spans.birth[i]] += values[i];
    }
    return rows.map((row, i) => {
      let now = 0, came = 0;
      const points = changes[i].subarray(0, strip.time.length).map((change) => (now += change));
      // The first few bytes say little about when it began.
      const first = births[i].findIndex((value) => (came += value) > row.value / 20);
      return { points, since: first < 0 ? undefined : strip.time[first] };
    });
  }

  /** A curve in a cell; the cell beside it says the figure. */
  spark(points) {
    const [wide, high] = [72, 16];
    const top = points.reduce((most, value) => Math.max(most, value), 1);
    const time = this.data.strip.time;
    const whole = Math.max(1, time[time.length - 1] - time[0]);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const x = (i) => (((time[i] - time[0]) / whole) * wide).toFixed(1);
    const y = (value) => (high - 1 - (value / top) * (high - 2)).toFixed(1);
    line.setAttribute("d", `M0,${high}` + Array.from(points, (value, i) => `L${x(i)},${y(value)}`).join("") + `L${wide},${high}Z`);
    svg.append(line);
    return svg;
  }
}

function nameOf(data, frame) {
  return data.strings[data.frames.function[frame]];
}

/** Where a function was defined is seen from its caller. */
function shortName(data, frame) {
  return nameOf(data, frame).replaceAll(".<locals>.", ".");
}

/** `file.py:12`, as short as it can be. */
function placeOf(data, frame) {
  const parts = data.strings[data.frames.file[frame]].split("/");
  const line = data.frames.line[frame];
  // Every package has a file of that name.
  const name = parts.slice(parts.at(-1) === "__init__.py" ? -2 : -1).join("/");
  return name + (line ? ":" + line : "");
}
