// The axis of time that all lanes share: which stretch is shown, and where a moment is on it. Must never know what is drawn.
"use strict";

const LEAST_SPAN = 20; // milliseconds; a shorter stretch shows nothing new

class Axis {
  constructor(end) {
    this.end = Math.max(1, end);
    this.view = [0, this.end];
  }

  x(ms, width) {
    return ((ms - this.view[0]) / (this.view[1] - this.view[0])) * width;
  }

  ms(x, width) {
    const ms = this.view[0] + (x / Math.max(1, width)) * (this.view[1] - this.view[0]);
    return Math.min(this.end, Math.max(0, ms));
  }

  /** Shows a stretch, as far as there is one. */
  show(from, to) {
    const span = Math.min(this.end, Math.max(LEAST_SPAN, to - from));
    const start = Math.max(0, Math.min(from, this.end - span));
    this.view = [start, start + span];
  }

  zoom(factor, middle) {
    const [from, to] = this.view;
    const share = Math.max(0, Math.min(1, (middle - from) / (to - from)));
    const span = (to - from) * factor;
    this.show(middle - share * span, middle + (1 - share) * span);
  }

  get isWhole() {
    return this.view[0] <= 0 && this.view[1] >= this.end;
  }

  /** Round moments, about one each `room` pixels. */
  ticks(width, room) {
    const [from, to] = this.view;
    const wanted = ((to - from) * room) / Math.max(1, width);
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 144e5, 288e5, 864e5];
    let step = steps.find((step) => step >= wanted) ?? 864e5 * Math.ceil(wanted / 864e5);
    const list = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) list.push(at);
    return list;
  }
}

/** The last index whose time is not after `ms`; -1 before the first. */
function indexAt(times, ms) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    times[middle] <= ms ? (low = middle + 1) : (high = middle);
  }
  return low - 1;
}

/** The index whose time is nearest. */
function nearest(times, ms) {
  const before = indexAt(times, ms);
  if (before < 0) return 0;
  return before + 1 < times.length && times[before + 1] - ms < ms - times[before] ? before + 1 : before;
}
