// Turns the packed columns of a device into typed arrays, and answers what was there at a moment. Knows no canvas.
"use strict";

function running(differences, Kind = Float64Array) {
  let sum = 0;
  return Kind.from(differences, (difference) => (sum += difference));
}

class Trace {
  constructor(device) {
    const { moments, blocks, stretches } = device;
    this.device = device;
    device.stacks.strings = device.stacks.strings.map(plain);
    device.spans.forEach((span) => (span.name = plain(span.name)));
    this.after = running(moments.after);
    this.time = moments.time.length ? running(moments.time) : null;
    for (const name of ["active", "allocated", "reserved", "other"]) this[name] = running(moments[name]);
    this.length = this.after.length;

    const born = running(blocks.born, Uint32Array);
    const released = Uint32Array.from(born, (b, i) => b + blocks.held[i]);
    const gone = Uint32Array.from(released, (r, i) => r + blocks.awaited[i]);
    this.blocks = {
      born, released, gone,
      count: born.length,
      addr: running(blocks.addr),
      size: Float64Array.from(blocks.size),
      extra: blocks.extra,
      stack: Uint32Array.from(blocks.stack),
      home: Uint16Array.from(blocks.home),
      category: Uint8Array.from(blocks.category),
      bornEvent: blocks.born_event,
      freedEvent: blocks.freed_event,
    };
    this.byGone = Uint32Array.from(gone.keys()).sort((a, b) => gone[a] - gone[b]);
    this.stretches = {
      born: stretches.born,
      gone: stretches.born.map((b, i) => b + stretches.held[i]),
      addr: running(stretches.addr),
      size: stretches.size,
      home: stretches.home,
      expandable: stretches.expandable,
    };
    this.peak = this.active.reduce((best, value, i) => (value > this.active[best] ? i : best), 0);
  }

  /** What the blocks that are not drawn take at each moment, in a home or (−1) in all of them. */
  crowd(home) {
    if (home < 0) return this.other;
    this.crowds ??= new Map();
    if (!this.crowds.has(home)) {
      const found = this.device.crowds.find((crowd) => crowd.home === home);
      const bytes = new Float64Array(this.length);
      if (found) {
        const starts = running(found.moment), values = running(found.bytes);
        starts.forEach((start, i) => bytes.fill(values[i], start, starts[i + 1] ?? this.length));
      }
      this.crowds.set(home, bytes);
    }
    return this.crowds.get(home);
  }

  /** The axis: where each moment lies. */
  axis(over) {
    return over === "time" && this.time ? this.time : this.after;
  }

  /** The last moment at or before `x` on an axis. */
  momentAt(axis, x) {
    let low = 0, high = axis.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      axis[middle] <= x ? (low = middle + 1) : (high = middle);
    }
    return Math.max(0, low - 1);
  }

  /** Indices of the blocks that are there at a moment. */
  live(moment) {
    const { born, gone, count } = this.blocks;
    const found = [];
    for (let i = 0; i < count && born[i] <= moment; i++) if (gone[i] > moment) found.push(i);
    return found;
  }

  /** Memory held at a moment, by home and address, what lies side by side in one. */
  segments(moment) {
    const { born, gone, addr, size, home, expandable } = this.stretches;
    const found = [];
    for (let i = 0; i < born.length; i++) {
      if (born[i] <= moment && gone[i] > moment) found.push({ addr: addr[i], size: size[i], home: home[i], expandable: expandable[i] });
    }
    found.sort((a, b) => a.home - b.home || a.addr - b.addr);
    return found.reduce((joined, next) => {
      const last = joined[joined.length - 1];
      if (last && last.expandable && next.expandable && last.home === next.home && last.addr + last.size === next.addr) last.size += next.size;
      else joined.push(next);
      return joined;
    }, []);
  }

  frameText(frame) {
    const { function: names, file, line, strings } = this.device.stacks;
    return `${strings[file[frame]]}:${line[frame]} ${strings[names[frame]]}`;
  }

  frames(stack) {
    return this.device.stacks.stacks[stack].map((frame) => this.frameText(frame));
  }

  /** The frame to look at: the innermost that is not a library's. */
  site(stack) {
    const frames = this.device.stacks.stacks[stack];
    if (!frames.length) return null;
    const own = frames.find((frame) => this.device.stacks.own[frame]);
    return this.frameText(own ?? frames[0]);
  }

  homeName(home) {
    const named = this.device.homes[home];
    if (!named) return "no known segment";
    const [a, b] = named.pool;
    const pool = a || b ? ` of private pool (${a}, ${b})` : "";
    const stream = named.stream ? `, stream 0x${named.stream.toString(16)}` : "";
    return `${named.small ? "small" : "large"} blocks${pool}${stream}`;
  }
}
